"""`RoutedEngine`: the `Engine` of one storage, over the current route to its database; its settings and listeners."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import (
    BulkApplication,
    BulkCommit,
    Engine,
    EngineSnapshot,
    EngineTraits,
    Pair,
    StagedRun,
    Upcalls,
    WriteSet,
)
from structable.spi import Listener, StorageUnavailableError
from structable.spi.authors import check_timeout

from .folder import DatabaseFolder, lost_database
from .native.database import CLOSED, DatabaseOptions
from .native.format import FORMAT_KEY, format_number, format_record, format_with
from .protocol.shared_memory import cells_of, no_shared
from .route import NoRoute, Route
from .runs import StagingFolder

_LOOK = 0.005
"""Seconds between two looks of a listener."""
_UNSTARTED = NoRoute("the storage was not started")


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Settings of a process for a database folder: the options of the LevelDB backend, as its modules use them."""

    sync: bool = True  # whether a commit of this process syncs the log before it returns
    request_timeout: float = 30.0  # seconds to wait for the owning process, and for the next one when it ends
    database: DatabaseOptions = field(default_factory=DatabaseOptions)  # if this process owns the database
    create: bool = True  # whether to make a missing folder and database


class RoutedEngine(Engine):
    """The common base of all engines of a database folder."""

    traits = EngineTraits(
        BulkApplication.IN_ORDER,
        table_types=True,
        plans_hold_everything=True,
        takes_operands=True,
        keeps_versions=True,
        keeps_entries=True,
        describes_merges=True,
        times_ascend=True,
        carries_signals=True,
    )
    closed = False
    # The route's own functions: a call in between would make the read of a row 7 % slower.
    get: Callable[[bytes], bytes | None] = _UNSTARTED.get  # type: ignore[assignment]  # its parameter has no name
    begin: Callable[[bool], EngineSnapshot] = _UNSTARTED.begin  # type: ignore[assignment]

    def __init__(self, folder: Path, settings: DatabaseSettings) -> None:
        self._shared = no_shared()
        self._settings = settings
        self.folder = DatabaseFolder(folder)
        self._runs = StagingFolder(self.folder.staging)
        self.closed = self._lost = False
        self.bind(_UNSTARTED, self._shared)

    def start(self, upcalls: Upcalls) -> None:
        """Open the database.

        Raises `StoreNotFoundError` if there is none and `create` is off; `DataCorruptionError` if the folder holds
        other files, a newer format, or a damaged database.
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
        self.get, self.begin = route.get, route.begin

    @property
    def epoch(self) -> int:
        return self._shared[0]

    def signals(self, cells: Sequence[int]) -> list[int]:
        """Return the counts of cells of the shared memory."""
        shared = self._shared
        return [shared[cell] for cell in cells]

    def listen(self, channels: Sequence[str]) -> SharedListener:
        return SharedListener(self, cells_of(channels))

    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        self.route.commit(snapshot, changes, self._settings.sync)

    def commit_bulk(self, bulk: BulkCommit) -> None:
        self.route.commit_bulk(bulk)

    def exclude_older_software(self, *, feeds: bool = False) -> None:
        wanted = format_with(feeds=feeds)
        # Another process may raise it further at the same time, and it must never go back.
        with closing(self.begin(False)) as snapshot:
            if format_number(snapshot.get(FORMAT_KEY)) < wanted:
                self.route.commit(snapshot, WriteSet({FORMAT_KEY: format_record(wanted)}), True)

    def delegate(self, procedure: str, argument: bytes) -> bytes:
        return self.route.delegate(self.upcalls.procedures, procedure, argument)

    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        return self._runs.write(owner, pairs)

    def read_run(self, state: bytes) -> Iterator[Pair]:
        return self._runs.read(state)

    def check_run(self, state: bytes) -> None:
        self._runs.check(state)

    def find_runs(self, owner: str = "") -> list[StagedRun]:
        return self._runs.find(owner)

    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        self._runs.drop(runs)

    def close(self) -> None:
        uninterrupted(self._close)

    def _close(self) -> None:
        if self.closed and not self._lost:
            return
        self.closed, self._lost = True, False
        try:
            self._leave()  # until then clients may run procedures through this engine
        finally:
            self.bind(NoRoute(CLOSED), self._shared)

    def lose(self) -> None:
        """End without leaving, because the folder was removed or replaced."""
        self.closed = self._lost = True
        self.bind(NoRoute(str(lost_database(self.folder.path)), lasting=True), self._shared)

    def loss(self) -> StorageUnavailableError | None:
        return lost_database(self.folder.path) if self._lost else None

    def abandon(self, reason: str) -> None:
        """End without leaving, in a forked process or when the interpreter ends."""
        self.closed = True
        self.bind(NoRoute(reason), self._shared)


class SharedListener(Listener):
    """A listener that reads its cells every 5 ms during a `wait`, and closes with its engine.

    A new owner may map other memory: the change counts as a signal.
    """

    __slots__ = ("_cells", "_closed", "_engine", "_seen")

    def __init__(self, engine: RoutedEngine, cells: Sequence[int]) -> None:
        self._engine = engine
        self._cells = cells
        self._seen = engine.signals(cells)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._engine.closed or self._closed

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + check_timeout(timeout)
        while not self.closed:
            found = self._engine.signals(self._cells)
            if found != self._seen:
                self._seen = found
                return True
            rest = end - time.monotonic()
            if rest <= 0:
                break
            time.sleep(min(rest, _LOOK))
        return False

    def close(self) -> None:
        self._closed = True
