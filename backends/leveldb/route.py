"""How an engine reaches its database: here, or in the process that owns it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, WriteSet
from structable.spi.errors import StorageUnavailableError, TransactionConflictError

from .folder import Folder
from .native.checkpoint import copy_checkpoint
from .native.database import LocalSnapshot
from .owner.commit_markers import marker_key
from .owner.store import LocalStore

__all__ = ["OWNER_ENDED", "LocalRoute", "NoRoute", "Procedures", "Route"]

OWNER_ENDED = "the process that owned the database has ended, and the transaction's snapshot with it"
Procedures = Mapping[str, Callable[[bytes], bytes]]


class Route(ABC):
    """The way to the database. Methods promise what those of `Engine` do."""

    get: Callable[[bytes], bytes | None]
    """Returns the newest value of a key."""

    @abstractmethod
    def begin(self, read_only: bool) -> EngineSnapshot:
        """Return the newest committed state."""

    @abstractmethod
    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        """Apply a write set."""

    @abstractmethod
    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Apply a bulk commit."""

    @abstractmethod
    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        """Run a procedure in the owning process."""

    @abstractmethod
    def checkpoint(self, plan: str) -> None:
        """Make a hard-link copy of the database for a plan."""

    @abstractmethod
    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        """Tell whether a commit of a client arrived."""


class LocalRoute(Route):
    """The way of the owning process.

    Parameters
    ----------
    store : LocalStore
        The database.
    folder : Folder
        Where it lies.
    """

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
        uninterrupted(lambda: self._checkpoint(plan))

    def _checkpoint(self, plan: str) -> None:
        with self.store.commits_held():
            copy_checkpoint(self.store.path, self._folder.checkpoint(plan))

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        marker = self.store.get(marker_key(client, connection))
        return marker is not None and int.from_bytes(marker[:8], "little") >= sequence


class NoRoute(Route):
    """The way of an engine that was not started, was closed, or was inherited by a fork.

    Parameters
    ----------
    reason : str
        What to tell.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self.get = self._get

    def _fail(self) -> StorageUnavailableError:
        return StorageUnavailableError(self._reason)

    def _get(self, key: bytes) -> bytes | None:
        raise self._fail()

    def begin(self, read_only: bool) -> EngineSnapshot:
        raise self._fail()

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet, sync: bool) -> None:
        raise self._fail()

    def commit_bulk(self, bulk: BulkCommit) -> None:
        raise self._fail()

    def delegate(self, procedures: Procedures, procedure: str, argument: bytes) -> bytes:
        raise self._fail()

    def checkpoint(self, plan: str) -> None:
        raise self._fail()

    def committed(self, client: bytes, connection: int, sequence: int) -> bool:
        raise self._fail()
