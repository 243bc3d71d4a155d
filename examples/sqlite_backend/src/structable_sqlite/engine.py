"""`SQLiteEngine`: structable's `Engine` over a `Database`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered import (
    BulkApplication,
    BulkCommit,
    Engine,
    EngineSnapshot,
    EngineTraits,
    Pair,
    RunLostError,
    SharedSplits,
    SplitPlan,
    StagedRun,
    WriteSet,
)
from structable.spi import CommitOutcomeUnknownError, TransactionClosedError, TransactionConflictError

from .database import Database
from .errors import primary_code, translated
from .pair_files import drop_runs, find_runs, make_plan, read_pairs, write_run
from .snapshot import SQLiteSnapshot

_CHANGED = "SELECT changed FROM pairs WHERE key = ?"
_WRITTEN = "SELECT written FROM pairs WHERE key = ?"
_CHANGED_BETWEEN = "SELECT count(*), max(changed) FROM pairs WHERE key >= ? AND key < ?"
_SPACE_CHANGED = "SELECT changed FROM spaces WHERE space = ?"


class SQLiteEngine(Engine):
    """The ordered map in the table `pairs` of a database."""

    traits = EngineTraits(BulkApplication.AT_ONCE)

    def __init__(self, database: Database) -> None:
        self._database = database
        self._files = Path(f"{database.path}.structable")
        self._commit_lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Number of the newest schema change: read each time, as any process may have made one."""
        with self._database.connection() as connection:
            return int(connection.execute("SELECT epoch FROM state").fetchone()[0])

    def get(self, key: bytes) -> bytes | None:
        with self._database.connection() as connection:
            row = connection.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def begin(self, read_only: bool) -> SQLiteSnapshot:
        return SQLiteSnapshot(self._database)

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        uninterrupted(partial(self._write_changes, snapshot, changes))

    def _write_changes(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        with self._commit() as (writer, number):
            if snapshot is not None:
                assert isinstance(snapshot, SQLiteSnapshot)
                if snapshot.number != number - 1:
                    _validate(snapshot.connection, writer, changes)
                snapshot.close()  # now: while it is open, SQLite cannot restart its WAL file
            for key, increments in changes.increments.items():
                row = writer.execute("SELECT written, value FROM pairs WHERE key = ?", (key,)).fetchone()
                written, value = row or (number, None)
                merged = self.upcalls.merge(value, increments)
                self.upcalls.check(key, merged, increments)
                pair = (key, number, written, merged)
                writer.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?, ?)", pair)
            _write(writer, number, changes.writes)
            _write(writer, number, changes.derived)
            if changes.changed_spaces:
                spaces = [(space, number) for space in changes.changed_spaces]
                writer.executemany("INSERT OR REPLACE INTO spaces VALUES (?, ?)", spaces)
                writer.execute("UPDATE state SET epoch = epoch + 1")

    def commit_bulk(self, bulk: BulkCommit) -> None:
        uninterrupted(partial(self._write_bulk, bulk))

    def _write_bulk(self, bulk: BulkCommit) -> None:
        # Begun before taking the lock: the threads that hold all other snapshots may be waiting for the lock.
        with closing(self.begin(True)) as latest, self._commit() as (writer, number):
            latest.renew()
            bulk.check(latest)
            for changes, _, _ in bulk.chunks(latest):
                _write(writer, number, changes)
            _write(writer, number, bulk.completion)
            latest.close()

    @contextmanager
    def _commit(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """Block the commits of all processes; yield the connection to write with, and the number of this commit."""
        with self._commit_lock, translated(self._database.path):
            self._database.require_open()
            writer = self._database.writer
            writer.execute("BEGIN IMMEDIATE")
            try:
                (number,) = writer.execute("SELECT number + 1 FROM state").fetchone()
                writer.execute("UPDATE state SET number = ?", (number,))
                yield writer, number
                _finish(writer)
            except BaseException:
                writer.rollback()
                raise

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        with closing(self.begin(True)) as snapshot:
            return CopiedSplits(self._files, snapshot).plan_splits(begin, end, count)

    def share_snapshot(self) -> SharedSplits:
        return CopiedSplits(self._files, self.begin(True))

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        """Count: SQLite keeps no sizes, and walks through rows fast."""
        with closing(self.begin(True)) as snapshot, translated(self._files):
            query = "SELECT count(*), sum(length(key) + length(value)) FROM pairs WHERE key >= ? AND key < ?"
            pairs, size = snapshot.connection.execute(query, (begin, end)).fetchone()
            return pairs, size or 0

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        first, after, path = state.decode().split(":", 2)
        if not Path(path).exists():
            raise TransactionClosedError("the plan of this split was closed, and its snapshot with it")
        pairs = read_pairs(Path(path), int(first), int(after))
        if intervals is None:
            return pairs
        return (pair for pair in pairs if any(begin <= pair[0] < end for begin, end in intervals))

    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        with translated(self._files):
            return str(write_run(self._files / "runs", owner, pairs)).encode()

    def read_run(self, state: bytes) -> Iterator[Pair]:
        path = Path(state.decode())
        if not path.exists():
            raise RunLostError("the staged rows are gone")
        return read_pairs(path)

    def find_runs(self, owner: str = "") -> list[StagedRun]:
        return find_runs(self._files / "runs", owner)

    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        drop_runs(runs)

    @property
    def closed(self) -> bool:
        """Whether the engine was closed, or inherited through a fork."""
        return self._database.closed

    def close(self) -> None:
        if not self.closed:
            uninterrupted(self._close)

    def _close(self) -> None:
        with self._commit_lock:
            self._database.close()


class CopiedSplits(SharedSplits):
    """Plans of one snapshot: each copies the pairs that it divides."""

    def __init__(self, files: Path, snapshot: SQLiteSnapshot) -> None:
        self._files = files
        self.snapshot: SQLiteSnapshot = snapshot

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        with translated(self._files):
            return make_plan(self._files / "plans", self.snapshot.scan(begin, end), count, self.snapshot.epoch)

    def release(self) -> None:
        self.snapshot.close()


def _validate(snapshot: sqlite3.Connection, newest: sqlite3.Connection, changes: WriteSet) -> None:
    """Compare the dependencies of a write set in its snapshot and in the newest state.

    The snapshot is still open, so it serves as its own history: no log of commits must be kept, shared and pruned.
    """

    def require_same(query: str, parameters: tuple[bytes, ...], what: str) -> None:
        if snapshot.execute(query, parameters).fetchone() != newest.execute(query, parameters).fetchone():
            raise TransactionConflictError(f"another transaction {what}, and was first to commit")

    for space in changes.spaces:
        require_same(_SPACE_CHANGED, (space,), "changed or dropped a table that this one uses")
    for key in changes.writes:
        require_same(_CHANGED, (key,), "wrote a row that this one writes")
    for key in changes.increments:
        require_same(_WRITTEN, (key,), "wrote a row that this one increments")
    for key in changes.reads.keys if changes.reads else ():
        require_same(_CHANGED, (key,), "wrote a row that this one has read")
    for interval in changes.reads.intervals if changes.reads else ():
        # An inserted or changed pair has the highest number of all; a deleted pair is missing in the count.
        require_same(_CHANGED_BETWEEN, interval, "wrote in a range that this one has read")


def _write(writer: sqlite3.Connection, number: int, changes: Mapping[bytes, bytes | None]) -> None:
    gone = [(key,) for key, value in changes.items() if value is None]
    kept = [(key, number, number, value) for key, value in changes.items() if value is not None]
    writer.executemany("DELETE FROM pairs WHERE key = ?", gone)
    writer.executemany("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?, ?)", kept)


def _finish(writer: sqlite3.Connection) -> None:
    try:
        writer.execute("COMMIT")
    except sqlite3.Error as error:
        if primary_code(error) != sqlite3.SQLITE_IOERR:
            raise  # the disk is full, or the like: the commit's last page was certainly not written
        raise CommitOutcomeUnknownError(f"the disk failed as the commit was written to it: {error}") from error
