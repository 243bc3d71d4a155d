"""Feeds under load: readers that never pause among writers on threads and on processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import cast

import pytest

from structable.spi import (
    Change,
    ChangesLostError,
    FeedPosition,
    Field,
    Isolation,
    Storage,
    TableSpecification,
    Transaction,
)

from .clients import StoreProcess
from .concurrency import at_once, insist
from .feed_case import (
    FeedCase,
    State,
    after,
    by_version,
    images,
    read_between,
    settled,
    state_of,
    with_feed,
    without_gap,
)
from .feed_load import CASH, check_versions, move_often, open_cash
from .keyless_rules import counted

WRITERS = 8
HOT = TableSpecification(
    "hot",
    [Field.long("id"), Field.long("n"), Field.long("top")],
    ["id"],
    options={
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.top.aggregate-function": "max",
    },
)


class FeedConcurrency(FeedCase):
    """Changes that a reader has collected stay true, whatever is written later."""

    def poll(self, storage: Storage, table: str, done: threading.Event) -> tuple[FeedPosition, list[Change]]:
        """Follow a feed from its beginning without a pause, until a look that begins after the event."""
        start = position = storage.changes(table).earliest()
        collected: list[Change] = []
        last = False
        while not last:
            last = done.is_set()
            latest = storage.changes(table).latest()
            assert latest >= position
            collected += read_between(storage, table, position, latest)
            position = latest
        return start, collected

    def take_snapshots(
        self, storage: Storage, table: str, done: threading.Event, most: int
    ) -> list[tuple[FeedPosition, State]]:
        """Take snapshots by plans and by transactions until the event, at least one and at most the given number."""
        found: list[tuple[FeedPosition, State]] = []
        while not found or (not done.is_set() and len(found) < most):
            if len(found) % 2:
                found.append(without_gap(storage, table))
                continue
            with storage.transaction(read_only=True) as transaction:
                position = transaction.position(table)
                found.append((position, counted(transaction.table(table).scan())))
        return found

    def load(
        self, storage: Storage, rounds: int, others: list[StoreProcess]
    ) -> tuple[tuple[FeedPosition, list[Change]], list[tuple[FeedPosition, State]]]:
        """Let threads write, and a poller and a taker of snapshots read, until the other processes have ended too."""
        done = threading.Event()
        collected: list[tuple[FeedPosition, list[Change]]] = []
        snapshots: list[tuple[FeedPosition, State]] = []
        working = threading.Semaphore(0)

        def work(worker: int) -> None:
            if worker == 0:
                collected.append(self.poll(storage, "cash", done))
            elif worker == 1:
                snapshots.extend(self.take_snapshots(storage, "cash", done, 2 * self.stress_rounds))
            elif worker == 2:
                try:
                    for _ in range(WRITERS - len(others)):
                        working.acquire()
                    for client in others:
                        client.rest()
                finally:
                    done.set()
            else:
                try:
                    move_often(storage, 100_000 * worker, rounds)
                finally:
                    working.release()

        at_once(3 + WRITERS - len(others), work)
        return collected[0], snapshots

    def check_load(
        self,
        storage: Storage,
        rounds: int,
        poller: tuple[FeedPosition, list[Change]],
        snapshots: list[tuple[FeedPosition, State]],
    ) -> None:
        """Check the laws after a load."""
        start, collected = poller
        everything = read_between(storage, "cash", start)
        assert collected == everything
        opening, *moves = by_version(everything)
        final = state_of(storage, "cash")
        assert check_versions(change for commit in moves for change in commit) == len(moves) <= WRITERS * rounds
        assert after(counted(change.row for change in opening), (one for commit in moves for one in commit)) == final
        assert len(snapshots) > 0
        for position, state in snapshots:
            assert after(state, (one for one in everything if (one.version or 0) > position.version)) == final
        position, state = snapshots[0]
        assert after(state, read_between(storage, "cash", position)) == final

    def test_feed_of_many_threads(self, fed: Storage) -> None:
        """While 8 threads write, a poller gets what one read gets, each version balances, no snapshot has a gap."""
        open_cash(fed, with_feed(CASH))
        rounds = max(1, self.stress_rounds // 4)
        poller, snapshots = self.load(fed, rounds, [])
        self.check_load(fed, rounds, poller, snapshots)

    @pytest.fixture
    def movers(self, fed: Storage, storage_url: str) -> Iterator[list[StoreProcess]]:
        """Start four processes that write."""
        self.require("multi_process")
        open_cash(fed, with_feed(CASH))
        clients = [
            StoreProcess(storage_url, "move", number * 1_000, max(1, self.stress_rounds // 4)) for number in range(4)
        ]
        yield clients
        for client in clients:
            client.close()

    def test_feed_of_many_processes(self, fed: Storage, movers: list[StoreProcess]) -> None:
        """The laws of the load with threads also hold with four writers in separate processes."""
        rounds = max(1, self.stress_rounds // 4)
        poller, snapshots = self.load(fed, rounds, movers)
        self.check_load(fed, rounds, poller, snapshots)

    @pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
    def test_feed_of_a_hot_row(self, fed: Storage, producer: str) -> None:
        """Blind merges and increments of one row: each preimage is the postimage before, and the last is the row."""
        fed.admin.create(with_feed(HOT, producer))
        rounds = max(1, self.stress_rounds // 6)
        start = fed.changes("hot").latest()

        def work(worker: int) -> None:
            for number in range(rounds):
                if worker:
                    insist(partial(fed.table("hot").upsert, {"id": 1, "n": worker, "top": number}))
                else:
                    insist(lambda: fed.table("hot").increment((1,), "n", 100))
                fed.changes("hot").latest()

        at_once(4, work)
        row = fed.table("hot").read((1,))
        assert row is not None
        assert (row["n"], row["top"]) == (rounds * (100 + 1 + 2 + 3), rounds - 1)
        settled(fed.changes("hot"), start)
        while after(counted([]), read_between(fed, "hot", start)) != state_of(fed, "hot"):
            assert producer == "full-compaction"
        found = read_between(fed, "hot", start)
        listed = images(found)
        for place, (kind, image) in enumerate(listed[1:], 1):
            if kind == "-U":
                assert image == listed[place - 1][1]
        assert listed[-1] == ("+U" if len(listed) > 1 else "+I", dict(row))
        if producer == "lookup":
            assert len(by_version(found)) <= 4 * rounds

    def test_input_of_a_hot_row(self, fed: Storage) -> None:
        """With the producer `input` every merge of a row is recorded once, whatever others do at the same time."""
        fed.admin.create(with_feed(HOT, "input"))
        rounds = max(1, self.stress_rounds // 6)

        def work(worker: int) -> None:
            for number in range(rounds):
                insist(partial(fed.table("hot").upsert, {"id": 1, "n": 1, "top": 1_000 * worker + number}))

        at_once(4, work)
        found = images(read_between(fed, "hot"))
        assert {kind for kind, _ in found} == {"+U"}
        tops = [cast("int", row["top"]) for _, row in found]
        assert sorted(tops) == [1_000 * worker + number for worker in range(4) for number in range(rounds)]
        for worker in range(4):
            own = [top for top in tops if top // 1_000 == worker]
            assert own == sorted(own)

    def test_expiry_among_readers(self, fed: Storage) -> None:
        """While changes expire a reader has every change, or learns that it lost some and starts from a snapshot."""
        open_cash(fed, with_feed(CASH))
        done = threading.Event()
        rounds = max(1, self.stress_rounds // 2)

        def work(worker: int) -> int:
            if worker == 0:
                try:
                    move_often(fed, 5, rounds)
                finally:
                    done.set()
            elif worker == 1:
                while not done.is_set():
                    fed.changes("cash").expire(fed.changes("cash").latest())
            else:
                return self.follow_or_restart(fed, done)
            return 0

        at_once(3, work)

    def follow_or_restart(self, storage: Storage, done: threading.Event) -> int:
        """Keep a copy of the table from its feed; start again from a snapshot if changes are lost."""
        starts, last = 0, False
        position, copy = without_gap(storage, "cash")
        while not last:
            last = done.is_set()
            try:
                latest = storage.changes("cash").latest()
                copy = after(copy, read_between(storage, "cash", position, latest))
                position = latest
            except ChangesLostError:
                position, copy = without_gap(storage, "cash")
                starts += 1
        assert copy == state_of(storage, "cash")
        return starts

    def test_marks_of_many_readers(self, fed: Storage) -> None:
        """Readers that set marks at the same time see the same marks: what each collects equals one read at the end."""
        open_cash(fed, with_feed(CASH, "full-compaction"))
        done = threading.Event()
        start, rounds = fed.changes("cash").earliest(), max(1, self.stress_rounds // 3)

        def work(worker: int) -> list[Change]:
            if worker:
                return self.poll(fed, "cash", done)[1]
            try:
                move_often(fed, 77, rounds)
            finally:
                done.set()
            return []

        collected = at_once(3, work)[1:]
        everything = read_between(fed, "cash", start)
        for one in collected:
            assert one == everything[: len(one)]
        for commit in by_version(everything)[1:]:
            check_versions(commit)

    @pytest.mark.parametrize("isolation", list(Isolation), ids=lambda level: level.value)
    def test_positions_under_load(self, fed: Storage, isolation: Isolation) -> None:
        """A writing transaction that took its position is one version beyond it; nothing between is missed or twice."""
        open_cash(fed, with_feed(CASH))
        rounds = max(1, self.stress_rounds // 6)
        fed.admin.create(with_feed(HOT))

        def work(worker: int) -> list[tuple[FeedPosition, State]]:
            if worker:
                move_often(fed, 1_000 * worker, rounds)
                return []
            return [
                fed.run(partial(self.look, number=number), isolation=isolation, max_attempts=10_000, deadline=120.0)
                for number in range(rounds)
            ]

        found, *_ = at_once(4, work)
        final = state_of(fed, "cash")
        for position, state in found:
            assert after(state, read_between(fed, "cash", position)) == final

    def look(self, transaction: Transaction, number: int) -> tuple[FeedPosition, State]:
        """Take a position and its rows, and write to another table."""
        position = transaction.position("cash")
        rows = counted(transaction.table("cash").scan())
        transaction.table("hot").upsert({"id": number, "n": 1})
        return position, rows
