"""`LocalStore`: the database in the process that owns it, with snapshots and ordered commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.native.checkpoint import copy_checkpoint
from structable.backends.leveldb.native.database import (
    PLYVEL_ERRORS,
    Database,
    DatabaseOptions,
    KeyChanges,
    WriteFailedError,
    translated,
)
from structable.backends.leveldb.native.format import EPOCH_KEY
from structable.backends.leveldb.native.native_guard import native_call
from structable.backends.leveldb.protocol.shared_memory import cells_of, raise_cells
from structable.backends.leveldb.route import OWNER_ENDED
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, Upcalls, WriteSet
from structable.spi import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StructableError,
    TransactionClosedError,
    TransactionConflictError,
)

from .bulk import apply_bulk
from .commit_nodes import CommitNode, check_conflicts, node_of
from .commit_versions import CommitVersions
from .committer import CommitQueue, Pending
from .database_handle import DatabaseHandle
from .history import CommitHistory
from .snapshot import LocalSnapshot, PinnedSnapshot
from .turns import Turns


class LocalStore:
    """A LevelDB database with snapshots and optimistic transactions."""

    def __init__(
        self,
        path: Path,
        options: DatabaseOptions,
        shared: memoryview[int],
        upcalls: Callable[[], Upcalls],
        recover: Callable[[], None],
    ) -> None:
        self.path = path
        self._upcalls = upcalls
        self._recover = recover
        self._shared = shared
        self._history = CommitHistory(shared)
        self._versions = CommitVersions()
        self.committer = CommitQueue(self._write_group)
        self._handle = DatabaseHandle(path, options, self.committer, self._recover_from)
        self._reads = self._handle.reads
        self.turns = Turns()
        """The pauses of this process's own transactions, which let clients catch up."""
        self.get = self._reads.get
        """Returns the newest value of a key. The function stays the same for the life of the store."""

    def open(self, *, create: bool, checked: bool = False) -> None:
        with self.committer.exclusive():
            self._handle.open(create=create, checked=checked)

    def _recover_from(self, epoch: int) -> None:
        database = self._handle.database
        assert database is not None
        self._history.begin(epoch)
        self._versions.begin(database)
        self._recover()
        self._history.settle()
        self._versions.settle(database)

    def close(self) -> bool:
        with self.committer.exclusive():
            return self._handle.close()

    def abandon(self) -> None:
        """Leave everything unchanged in a forked process."""
        self.committer = CommitQueue(self._write_group)
        self._handle.abandon(self.committer)

    def copy_to(self, target: Path) -> None:
        """Make a checkpoint of the newest committed state, see `copy_checkpoint`; commits wait for it."""
        with self.committer.exclusive():
            self._handle.healthy_database()
            copy_checkpoint(self.path, target)

    def compact(self, compression: str | None, keys: Sequence[bytes]) -> bool:
        """Rewrite table files, as `Route.compact` does, while reads and commits continue."""
        return uninterrupted(partial(self._handle.compact, compression, keys))

    @property
    def epoch(self) -> int:
        epoch = self._history.epoch
        if epoch is None:
            epoch = uninterrupted(self._settled_epoch)
        assert epoch is not None
        return epoch

    def _settled_epoch(self) -> int | None:
        with self.committer.exclusive():
            return self._history.epoch

    @property
    def syncs(self) -> bool:
        return self._handle.syncs

    @property
    def busy_with_bulk(self) -> bool:
        return self._handle.busy_with_bulk

    @native_call
    def begin(self, read_only: bool) -> LocalSnapshot:
        history = self._history
        epoch = history.epoch
        # The tail is read before the snapshot is taken, and a commit becomes the tail after its write: a commit in
        # between is counted twice, never missed.
        node = history.tail
        database = self._handle.database
        gaps = None if database is None else database.gaps
        try:
            raw = self._reads.take()
        except PLYVEL_ERRORS as error:
            raise translated(error) from error
        if epoch is None or history.epoch is not epoch or database is None or self._handle.database is not database:
            del raw
            return uninterrupted(partial(self._begin_alone, read_only))
        # A write removes the gaps that it fills before it is visible: unchanged gaps are valid in this snapshot.
        known = gaps if database.gaps is gaps else None
        return LocalSnapshot(raw, database.readers, None if read_only else node, epoch, known)

    def _begin_alone(self, read_only: bool) -> LocalSnapshot:
        with self.committer.exclusive():
            self._handle.sound_database()
            return self.begin(read_only)

    def count_commits(self) -> None:
        self._history.count_commits()

    def begin_unread(self, number: int) -> LocalSnapshot:
        """Return a snapshot at the commit with this number, only to commit: it cannot be read, and costs nothing."""
        return LocalSnapshot.unread(self._history.find(number), self.epoch)

    def begin_pinned(self, number: int) -> PinnedSnapshot:
        """Return a snapshot pinned to the commit with this number; may wait for a commit."""
        base = self._history.find(number)
        # While no commit is being written, every commit that the snapshot shows is in the history.
        with self.committer.exclusive():
            if not self._handle.is_ailing():
                self._history.settle()
            snapshot, last = self.begin(False), self._history.tail
            return PinnedSnapshot(snapshot, base, last)

    def commit(
        self,
        snapshot: EngineSnapshot | None,
        changes: WriteSet,
        sync: bool,
        marker: dict[bytes, bytes | None] | None = None,
    ) -> None:
        handle = self._handle
        if not (sync or handle.noted_unsynced):
            uninterrupted(self._note_unsynced)
        node: CommitNode | None = None
        if snapshot is not None:
            if not isinstance(snapshot, LocalSnapshot):
                raise TransactionConflictError(OWNER_ENDED)
            node = snapshot.node
            if node is None:
                raise TransactionClosedError("the snapshot was closed, or was taken for reading only")
        committer = self.committer
        right, queue = committer.right, committer.queue
        if queue or right.locked() or (sync and committer.crowd > 1) or changes.changed_spaces:
            self._commit_in_turn(Pending(node, changes, sync, marker))
            return
        try:
            with right:
                database = handle.database if handle.ailing is None else None
                if self._history.unsettled is not None and handle.is_ailing():
                    database = None
                if database is not None:
                    self._write_alone(database, node, changes, sync, marker)
        finally:
            if queue:
                committer.wake()
        if database is None:  # it must be reopened first
            self._commit_in_turn(Pending(node, changes, sync, marker))

    def _note_unsynced(self) -> None:
        with self.committer.exclusive():
            self._handle.note_unsynced()

    def _commit_in_turn(self, pending: Pending) -> None:
        uninterrupted(partial(self.committer.commit, pending))

    def _write_alone(
        self,
        database: Database,
        node: CommitNode | None,
        changes: WriteSet,
        sync: bool,
        marker: dict[bytes, bytes | None] | None,
    ) -> None:
        history, handle = self._history, self._handle
        if history.unsettled is not None:
            history.settle()
        tail, writes, derived = history.tail, changes.writes, changes.derived
        if node is not None and node is not tail:
            check_conflicts(node.next, changes)
        # Before the write, because an interruption may follow it: the next synced commit must then also sync this one.
        if not sync:
            handle.unsynced = True
        elif handle.unsynced:
            handle.sync_earlier()
        appends = changes.appends
        if changes.increments:
            merged, appends = self._merged(database, {}, changes)
            writes = {**writes, **merged}
        parts: tuple[KeyChanges, ...] = (writes,) if marker is None else (writes, marker)
        if derived:
            parts = (*parts, derived)
        if appends:
            parts = (*parts, self._versions.stamped(appends))
        step = node_of(changes) if derived or changes.increments else CommitNode(frozenset(writes))
        # Also before the write: if an interruption follows it, the next commit settles this one.
        history.unsettled = step
        try:
            if len(parts) == 1 and len(writes) < 2:
                for key, value in writes.items():  # without a batch: 2 us instead of 3
                    if value is None:
                        database.write(parts, sync)
                    else:
                        database.put(key, value, sync)
            else:
                database.write(parts, sync)
        except WriteFailedError as failure:
            raise self._write_failed(failure, parts) from failure
        # In this order: the list is linked before its tail moves, and `settle` skips a step that is the tail.
        tail.next = history.tail = step
        if history.numbers is not None:
            history.numbers.append(step)
        history.unsettled = None
        if changes.signals:
            self._signal(changes.signals)
        if database.readers.slow_heads:
            database.find_gap()

    def _write_failed(self, failure: WriteFailedError, parts: Iterable[KeyChanges]) -> StructableError:
        error = self._handle.failed(failure, parts)
        if not isinstance(error, CommitOutcomeUnknownError):
            self._history.unsettled = None
        return error

    def _write_group(self, group: list[Pending]) -> None:
        history, handle = self._history, self._handle
        try:
            database = handle.healthy_database()
        except StructableError as error:
            for member in group:
                member.error = error
            return
        parts: list[KeyChanges] = []
        values: dict[bytes, bytes | None] = {}
        if history.unsettled is not None:
            history.settle()
        first: CommitNode | None = None
        last: CommitNode | None = None
        before = history.epoch
        assert before is not None
        epoch, sync = before, False
        signals: set[str] = set()
        for member in group:
            changes = member.changes
            try:
                if member.node is not None:
                    check_conflicts(member.node.next, changes)
                    check_conflicts(first, changes)
                merged: KeyChanges | None = None
                appends = changes.appends
                if changes.increments:
                    merged, appends = self._merged(database, values, changes)
            except Exception as error:
                member.error = error
                continue
            signals.update(changes.signals)
            mine = [part for part in (changes.writes, changes.derived, merged, member.marker) if part]
            if changes.changed_spaces:
                epoch += 1
                mine.append({EPOCH_KEY: epoch.to_bytes(8, "big")})
            if mine or appends:
                parts += mine
                sync = sync or member.sync
                for part in mine if len(group) > 1 else ():
                    values.update(part)
                if appends:
                    parts.append(self._versions.stamped(appends))
                step = node_of(changes)
                if last is None:
                    first = step
                else:
                    last.next = step
                last = step
        if last is None:
            self._signal(signals)
            return
        if not sync:
            handle.unsynced = True
        elif handle.unsynced:
            try:
                handle.sync_earlier()
            except StorageUnavailableError as error:
                for member in group:
                    member.error = member.error or StorageUnavailableError(*error.args)
                return
        if epoch != before:
            history.epoch = None  # `begin` waits: it must not pair the old epoch with the new state
        history.unsettled = first  # before the write, as in `_write_alone`
        try:
            database.write(parts, sync)
        except WriteFailedError as failure:
            history.epoch = before
            outcome = self._write_failed(failure, parts)
            for member in group:
                member.error = member.error or type(outcome)(*outcome.args)
            return
        history.append(first, last, epoch)
        history.unsettled = None
        self._signal(signals)
        if database.readers.slow_heads and not handle.frozen:
            database.find_gap()

    def _merged(
        self, database: Database, values: dict[bytes, bytes | None], changes: WriteSet
    ) -> tuple[dict[bytes, bytes | None], dict[bytes, list[bytes]]]:
        """Return the merged rows of a commit, and all entries that it appends to feeds."""
        merged: dict[bytes, bytes | None] = {}
        images: dict[bytes, list[bytes]] = {}
        upcalls = self._upcalls()
        merge, check, describe = upcalls.merge, upcalls.check, upcalls.describe
        for key, steps in changes.increments.items():
            before = values[key] if key in values else database.get(key)
            merged[key] = after = merge(before, steps)
            check(key, after, steps)
            if changes.appends and (described := describe(key, before, after, steps)) is not None:
                feed, payload = described
                images.setdefault(feed, []).append(payload)
        if not changes.appends:
            return merged, changes.appends
        appends = {feed: [*some, *images.get(feed, ())] for feed, some in changes.appends.items()}
        return merged, {feed: some for feed, some in appends.items() if some}

    def commit_bulk(self, bulk: BulkCommit) -> None:
        uninterrupted(partial(self._commit_bulk, bulk))

    def _commit_bulk(self, bulk: BulkCommit) -> None:
        with self.committer.exclusive():
            apply_bulk(self._handle, self._history, self._versions, bulk)
            self._signal(bulk.signals)

    def _signal(self, channels: Iterable[str]) -> None:
        """Wake the listeners of channels, in every process; for the thread that commits."""
        raise_cells(self._shared, cells_of(channels))
