"""`LevelDBEngine`: the `Engine` of one storage, over the place that all storages of this process share on a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import (
    BulkCommit,
    Engine,
    EngineSnapshot,
    Pair,
    SplitPlan,
    Upcalls,
    WriteSet,
)

from .folder import Folder
from .membership import Place
from .native.database import CLOSED
from .protocol.shared_memory import no_shared
from .route import NoRoute, Route
from .runs import Runs
from .settings import Settings
from .splits import plan_splits, read_planned, read_split

__all__ = ["LevelDBEngine"]


class LevelDBEngine(Engine):
    """A database folder, as the owner of the database or as a client of the owner, whatever is possible.

    `start` opens the database. Whenever this process becomes the owner, there or later, the procedure "recover" is
    called with an empty argument before anybody else is served.

    Parameters
    ----------
    folder : pathlib.Path
        The folder, absolute; it is made where it is missing.
    settings : Settings
        How to use it; LevelDB's own settings are those of the first engine of this process on the folder.
    """

    plans_hold_everything = True

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._shared = no_shared()
        self._settings = settings
        self._folder = Folder(folder)
        self._runs = Runs(self._folder.staging)
        self._place: Place | None = None
        self._route: Route = NoRoute("the storage was not started")
        self._closed = False

    def start(self, upcalls: Upcalls) -> None:
        """Open the database.

        Raises
        ------
        StoreNotFoundError
            If there is no database, and none must be made.
        StorageUnavailableError
            If the folder cannot be used, or the owning process does not answer.
        DataCorruptionError
            If the folder holds something else, a newer format, or a damaged database.
        """
        super().start(upcalls)
        uninterrupted(self._start)

    def _start(self) -> None:
        if not self._settings.create:
            self._folder.require_database()
        self._folder.prepare()
        self._place = Place.join(self._folder, self._settings, self)

    def bind(self, route: Route, shared: memoryview[int]) -> None:
        """Go this way from now on."""
        self._shared = shared
        self._route = route
        # Instance attributes, for the sake of one call less on each read.
        vars(self).update(get=route.get, begin=route.begin)

    @property
    def epoch(self) -> int:
        """The number of the newest schema change in any process."""
        return self._shared[0]

    def get(self, key: bytes) -> bytes | None:
        return self._route.get(key)

    def begin(self, read_only: bool) -> EngineSnapshot:
        return self._route.begin(read_only)

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        self._route.commit(snapshot, changes, self._settings.sync)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self._route.commit_bulk(bulk)

    def delegate(self, procedure: str, argument: bytes) -> bytes:
        return self._route.delegate(self.upcalls.procedures, procedure, argument)

    def plan_splits(self, begin: bytes, end: bytes, count: int) -> SplitPlan:
        return plan_splits(self._folder, self._route.checkpoint, lambda: self.epoch, begin, end, count)

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        return read_split(self._folder, state, intervals)

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return read_planned(self._folder, state, keys)

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
        place, self._place = self._place, None
        try:
            if place is not None:
                place.leave(self)  # until then clients' requests may be worked at by this engine
        finally:
            self.bind(NoRoute(CLOSED), self._shared)

    def abandon(self, reason: str) -> None:
        """End without the place, in a forked process or when the interpreter ends."""
        self._closed = True
        self._place = None
        self.bind(NoRoute(reason), self._shared)
