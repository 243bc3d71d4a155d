"""`RoutedEngine`: the `Engine` of one storage, over the current route to the database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import BulkCommit, Engine, EngineSnapshot, Pair, Upcalls, WriteSet

from .folder import Folder
from .native.database import CLOSED
from .protocol.shared_memory import no_shared
from .route import NoRoute, Route
from .runs import Runs
from .settings import Settings

__all__ = ["RoutedEngine"]


class RoutedEngine(Engine):
    """The common base of all engines of a database folder."""

    plans_hold_everything = True

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._shared = no_shared()
        self._settings = settings
        self.folder = Folder(folder)
        self._runs = Runs(self.folder.staging)
        self._closed = False
        self.bind(NoRoute("the storage was not started"), self._shared)

    def start(self, upcalls: Upcalls) -> None:
        """Open the database.

        Raises `StoreNotFoundError` if there is none, and none must be made; `DataCorruptionError` if the folder holds
        something else, a newer format, or a damaged database.
        """
        super().start(upcalls)
        uninterrupted(self._start)

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...

    def bind(self, route: Route, shared: memoryview[int]) -> None:
        self._shared = shared
        self.route = route

    @property
    def epoch(self) -> int:
        return self._shared[0]

    def get(self, key: bytes) -> bytes | None:
        return self.route.get(key)

    def begin(self, read_only: bool) -> EngineSnapshot:
        return self.route.begin(read_only)

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        self.route.commit(snapshot, changes, self._settings.sync)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self.route.commit_bulk(bulk)

    def delegate(self, procedure: str, argument: bytes) -> bytes:
        return self.route.delegate(self.upcalls.procedures, procedure, argument)

    def write_run(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        return self._runs.write(job_id, pairs)

    def read_run(self, state: bytes) -> Iterator[Pair]:
        return self._runs.read(state)

    def check_run(self, state: bytes) -> None:
        self._runs.check(state)

    def drop_runs(self, job_id: str) -> None:
        self._runs.drop(job_id)

    def jobs_with_runs(self) -> dict[str, float]:
        return self._runs.jobs()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        uninterrupted(self._close)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._leave()  # until then clients may run procedures through this engine
        finally:
            self.bind(NoRoute(CLOSED), self._shared)

    def abandon(self, reason: str) -> None:
        """End without leaving, in a forked process or when the interpreter ends."""
        self._closed = True
        self.bind(NoRoute(reason), self._shared)
