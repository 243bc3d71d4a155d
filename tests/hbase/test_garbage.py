"""Garbage collection: which versions, records and rows stay in HBase's own tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from structable.backends.hbase.failpoints import failpoints
from structable.backends.hbase.layout import STATE, session_row
from structable.backends.hbase.txn.session import DEAD
from structable.backends.ordered import RunLostError
from structable.spi import (
    Field,
    Range,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    connect,
)
from tests.waiting import until

from .support.bank import quick
from .support.internals import collect_garbage, drained, engine_of
from .support.shared import Place

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n"), Field.string("s")], ["k"], ["s"])
_MANY = 1_000_000
_FAR = 2**62
UPDATES = int(os.environ.get("STRUCTABLE_TEST_HOT_UPDATES", "2000"))
"""Of one row; 10,000 take minutes on two cores that other tests share."""


@pytest.fixture
def storage(hbase_url: str) -> Iterator[Storage]:
    with connect(quick(hbase_url)) as storage:
        storage.admin.create(TABLE)
        yield storage


@pytest.fixture
def armed() -> Iterator[dict[str, object]]:
    yield failpoints  # type: ignore[misc]
    failpoints.clear()


def write(storage: Storage, value: int, rows: int = 5) -> None:
    storage.run(
        lambda transaction: transaction.table("t").upsert_many(
            {"k": number, "n": value, "s": f"s{value}"} for number in range(rows)
        )
    )


def values(rows: object) -> list[object]:
    return [row["n"] for row in rows]  # type: ignore[attr-defined]


def sweep(storage: Storage) -> None:
    """Collect garbage until no transaction has any cell left."""
    drained(storage)
    while (report := collect_garbage(storage)).pending or report.unfinalised or report.aborted or report.finalised:
        pass


class Cells:
    """The cells of a prefix in HBase's own tables."""

    def __init__(self, place: Place, prefix: str) -> None:
        self._place = place
        self._prefix = prefix

    def versions(self, before: int = _FAR) -> dict[tuple[str, bytes], int]:
        """Return the number of versions of each row of the user's tables below a timestamp."""
        found = {}
        with closing(self._place.connection()) as connection:
            for name in self.tables(connection):
                table = connection.table(name)
                for row, _ in table.scan(timestamp=before):
                    if row != b"\0":
                        cells = table.cells(row, b"x:v", versions=_MANY, timestamp=before)
                        found[name, row] = len(cells)
        return found

    def tables(self, connection: object) -> list[str]:
        names = [name.decode() for name in connection.tables()]  # type: ignore[attr-defined]
        return [name for name in names if name.startswith(self._prefix) and name[-8:].isdigit()]

    def intents(self) -> int:
        """Return the number of intents."""
        with closing(self._place.connection()) as connection:
            return sum(
                column.startswith(b"x:i")
                for name in self.tables(connection)
                for _, cells in connection.table(name).scan()
                for column in cells
            )

    def intent_columns(self) -> set[bytes]:
        """Return the columns of all intents."""
        with closing(self._place.connection()) as connection:
            return {
                column
                for name in self.tables(connection)
                for _, cells in connection.table(name).scan()
                for column in cells
                if column.startswith(b"x:i")
            }

    def records(self) -> list[bytes]:
        """Return the rows of all transaction records, empty ones too."""
        with closing(self._place.connection()) as connection:
            table = connection.table(f"{self._prefix}_tx")
            return [row for row, _ in table.scan(row_start=b"s", row_stop=b"t") if row != b"sessions"]

    def is_over(self, session: bytes) -> bool:
        """Tell whether a session was declared dead, or is gone since."""
        with closing(self._place.connection()) as connection:
            found = connection.table(f"{self._prefix}_tx").row(session_row(session))
        return bool(found.get(STATE, DEAD) == DEAD)


@pytest.fixture
def cells(hbase_server: Place, hbase_prefix: str) -> Cells:
    return Cells(hbase_server, hbase_prefix)


def test_open_transaction_keeps_its_versions(storage: Storage, hbase_url: str) -> None:
    """An open snapshot reads the same rows to its end, whichever process collects garbage."""
    write(storage, 0)
    with connect(quick(hbase_url)) as other:
        mine, others = storage.transaction(read_only=True), other.transaction(read_only=True)
        for transaction in (mine, others):
            assert transaction.table("t").count() == 5  # the first read takes the snapshot
        for value in range(1, 6):
            write(storage, value)
            storage.table("t").delete((0,))
            drained(storage)
            collect_garbage(storage)
            collect_garbage(other)
            for transaction in (mine, others):
                assert values(transaction.table("t").scan()) == [0] * 5
                assert values(transaction.table("t").scan_index("s", "s0")) == [0] * 5
        mine.rollback()
        others.rollback()


def test_plan_keeps_its_versions(storage: Storage, hbase_url: str) -> None:
    """So does a plan, in every process that reads its splits; after its close, reading them is an error."""
    write(storage, 0)
    with storage.plan_scan("t", splits=2) as plan, connect(quick(hbase_url)) as other:
        for value in range(1, 4):
            write(other, value)
            drained(other)
            collect_garbage(other)
            collect_garbage(storage)
            found = [n for split in plan.splits for batch in other.read_split(split) for n in batch["n"].to_pylist()]
            assert found == [0] * 5
        plan.close()
        write(other, 9)
        collect_garbage(other)
        with pytest.raises(TransactionClosedError):
            [list(other.read_split(split)) for split in plan.splits]


def test_snapshot_of_a_dead_session(storage: Storage, hbase_url: str, cells: Cells) -> None:
    """A process declared dead gets an error from reads, scans and commits; new transactions work."""
    write(storage, 0)
    with connect(quick(hbase_url, session_timeout=1, housekeeping=1000)) as other:
        snapshot, scanning, writing = other.transaction(), other.transaction(), other.transaction()
        rows = scanning.table("t").scan()
        assert values(snapshot.table("t").scan()) == [0] * 5
        writing.table("t").upsert({"k": 9, "n": 9})
        engine_of(other).background.stop(60)
        drained(storage)
        session = engine_of(other).transactions.session.id
        while not cells.is_over(session):
            collect_garbage(storage)  # or the storage's own housekeeping, if that is earlier
        write(storage, 1)
        sweep(storage)
        with pytest.raises(TransactionConflictError, match="too old"):
            snapshot.table("t").read((77,))  # the transaction has kept the rows that it has scanned
        with pytest.raises(TransactionConflictError, match="too old"):
            list(rows)
        with pytest.raises(TransactionConflictError, match="too old"):
            writing.commit()
        assert values(other.table("t").scan()) == [1] * 5
        write(other, 2)
        assert values(storage.table("t").scan()) == [2] * 5
        drained(other)
    sweep(storage)
    assert set(cells.versions().values()) == {1}


def test_deleted_rows_are_gone(storage: Storage, cells: Cells) -> None:
    """A deleted row is visible at no timestamp that a reader may use, and no cell of it stays in HBase."""
    write(storage, 1)
    write(storage, 2)
    storage.table("t").delete_many([(number,) for number in range(4)])
    sweep(storage)
    session = engine_of(storage).transactions.session
    # The remaining row and its index entry.
    assert sorted(cells.versions().values()) == [1, 1]
    for timestamp in range(session.clock - 20, session.clock + 2):
        assert len(cells.versions(timestamp)) in (0, 2)
    assert values(storage.table("t").scan()) == [2]
    storage.table("t").insert({"k": 0, "n": 7, "s": "again"})
    assert values(storage.table("t").scan()) == [7, 2]
    assert list(storage.table("t").scan_index("s", "s1")) == []
    storage.table("t").delete_all(Range())
    sweep(storage)
    assert cells.versions() == {}


def test_records_go(storage: Storage, cells: Cells) -> None:
    """No record, write set or intent is left of any transaction, large or small, committed or aborted."""
    write(storage, 1, rows=300)  # its write set does not fit the status
    for value in range(5):
        write(storage, value)
    for _ in range(3):
        loser = storage.transaction()
        loser.table("t").upsert_many({"k": number, "n": -1} for number in range(300))
        write(storage, 7)
        with pytest.raises(TransactionConflictError):
            loser.commit()
    storage.table("t").increment((1,), "n", 5)
    sweep(storage)
    assert cells.records() == []
    assert cells.intents() == 0
    assert set(cells.versions().values()) == {1}


def test_hot_key(storage: Storage, cells: Cells) -> None:
    """However often a row is written, by increments and by overwrites, its versions stay few."""
    write(storage, 0, rows=1)
    counters, each, rewrites = 4, UPDATES * 94 // 400, UPDATES * 6 // 100
    most: list[int] = []

    def count() -> None:
        for _ in range(each):
            storage.table("t").increment((0,), "n")

    def rewrite() -> None:
        for value in range(rewrites):
            storage.table("t").upsert({"k": 0, "s": f"s{value % 3}"})

    with ThreadPoolExecutor(counters) as pool:
        for work, threads in ((count, counters), (rewrite, 1)):
            running = [pool.submit(work) for _ in range(threads)]
            while wait(running, timeout=0.5).not_done:
                most.append(max(cells.versions().values()))
            for one in running:
                one.result()
    assert values(storage.table("t").scan()) == [each * counters]
    # As many as were committed in a few rounds of the janitor, early and late alike, however long the load lasts.
    assert max(most) < 500
    sweep(storage)
    # A deleted index entry is gone: only the row, its marker's last version and one entry are left.
    assert set(cells.versions().values()) == {1}
    assert len(cells.versions()) == 2
    assert cells.records() == []


def test_intents_share_columns(storage: Storage, cells: Cells, armed: dict[str, object]) -> None:
    """Every second of consecutive transactions uses the same column, since readers pass deleted ones slowly."""
    write(storage, 0, rows=1)
    drained(storage)
    columns: set[bytes] = set()
    armed["before_finalise"] = lambda: columns.update(cells.intent_columns())
    for value in range(10):
        storage.table("t").increment((0,), "n")
        drained(storage)
        write(storage, value)
        drained(storage)
    assert len(columns) <= 2


def test_column_of_a_later_transaction(storage: Storage) -> None:
    """A transaction that began before a column was emptied does not take it: its intents would be hidden there."""
    write(storage, 0, rows=2)
    drained(storage)
    with storage.transaction() as early:
        assert values(early.table("t").scan()) == [0, 0]
        for _ in range(3):
            storage.table("t").increment((0,), "n")
            drained(storage)
        early.table("t").increment((0,), "n", 10)
        early.table("t").upsert({"k": 1, "n": 5})
    assert values(storage.table("t").scan()) == [13, 5]


def test_increments_of_several_processes_in_one_batch(
    storage: Storage, hbase_url: str, armed: dict[str, object]
) -> None:
    """Every snapshot has the increments up to it, also those between two that are finalised together."""
    write(storage, 0, rows=1)
    drained(storage)
    inside, go_on = threading.Event(), threading.Event()
    mine = "structable-finaliser"
    with connect(quick(hbase_url)) as other, connect(quick(hbase_url)) as reader, ExitStack() as snapshots:
        first = engine_of(storage).transactions.finaliser

        def pause() -> None:
            thread = threading.current_thread()
            if thread.name == mine and thread is first.thread:
                inside.set()
                go_on.wait(60)

        armed["before_finalise"] = pause
        taken = []
        try:
            for number in range(12):
                # The first alone, then by turns, with those of the other in place.
                (other if number % 3 == 2 else storage).table("t").increment((0,), "n", 10**number)
                assert number or inside.wait(60)
                drained(other)
                snapshot = snapshots.enter_context(reader.transaction(read_only=True))
                taken.append((snapshot, int("1" * (number + 1))))
                assert values(snapshot.table("t").scan()) == [taken[-1][1]]
        finally:
            go_on.set()
        drained(storage)
        for snapshot, total in taken:
            assert values(snapshot.table("t").scan()) == [total]


def test_long_round_of_the_janitor(storage: Storage, hbase_url: str, armed: dict[str, object]) -> None:
    """The session of a process stays alive however long a round of its janitor takes."""
    write(storage, 1)
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        if threading.current_thread().name == "structable-janitor":
            inside.set()
            go_on.wait(60)

    with connect(quick(hbase_url, housekeeping=1000)) as other, storage.transaction(read_only=True) as snapshot:
        armed["before_gc"] = pause
        assert inside.wait(60)
        session = engine_of(storage).transactions.session
        assert values(snapshot.table("t").scan()) == [1] * 5
        write(other, 2)
        # Others watch for as long as declaring it dead would take.
        seen = session.raw
        while session.raw == seen:
            assert collect_garbage(other).dead_sessions == 0
        beats = {session.raw}
        while len(beats) < 12:  # six for each time-out
            assert collect_garbage(other).dead_sessions == 0
            beats.add(session.raw)
        assert values(snapshot.table("t").scan()) == [1] * 5
        go_on.set()
    assert not session.over


@pytest.mark.parametrize("point", ["before_finalise", "after_finalised", "before_gc"])
def test_background_threads_survive(
    storage: Storage, cells: Cells, armed: dict[str, object], caplog: pytest.LogCaptureFixture, point: str
) -> None:
    """An unexpected error ends neither the finaliser nor the janitor, and is logged with its traceback."""

    def fail() -> None:
        raise RuntimeError("unexpected")

    def logged() -> list[str]:
        records = [record for record in caplog.records if record.name == "structable.hbase" and record.exc_info]
        return [str(record.exc_info[1]) for record in records if record.exc_info]

    armed[point] = fail
    write(storage, 1)
    until(logged)
    del armed[point]
    assert set(logged()) == {"unexpected"}
    caplog.clear()
    write(storage, 2)
    drained(storage)
    # The janitor finalises the transactions that their owner could not; both threads go on by themselves.
    while cells.records():
        pass
    assert values(storage.table("t").scan()) == [2] * 5
    assert set(cells.versions().values()) == {1}


def test_paused_process_goes_on(storage: Storage, hbase_url: str) -> None:
    """A process that was stopped for long, but not declared dead meanwhile, continues at once."""
    write(storage, 1)
    with connect(quick(hbase_url, session_timeout=1, housekeeping=1000)) as other:
        engine = engine_of(other)
        snapshot = other.transaction(read_only=True)
        engine.background.stop(60)
        engine.transactions.session.good_until = 0.0
        assert values(snapshot.table("t").scan()) == [1] * 5
        write(other, 2)
        snapshot.rollback()


def test_closed_storage_leaves_no_thread(hbase_url: str) -> None:
    """Neither threads nor connections outlive a storage, however it was used."""
    before = set(threading.enumerate())
    with connect(quick(hbase_url)) as storage:
        storage.admin.create(TABLE)
        write(storage, 1)
        left_open = storage.transaction()
        left_open.table("t").upsert({"k": 1, "n": 5})
        rows = storage.table("t").scan()
        next(rows)
    assert {thread for thread in threading.enumerate() if thread.name.startswith("structable")} <= before
    with pytest.raises(StorageUnavailableError):
        left_open.commit()
    with pytest.raises(StorageUnavailableError):
        list(rows)


def test_staged_runs_end_with_their_job(storage: Storage, hbase_server: Place, hbase_prefix: str) -> None:
    """A run that may still be written is left for an hour, after which its process counts as killed."""
    engine = engine_of(storage)
    owner = "00" * 16

    def pairs(*, killed: bool) -> Iterator[tuple[bytes, bytes]]:
        yield b"a", bytes(600_000)
        yield b"b", bytes(600_000)
        [run] = engine.find_runs(owner)
        assert not run.whole
        engine.drop_runs([run])
        if killed:
            raise KeyError(run)

    def rows() -> int:
        with closing(hbase_server.connection()) as connection:
            return sum(1 for _ in connection.table(f"{hbase_prefix}_staging").scan())

    other = engine.write_run("01" * 16, iter([(b"c", b"d")]))
    state = engine.write_run(owner, pairs(killed=False))
    assert [len(value) for _, value in engine.read_run(state)] == [600_000] * 2
    [run] = engine.find_runs(owner)
    assert (run.state, run.whole) == (state, True)
    assert {one.owner for one in engine.find_runs()} == {owner, "01" * 16}
    engine.drop_runs([run])
    engine.drop_runs([run])
    assert engine.find_runs(owner) == []
    with pytest.raises(RunLostError):
        list(engine.read_run(state))
    assert list(engine.read_run(other)) == [(b"c", b"d")]
    assert rows() == 3
    with pytest.raises(KeyError):
        engine.write_run(owner, pairs(killed=True))
    [run] = engine.find_runs(owner)
    engine.drop_runs([replace(run, time=run.time - 4_000)])
    assert engine.find_runs(owner) == []
    assert rows() == 3
