"""`LocalRoute`: the route of the process that owns the database."""

from __future__ import annotations

from collections.abc import Sequence

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.folder import DatabaseFolder
from structable.backends.leveldb.route import Procedures, Route
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, WriteSet

from .commit_markers import has_committed
from .store import LocalStore


class LocalRoute(Route):
    """Calls the store directly; checkpoints go into the folder."""

    def __init__(self, store: LocalStore, folder: DatabaseFolder) -> None:
        self.store = store
        self.get = store.get
        self.begin = store.begin
        self.commit = self._commit
        self._folder = folder
        self._turns = store.turns

    def _commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        self.store.commit(snapshot, changes, sync)
        # Afterwards: a transaction that waits before its commit conflicts more often.
        if self._turns.paces:
            self._turns.wait()

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self.store.commit_bulk(bulk)

    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        return procedures[procedure](argument)

    def checkpoint(self, plan: str) -> None:
        uninterrupted(lambda: self.store.copy_to(self._folder.checkpoint(plan)))

    def compact(self, compression: str | None, keys: Sequence[bytes]) -> bool:
        return self.store.compact(compression, keys)

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        return has_committed(self.store, client, connection, sequence)
