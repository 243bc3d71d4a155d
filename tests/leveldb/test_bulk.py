"""Bulk commits: no part of one is visible before the whole, whatever happens half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.ordered.engine import WriteSet
from structable.spi import CommitOutcomeUnknownError, TransactionConflictError

from .support.engines import DECISION, Bulk, key, make_engine, open_engine, put, read_all, start
from .support.processes import Process

ROWS = {key(f"bulk-{number}"): b"new" for number in range(4)}


def chunks() -> list[dict[bytes, bytes | None]]:
    return [{row: value} for row, value in ROWS.items()]


def test_readers_see_all_or_nothing(engine: LevelDBEngine) -> None:
    put(engine, "other", b"old")
    seen: list[int] = []

    def between(number: int) -> None:
        seen.append(len(read_all(engine)))
        assert engine.get(key(f"bulk-{number}")) is None

    before = engine.begin(False)
    engine.commit_bulk(Bulk(chunks(), between))
    assert seen == [1] * 4
    assert read_all(engine) == {key("other"): b"old", **ROWS}
    assert engine.get(DECISION) is None
    assert before.get(key("bulk-0")) is None
    with pytest.raises(TransactionConflictError):
        engine.commit(before, WriteSet({key("bulk-3"): b"mine"}))
    engine.commit(before, WriteSet({key("else"): b"mine"}))


def test_writers_wait_and_readers_do_not(engine: LevelDBEngine) -> None:
    written = threading.Event()

    def write() -> None:
        put(engine, "waiter", b"1")
        written.set()

    thread = threading.Thread(target=write)

    def between(number: int) -> None:
        if number == 0:
            thread.start()
        assert not written.wait(0.05)
        assert read_all(engine) == {}

    engine.commit_bulk(Bulk(chunks(), between))
    thread.join()
    assert read_all(engine) == {key("waiter"): b"1", **ROWS}


def test_refused_bulk_writes_nothing(engine: LevelDBEngine) -> None:
    class Refused(Bulk):
        def check(self, latest: object) -> None:
            raise TransactionConflictError("no")

    with pytest.raises(TransactionConflictError):
        engine.commit_bulk(Refused(chunks()))
    assert read_all(engine) == {}
    assert engine.get(DECISION) is None


def recovering(folder: Path) -> LevelDBEngine:
    """Start an engine that completes decided jobs, as the layer above does."""
    engine = make_engine(folder)

    def recover(argument: bytes) -> bytes:
        snapshot = engine.begin(True)
        decided = snapshot.get(DECISION)
        snapshot.close()
        if decided is not None:
            bulk = Bulk(chunks())
            bulk.decision = {}
            engine.commit_bulk(bulk)
        return b""

    return start(engine, recover=recover)


def test_failure_half_way_is_completed_before_any_read(folder: Path) -> None:
    engine = recovering(folder)

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("the runs cannot be read")

    with pytest.raises(CommitOutcomeUnknownError, match="the runs cannot be read"):
        engine.commit_bulk(Bulk(chunks(), fail))
    assert read_all(engine) == {}, "reads stay with the state before"
    put(engine, "next", b"1")  # a write reopens the database and completes it
    assert read_all(engine) == {key("next"): b"1", **ROWS}
    engine.close()


@pytest.mark.parametrize("at", [-1, 0, 3])
def test_killed_half_way_is_completed_by_the_next_owner(folder: Path, run: Callable[[str], Process], at: int) -> None:
    process = run(
        f"""
engine = open_engine(folder)
rows = [{{key(f"bulk-{{number}}"): b"new"}} for number in range(4)]
def between(number):
    if number == {at}:
        send("now")
        receive()
class Killed(Bulk):
    def chunks(self, latest):
        between(-1)
        yield from super().chunks(latest)
engine.commit_bulk(Killed(rows, between))
"""
    )
    assert process.receive() == "now"
    other = recovering(folder)
    assert other.get(key("bulk-0")) is None, "a client does not see a part either"
    process.signal(signal.SIGKILL)
    assert other.get(key("bulk-0")) == b"new"
    assert read_all(other) == ROWS
    other.close()
    again = open_engine(folder)
    assert read_all(again) == ROWS
    again.close()
