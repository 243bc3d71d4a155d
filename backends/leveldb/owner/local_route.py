"""`LocalRoute`: the route of the process that owns the database."""

from __future__ import annotations

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.leveldb.folder import Folder
from structable.backends.leveldb.route import OWNER_ENDED, Procedures, Route
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, WriteSet
from structable.spi.errors import TransactionConflictError

from .commit_markers import has_committed
from .snapshot import LocalSnapshot
from .store import LocalStore

__all__ = ["LocalRoute"]


class LocalRoute(Route):
    """Calls the store directly; checkpoints go into the folder."""

    def __init__(self, store: LocalStore, folder: Folder) -> None:
        self.store = store
        self.get = store.get
        self._folder = folder

    def begin(self, read_only: bool) -> EngineSnapshot:
        return self.store.begin(read_only)

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        if snapshot is not None and not isinstance(snapshot, LocalSnapshot):
            raise TransactionConflictError(OWNER_ENDED)
        self.store.commit(snapshot, changes, sync)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self.store.commit_bulk(bulk)

    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        return procedures[procedure](argument)

    def checkpoint(self, plan: str) -> None:
        uninterrupted(lambda: self.store.copy_to(self._folder.checkpoint(plan)))

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        return has_committed(self.store, client, connection, sequence)
