"""What is timed on a table that grows: the same operations by structable on any store, and by hand on its driver."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from benchmarks.memory import status
from benchmarks.workloads.programs import Action, Program, Step
from structable.spi import Range, connect

from .tables import ALIKE, FED, GROWN, changes_of, groups_of

MANY_KEYS = 100
COMMITTED = 1_000
NEWEST = 1_000
SPLITS = 8


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Parameters
    ----------
    name : str
        What it does.
    share : int
        It takes one sample of a round in this number.
    keys : int
        The random keys that it gets; 0 for none, -1 for a value of the index.
    effect : int
        The rows that it must find or write; 0 if it may vary.
    """

    name: str
    share: int
    keys: int
    effect: int


OPERATIONS: Mapping[str, Operation] = {
    "read": Operation("read", 1, 1, 1),
    "update": Operation("update of one field", 4, 1, 1),
    "read_and_write": Operation("read-modify-write", 4, 1, 1),
    "scan": Operation("scan of ten rows", 10, 1, ALIKE),
    "look_up": Operation("ten rows by the index", 10, -1, ALIKE),
    "multi_read": Operation(f"multi_read of {MANY_KEYS}", 100, MANY_KEYS, MANY_KEYS),
    "newest": Operation(f"the newest {NEWEST:,} changes", 1_000, 0, 0),
    "splits": Operation(f"plan of {SPLITS} splits", 1_000, 0, 0),
    "commit": Operation(f"commit of {COMMITTED:,} rows", 2_000, COMMITTED, COMMITTED),
}


class GrowthProgram(Program):
    """One client; the actions that it has are those of `OPERATIONS`, or some of them."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def plan(self, work: str, seed: int, amount: int) -> list[Step]:
        chosen, operation = random.Random(seed), OPERATIONS[work]
        if operation.keys == 0:
            return [(work, ())] * amount
        if operation.keys < 0:
            return [(work, (chosen.randrange(groups_of(self.rows)),)) for _ in range(amount)]
        if operation.keys == 1:
            return [(work, (chosen.randrange(self.rows - ALIKE),)) for _ in range(amount)]
        return [(work, (sorted(chosen.sample(range(self.rows), operation.keys)),)) for _ in range(amount)]

    def performed(self, steps: list[Step]) -> None:
        """Nothing: steps do not depend on earlier ones."""

    def timed(self, work: str, seed: int, amount: int) -> list[float]:
        """Return the seconds of each step; the first tenth is taken twice, to warm up."""
        action, expected = self.actions[work], OPERATIONS[work].effect
        steps = [arguments for _, arguments in self.plan(work, seed, amount)]
        times = []
        for arguments in (*steps[: amount // 10], *steps):
            begin = perf_counter()
            effect = action(*arguments)
            times.append(perf_counter() - begin)
            assert not expected or effect == expected, f"{work}: {effect} instead of {expected}"
        return times[-amount:]

    def memory(self) -> int:
        """Return the memory of this process in KiB that no file backs."""
        return status("RssAnon")


class SpiProgram(GrowthProgram):
    """The operations by structable's interface, each a transaction of its own."""

    def __init__(self, rows: int, url: str, *, client: int, clients: int) -> None:
        super().__init__(rows)
        self._storage = connect(url)
        self._table = self._storage.table(GROWN.name)
        self._feed = self._storage.changes(FED.name)
        self._since = self._feed.latest()
        changed = min(NEWEST // 2, changes_of(rows))
        self._newest = 2 * changed  # a row before and after
        self._storage.table(FED.name).upsert_many({"id": number, "number": -1} for number in range(changed))

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in OPERATIONS}

    def read(self, key: int) -> int:
        row = self._table.read((key,))
        return row is not None and row.id == key

    def update(self, key: int) -> int:
        self._table.update({"id": key, "number": key + 1})
        return 1

    def read_and_write(self, key: int) -> int:
        with self._storage.transaction() as tx:
            table = tx.table(GROWN.name)
            row = table.read((key,))
            assert row is not None
            table.update({"id": key, "number": row.number + 1})
        return 1

    def scan(self, key: int) -> int:
        return sum(1 for _ in self._table.scan(Range.at_least((key,)), limit=ALIKE))

    def look_up(self, group: int) -> int:
        return sum(1 for _ in self._table.scan_index("group", group))

    def multi_read(self, keys: Sequence[int]) -> int:
        return len(self._table.multi_read([(key,) for key in keys]))

    def newest(self) -> int:
        found = sum(1 for _ in self._feed.read(self._since))
        assert found == self._newest
        return found

    def splits(self) -> int:
        with self._storage.plan_scan(GROWN.name, splits=SPLITS) as plan:
            return len(plan.splits)

    def commit(self, keys: Sequence[int]) -> int:
        with self._storage.transaction() as tx:
            tx.table(GROWN.name).upsert_many([{"id": key, "number": -key} for key in keys])
        return len(keys)

    def close(self) -> None:
        self._storage.close()
