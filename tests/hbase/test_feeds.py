"""Change feeds beside processes that die, stall or poll: table and feed agree, wholly or not at all."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from structable.backends.hbase.layout import GATES
from structable.backends.hbase.thrift.requests import get_row
from structable.backends.hbase.txn.snapshot import HBaseSnapshot
from structable.backends.ordered.engine import FeedEntry
from structable.spi import (
    ChangesLostError,
    FeedPosition,
    Field,
    Storage,
    TableSpecification,
    TransactionConflictError,
    connect,
)

from .support.bank import open_bank, quick, require_fed, require_sound, transfer
from .support.bank_killing import killed, stalled_commit, write_on
from .support.internals import collect_garbage, drained, engine_of, hold_finaliser

_ACCOUNTS = 12
_TIMEOUT = 120
_FED = TableSpecification(
    "fed", [Field.int("id"), Field.string("text")], ["id"], options={"changelog-producer": "lookup"}
)


@contextmanager
def bank(url: str, accounts: int = _ACCOUNTS) -> Iterator[Storage]:
    with connect(url) as storage:
        open_bank(storage, accounts, feeds=True)
        yield storage


def gates_of(storage: Storage) -> int:
    """Return the number of gates in which processes have rows."""
    engine = engine_of(storage)
    return len(engine.gateway.call(get_row(engine.layout.transactions, GATES, [b"c"])))


@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_record", 1, False),
        ("after_intents", 1, False),
        ("after_gate", 1, False),
        ("after_timestamp", 1, False),
        ("before_commit", 1, False),
        ("after_commit", 1, True),
        ("mid_finalise", 1, True),
        ("mid_feed_finalise", 1, True),
        ("entries_put", 1, True),
        ("mid_feed_finalise", 3, True),
        ("mid_feed_finalise", 4, True),
        ("after_finalise", 1, True),
        ("after_finalised", 1, True),
    ],
)
def test_killed_in_a_commit(hbase_url: str, point: str, number: int, committed: bool) -> None:
    """A transfer is in tables and feeds wholly or not at all, at once, and after others have cleaned up."""
    url = quick(hbase_url)
    with bank(url) as storage:
        killed("transfer", url, point, number)
        assert require_sound(storage, _ACCOUNTS) == ({"doomed"} if committed else set())
        require_fed(storage)
        with connect(f"{url}&read_only=True") as other:
            require_fed(other)
        write_on(storage, _ACCOUNTS)
        require_fed(storage)


@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("bulk_locked", 1, False),
        ("bulk_prewritten", 1, False),
        ("after_commit", 1, True),
        ("mid_feed_finalise", 1, True),
        ("entries_put", 1, True),
        ("mid_bulk_cleanup", 2, True),
    ],
)
def test_killed_in_a_write_job(hbase_url: str, point: str, number: int, committed: bool) -> None:
    """The entries of a job wait in rows of their own, whose number may be any."""
    accounts = 1_200
    url = quick(hbase_url, lease=6)
    with bank(url, accounts) as storage:
        before = storage.changes("accounts").latest()
        killed("job", url, point, number)
        updates = 2 * accounts * committed
        for _ in range(2):
            with storage.changes("accounts").read(since=before) as changes:
                found = [(change.version, change.kind) for change in changes]
            assert len(found) == updates
            assert len({version for version, _ in found}) == committed
            while collect_garbage(storage).repaired:
                pass


@pytest.mark.parametrize("point", ["after_gate", "after_timestamp", "before_commit"])
def test_reader_pushes_a_stalled_commit(hbase_url: str, point: str) -> None:
    """A position is given although a commit below it is still possible; it then commits beyond the position."""
    with bank(hbase_url) as storage, connect(hbase_url) as other:
        transaction = other.transaction()
        transfer(transaction, "stalled", 0, 1, 3)
        with stalled_commit(transaction, point) as committing:
            storage.run(lambda another: transfer(another, "between", 4, 5, 1))
            position = storage.changes("accounts").latest()
            known = list(storage.changes("accounts").read(until=position))
        committing.result()
        assert list(storage.changes("accounts").read(until=position)) == known
        later = list(storage.changes("accounts").read(since=position))
        assert [change.row["id"] for change in later] in ([0, 0, 1, 1], [1, 1, 0, 0])
        require_fed(storage)


def test_entries_are_read_from_the_gate(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is finalised: entries of one and of several parts are in the gate, and splits have them too."""
    long = "x" * 700_000
    with connect(hbase_url) as storage:
        storage.admin.create(_FED)
        drained(storage)
        hold_finaliser(monkeypatch)
        table = storage.table("fed")
        table.upsert({"id": 1, "text": "a"})
        table.upsert_many([{"id": number, "text": long} for number in range(2, 7)])
        table.delete((1,))
        expected = [(1, "+I")] + [(number, "+I") for number in range(2, 7)] + [(1, "-D")]
        feed = storage.changes("fed")
        found = [(change.row["id"], str(change.kind.value)) for change in feed.read()]
        assert found == expected
        plan = feed.plan(splits=4)
        read = [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]
        assert [(row["id"], row["_change_type"][0]) for row in read] == [
            (one, {"+I": "i", "-D": "d"}[kind]) for one, kind in expected
        ]


def test_ended_processes_leave_no_gate(hbase_url: str) -> None:
    url = quick(hbase_url)
    with bank(url) as storage:
        with connect(url) as other:
            other.run(lambda transaction: transfer(transaction, "other", 0, 1, 1))
            assert gates_of(storage) == 4
        while gates_of(storage) > 2:
            collect_garbage(storage)
        require_fed(storage)
        with storage.transaction() as transaction:
            transfer(transaction, "next", 1, 2, 1)
        require_fed(storage)


def test_writers_beside_a_reader_that_never_pauses(hbase_url: str) -> None:
    """Each poll may push commits to a later timestamp, but only those that are under way for longer than most."""
    with bank(hbase_url) as storage, connect(hbase_url) as other, ThreadPoolExecutor(4) as pool:
        done = threading.Event()

        def poll() -> int:
            feed, found, position = other.changes("ledger"), 0, None
            while not done.is_set() or position is None or position < other.changes("ledger").latest():
                newest = feed.latest()
                assert position is None or position <= newest
                found += sum(1 for _ in feed.read(since=position, until=newest))
                position = newest
            return found

        def write(number: int) -> None:
            for one in range(20):
                source = 4 * number + one % 3
                storage.run(
                    lambda transaction: transfer(transaction, f"{number}-{one}", source, source + 1, 1),  # noqa: B023
                    max_attempts=1_000,
                )

        polling = pool.submit(poll)
        try:
            list(pool.map(write, range(3)))
        finally:
            done.set()
        assert polling.result(_TIMEOUT) == 60
        require_fed(storage)


def test_dropped_feed_is_gone(hbase_url: str) -> None:
    """An entry that is still in the gate when its feed ends is no obstacle to anyone."""
    url = quick(hbase_url)
    with connect(url) as storage:
        storage.admin.create(_FED)
        storage.table("fed").upsert({"id": 1, "text": "a"})
        storage.admin.create_or_update(_FED.evolve(options={"changelog-producer": "none"}))
        storage.table("fed").upsert({"id": 2, "text": "b"})
        storage.admin.drop("fed")
        drained(storage)
        while collect_garbage(storage).finalised:
            pass
        storage.admin.create(_FED)
        transaction = storage.transaction()
        transaction.table("fed").upsert({"id": 1, "text": "a"})
        storage.table("fed").upsert({"id": 1, "text": "c"})
        with pytest.raises(TransactionConflictError):
            transaction.commit()
        assert [change.row["text"] for change in storage.changes("fed").read()] == ["c"]


def test_feed_that_ends_under_its_readers(hbase_url: str) -> None:
    """Its table is gone from HBase, too, when they look again."""
    url = quick(hbase_url)
    with connect(url) as storage, connect(f"{url}&read_only=True") as other:
        storage.admin.create(_FED)
        storage.table("fed").upsert_many([{"id": number, "text": "a"} for number in range(200)])
        storage.table("fed").upsert({"id": 1, "text": "b"})
        readers = [one.changes("fed").read() for one in (storage, other)]
        plans = [(one, one.changes("fed").plan()) for one in (storage, other)]
        drained(storage)
        engine = engine_of(storage)
        old = engine.tables.spaces()[-1]
        storage.admin.create_or_update(_FED.evolve(options={"changelog-producer": "input"}))
        while old in engine.tables.spaces():
            collect_garbage(storage)
        for reader in readers:
            with pytest.raises(ChangesLostError, match="gone"):
                list(reader)
        for one, plan in plans:
            with pytest.raises(ChangesLostError, match="gone"):
                [list(one.read_split(split)) for split in plan.splits]


def test_first_expiry_beside_a_reader(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until something expires, a feed begins with its first entry, which goes as a reader looks for it."""
    entries = HBaseSnapshot.entries
    expired: list[FeedPosition] = []

    def expiring(snapshot: HBaseSnapshot, feed: bytes, since: int, until: int, chunk: int = 0) -> Generator[FeedEntry]:
        if not expired:
            expired.append(other.changes("fed").latest())
            expired[0] = other.changes("fed").expire(expired[0])
        return entries(snapshot, feed, since, until, chunk)

    with connect(hbase_url) as storage, connect(hbase_url) as other:
        storage.admin.create(_FED)
        storage.table("fed").upsert({"id": 1, "text": "a"})
        drained(storage)
        other.changes("fed").earliest()  # known to this process before the reader asks
        monkeypatch.setattr(HBaseSnapshot, "entries", expiring)
        assert storage.changes("fed").earliest() == expired[0]
        assert list(storage.changes("fed").read()) == []
