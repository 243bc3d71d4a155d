"""Random histories of lists that transactions read and append to, checked for cycles in the way of Elle.

Each append writes the whole list that it read, so the final lists give the order of all writes. The dependencies
between transactions follow from their reads: SERIALIZABLE allows no cycle of them at all, SNAPSHOT none without two
consecutive anti-dependencies (Cerone and Gotsman, "Analysing Snapshot Isolation").
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from structable.spi import Field, Isolation, Storage, StructuredTable, TableSpecification, TransactionConflictError

from .case import ConformanceCase

LISTS = TableSpecification("lists", [Field.int("id"), Field.string("list")], ["id"])
KEYS = 4
THREADS = 4

Values = tuple[int, ...]


@dataclass
class Observed:
    """The reads and appends of one committed transaction, and its time span in seconds of one clock."""

    begun: float  # before it began
    ended: float = 0.0  # after its commit returned
    reads: dict[int, Values] = field(default_factory=dict)  # the list of each key as it was first read
    appends: dict[int, list[int]] = field(default_factory=dict)  # in their order; unique over all transactions


def find_problem(transactions: list[Observed], final: dict[int, Values], isolation: Isolation) -> str | None:
    """Return the rule that the committed transactions and the final lists break, or None."""
    writers = {
        value: number for number, one in enumerate(transactions) for values in one.appends.values() for value in values
    }
    written = [value for values in final.values() for value in values]
    if sorted(written) != sorted(writers):
        return f"lost or aborted writes: appended {sorted(writers)}, found {sorted(written)}"
    depends: set[tuple[int, int]] = set()
    precedes: set[tuple[int, int]] = set()
    for number, one in enumerate(transactions):
        for key, seen in one.reads.items():
            versions = final.get(key, ())
            if versions[: len(seen)] != seen:
                return f"transaction {number} read {seen} of {key}, which is not a prefix of {versions}"
            if seen:
                source = writers[seen[-1]]
                if transactions[source].appends[key][-1] != seen[-1]:
                    return f"transaction {number} read an intermediate state of {key}: {seen}"
                depends.add((source, number))
            following = versions[len(seen) : len(seen) + 1]
            if following and writers[following[0]] != number:
                precedes.add((number, writers[following[0]]))
    for number, one in enumerate(transactions):
        depends |= {(number, later) for later, other in enumerate(transactions) if one.ended < other.begun}
    if isolation is Isolation.SERIALIZABLE:
        edges = depends | precedes
    else:
        after = _successors(precedes)
        edges = depends | {(one, last) for one, middle in depends for last in after.get(middle, ())}
    cycle = _cycle(edges)
    return None if cycle is None else f"cycle of transactions {cycle}: {[transactions[one] for one in cycle]}"


def _successors(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, other in edges:
        found.setdefault(one, []).append(other)
    return found


def _cycle(edges: set[tuple[int, int]]) -> list[int] | None:
    after = _successors(edges)
    done: set[int] = set()
    for start in after:
        path: list[int] = []
        waiting = [(start, iter(after.get(start, ())))]
        while waiting:
            one, others = waiting[-1]
            if one not in done and (not path or path[-1] != one):
                path.append(one)
            following = next(others, None)
            if following is None:
                waiting.pop()
                done.add(one)
                if path and path[-1] == one:
                    path.pop()
            elif following in path:
                return path[path.index(following) :]
            elif following not in done:
                waiting.append((following, iter(after.get(following, ()))))
    return None


class Histories(ConformanceCase):
    """The anomalies that SNAPSHOT and SERIALIZABLE exclude, in random histories."""

    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_random_histories(self, storage: Storage, isolation: Isolation) -> None:
        """No history breaks its isolation level: nothing lost, aborted or intermediate is read, no cycle arises."""
        storage.admin.create(LISTS)
        committed: list[Observed] = []
        lock = threading.Lock()

        def work(worker: int) -> None:
            chance = random.Random(worker)
            for number in range(self.stress_rounds * 2):
                observed = self.attempt(storage, isolation, chance, (worker * 10_000 + number) * 10)
                if observed is not None:
                    with lock:
                        committed.append(observed)

        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(work, worker) for worker in range(THREADS)]:
                future.result()
        final = {key: self.read(storage.table("lists"), key) for key in range(KEYS)}
        assert len(committed) > self.stress_rounds // 4
        assert find_problem(committed, final, isolation) is None

    def attempt(
        self, storage: Storage, isolation: Isolation, chance: random.Random, first_value: int
    ) -> Observed | None:
        """Run one transaction of a few reads and appends; return None if it got a conflict."""
        observed = Observed(time.monotonic())
        try:
            with storage.transaction(isolation) as transaction:
                table = transaction.table("lists")
                for place in range(chance.randint(1, 4)):
                    key = chance.randrange(KEYS)
                    values = self.read(table, key)
                    if key not in observed.reads:
                        observed.reads[key] = values
                    if chance.random() < 0.5:
                        table.upsert({"id": key, "list": ",".join(map(str, (*values, first_value + place)))})
                        observed.appends.setdefault(key, []).append(first_value + place)
                    time.sleep(chance.random() * 0.001)
        except TransactionConflictError:
            return None
        observed.ended = time.monotonic()
        return observed

    def read(self, table: StructuredTable, key: int) -> Values:
        row = table.read((key,))
        return tuple(map(int, str(row["list"]).split(","))) if row is not None else ()
