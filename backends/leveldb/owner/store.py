"""`LocalStore`: the database in the process that owns it, with snapshots and ordered commits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.native.database import (
    PLYVEL_ERRORS,
    Database,
    DatabaseOptions,
    LocalSnapshot,
    RawSnapshot,
    WriteFailedError,
    translated,
)
from structable.backends.leveldb.native.format import EPOCH_KEY
from structable.backends.leveldb.native.log import sync_logs
from structable.backends.leveldb.native.native_guard import border
from structable.backends.ordered.engine import BulkCommit, WriteSet
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StructableError,
    TransactionClosedError,
)

from .commit_numbers import PlaceLostError, RecentCommits
from .committer import Pending
from .history import BulkNode, CommitNode, check_conflicts, node_of
from .keeper import Changes, DatabaseKeeper, StoreHooks
from .pinned_snapshot import LateSnapshot

__all__ = ["LocalStore", "StoreHooks"]


class LocalStore(DatabaseKeeper):
    """A LevelDB database with snapshots and optimistic transactions.

    Parameters
    ----------
    path : pathlib.Path
        The folder of the LevelDB files.
    options : DatabaseOptions
        How LevelDB works.
    hooks : StoreHooks
        What it needs from above.
    """

    def __init__(self, path: Path, options: DatabaseOptions, hooks: StoreHooks) -> None:
        super().__init__(path, options, hooks)
        self._tail = CommitNode()
        self._recent: RecentCommits | None = None
        self._unsynced = False
        """Whether commits were written, perhaps to an earlier log, that were not synced."""
        self._unsettled: CommitNode | None = None
        """The first of the commits that may have been written, and are not in the history yet."""
        self.get = self._access.get
        """Returns the newest value of a key. It stays the same function for the life of the store."""

    # Reading

    @border
    def begin(self, read_only: bool) -> LocalSnapshot:
        """Return a snapshot of the newest committed state."""
        epoch = self._epoch
        # The tail before the snapshot, and a commit's node after its write: so a commit between the two is seen twice
        # rather than never.
        node = self._tail
        try:
            raw = self._access.take()
        except PLYVEL_ERRORS as error:
            raise translated(error) from error
        database = self._database
        if epoch is None or self._epoch is not epoch or database is None:
            del raw
            return uninterrupted(partial(self._begin_alone, read_only))
        return LocalSnapshot(raw, database.gate, None if read_only else node, epoch)

    def _begin_alone(self, read_only: bool) -> LocalSnapshot:
        with self._committer.exclusive():
            if self._database is None:
                self._heal()
            return self.begin(read_only)

    # Reading, for clients

    def count_commits(self) -> None:
        """Number commits from now on, in shared memory, for clients to note; by one thread at a time."""
        if self._recent is None:
            self._recent = RecentCommits(self._hooks.shared, self._tail)

    def _place(self, number: int) -> CommitNode:
        node = None if self._recent is None else self._recent.find(number)
        if node is None:
            raise PlaceLostError("the transaction began too many commits ago, or under an owner that has ended")
        return node

    def begin_unread(self, number: int) -> LocalSnapshot:
        """Return the snapshot of a client that noted a number, for a commit: it cannot be read, and costs nothing.

        Raises
        ------
        PlaceLostError
            If the commit of that number is not known.
        """
        return LocalSnapshot.unread(self._place(number), self.epoch)

    def begin_late(self, number: int) -> LocalSnapshot:
        """Return the snapshot of a client that noted a number, to be read; it may wait for a commit.

        Raises
        ------
        PlaceLostError
            If the commit of that number is not known. The snapshot's reads raise it, too: see `LateSnapshot`.
        """
        place = self._place(number)
        # Nobody is writing now: every commit that the snapshot shows is in the history.
        with self._committer.exclusive():
            if not self._is_ailing():
                self._settle()
            snapshot, last = self.begin(False), self._tail
            return LateSnapshot(snapshot, place, last)

    # Committing

    def commit(
        self,
        snapshot: LocalSnapshot | None,
        changes: WriteSet,
        sync: bool,
        marker: dict[bytes, bytes | None] | None = None,
    ) -> None:
        """Commit a write set as `Engine.commit` does.

        Parameters
        ----------
        snapshot : LocalSnapshot or None
            What it is based on.
        changes : WriteSet
            What to write.
        sync : bool
            Whether to sync the log.
        marker : dict, optional
            Written along with it.
        """
        if not (sync or self._noted_unsynced):
            uninterrupted(self._note_unsynced)
        node: CommitNode | None = None
        if snapshot is not None:
            node = snapshot.node
            if node is None:
                raise TransactionClosedError("the snapshot was closed, or was taken for reading only")
        committer = self._committer
        right, queue = committer.right, committer.queue
        if queue or right.locked() or (sync and committer.crowd > 1) or changes.changed_spaces:
            self._commit_in_turn(Pending(node, changes, sync, marker))
            return
        try:
            with right:
                database = self._database if self._ailing is None else None
                if self._unsettled is not None and self._is_ailing():
                    database = None
                if database is not None:
                    self._write_alone(database, node, changes, sync, marker)
        finally:
            if queue:
                committer.wake()
        if database is None:  # it has to be opened again first
            self._commit_in_turn(Pending(node, changes, sync, marker))

    def _commit_in_turn(self, pending: Pending) -> None:
        uninterrupted(partial(self._committer.commit, pending))

    def _write_alone(
        self,
        database: Database,
        node: CommitNode | None,
        changes: WriteSet,
        sync: bool,
        marker: dict[bytes, bytes | None] | None,
    ) -> None:
        if self._unsettled is not None:
            self._settle()
        tail, writes, derived = self._tail, changes.writes, changes.derived
        if node is not None and node is not tail:
            check_conflicts(node.next, changes)
        if not sync:
            self._unsynced = True
        elif self._unsynced:
            self._sync_earlier()
        if changes.increments:
            writes = {**writes, **self._merged(database, {}, changes)}
        parts: tuple[Changes, ...] = (writes,) if marker is None else (writes, marker)
        if derived:
            parts = (*parts, derived)
        step = node_of(changes) if derived or changes.increments else CommitNode(frozenset(writes))
        self._unsettled = step
        try:
            if len(parts) == 1 and len(writes) < 2:
                for key, value in writes.items():  # without a batch it is faster
                    if value is None:
                        database.write(parts, sync)
                    else:
                        database.put(key, value, sync)
            else:
                database.write(parts, sync)
        except WriteFailedError as failure:
            raise self._write_failed(failure, parts) from failure
        tail.next = self._tail = step
        if self._recent is not None:
            self._recent.append(step)
        self._unsettled = None

    def _sync_earlier(self) -> None:
        """Sync what was committed without: LevelDB syncs the newest log alone, and a gap in one ends all later ones."""
        try:
            sync_logs(self.path)
        except OSError as error:
            raise StorageUnavailableError(
                f"nothing was committed, for earlier commits could not be synced: {error}"
            ) from error
        self._unsynced = False

    def _settle(self) -> None:
        first = self._unsettled
        if first is None:
            return
        last = first
        while last.next is not None:
            last = last.next
        if last is not self._tail:
            self._append(first, last, self._epoch)
        self._unsettled = None

    def _write_failed(self, failure: WriteFailedError, parts: Iterable[Changes]) -> StructableError:
        error = self._failed(failure, parts)
        if not isinstance(error, CommitOutcomeUnknownError):
            self._unsettled = None
        return error

    def _write_group(self, group: list[Pending]) -> None:
        try:
            if self._is_ailing():
                self._heal()
            database = self._sound_database()
        except StructableError as error:
            for member in group:
                member.error = error
            return
        parts: list[Changes] = []
        values: dict[bytes, bytes | None] = {}
        if self._unsettled is not None:
            self._settle()
        first: CommitNode | None = None
        last: CommitNode | None = None
        before = self._epoch
        assert before is not None
        epoch, sync = before, False
        for member in group:
            changes = member.changes
            try:
                if member.node is not None:
                    check_conflicts(member.node.next, changes)
                    check_conflicts(first, changes)
                merged = self._merged(database, values, changes) if changes.increments else None
            except Exception as error:
                member.error = error
                continue
            mine = [part for part in (changes.writes, changes.derived, merged, member.marker) if part]
            if changes.changed_spaces:
                epoch += 1
                mine.append({EPOCH_KEY: epoch.to_bytes(8, "big")})
            if mine:
                parts += mine
                sync = sync or member.sync
                for part in mine if len(group) > 1 else ():
                    values.update(part)
                step = node_of(changes)
                if last is None:
                    first = step
                else:
                    last.next = step
                last = step
        if last is None:
            return
        if not sync:
            self._unsynced = True
        elif self._unsynced:
            try:
                self._sync_earlier()
            except StorageUnavailableError as error:
                for member in group:
                    member.error = member.error or StorageUnavailableError(*error.args)
                return
        if epoch != before:
            self._epoch = None  # `begin` waits: it must not pair the old epoch with the new state
        self._unsettled = first
        try:
            database.write(parts, sync)
        except WriteFailedError as failure:
            self._epoch = before
            outcome = self._write_failed(failure, parts)
            for member in group:
                member.error = member.error or type(outcome)(*outcome.args)
            return
        self._append(first, last, epoch)
        self._unsettled = None

    def _append(self, first: CommitNode | None, last: CommitNode, epoch: int | None) -> None:
        if epoch is not None and epoch != self._epoch:
            self._hooks.epoch_changed(epoch)
        self._tail.next = first
        self._tail = last
        self._epoch = epoch
        recent, node = self._recent, first
        while recent is not None and node is not None:
            recent.append(node)
            node = node.next

    def _merged(
        self, database: Database, values: dict[bytes, bytes | None], changes: WriteSet
    ) -> dict[bytes, bytes | None]:
        merged: dict[bytes, bytes | None] = {}
        for key, increments in changes.increments.items():
            newest = values[key] if key in values else database.get(key)
            merged[key] = self._hooks.merge(newest, increments)
        return merged

    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Apply a bulk commit as `Engine.commit_bulk` does."""
        uninterrupted(partial(self._commit_bulk, bulk))

    def _commit_bulk(self, bulk: BulkCommit) -> None:
        with self._committer.exclusive():
            if self._is_ailing():
                self._heal()
            database = self._sound_database()
            self._settle()
            raw = database.take()
            latest = LocalSnapshot(raw, database.gate, self._tail, self.epoch)
            try:
                bulk.check(latest)
                self._freeze(raw)
                self._write_bulk(database, bulk, latest)
            finally:
                latest.close()

    def _freeze(self, raw: RawSnapshot) -> None:
        if not self._recovering:  # then nobody reads yet
            self._frozen = True
            try:
                self._access.freeze(raw)
            except BaseException:
                self._thaw()
                raise

    def _write_bulk(self, database: Database, bulk: BulkCommit, latest: LocalSnapshot) -> None:
        try:
            if bulk.decision:
                database.write((bulk.decision,), True)
        except WriteFailedError as failure:
            error = self._failed(failure, [bulk.decision])
            self._thaw()
            raise error from failure
        node = BulkNode()
        node.note(bulk.decision)
        synced_before = not self._noted_unsynced
        try:
            self._note_unsynced()
            self._unsynced = True
            for chunk in bulk.chunks(latest):
                database.write((chunk,), False)
                node.note(chunk)
            node.note(bulk.completion)
            sync_logs(self.path)
            self._unsynced = False
            database.write((bulk.completion,), True)
            if synced_before:
                self._all_synced()
        except BaseException as error:
            # The decision stands, and a part of the chunks: reads stay with the state before it, until the database was
            # reopened and recovered.
            self._ailing = StorageUnavailableError(
                f"the database has to be reopened after a bulk commit failed: {error}"
            )
            # Whatever was written counts from then on; what was not, when recovery has written it.
            self._unsettled = _ended(node)
            if isinstance(error, Exception):
                raise CommitOutcomeUnknownError(
                    "the bulk commit was decided, and writing it failed; what is missing of it, if anything, follows "
                    f"when the database can be written: {error}"
                ) from error
            raise
        self._thaw()
        self._unsettled = _ended(node)
        self._settle()


def _ended(node: BulkNode) -> BulkNode:
    """Seal a node, and put an empty one behind it: so the large one goes with the last snapshot before it."""
    node.seal()
    node.next = CommitNode()
    return node
