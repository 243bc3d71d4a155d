"""`ObservingEngine`: the engine of a storage that only reads, as a client of the owner, or on a private copy.

It never becomes the owner, and leaves no trace in the folder.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from structable.backends.base.traffic import Tallies
from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import Pair, RawRows, RunLostError, SharedSplits, SplitPlan, StagedRun, Upcalls
from structable.backends.ordered.storage import OrderedStorage
from structable.spi import StorageUnavailableError, StructableError, Traffic, UnsupportedOperationError

from .client.client import Client, connect_to_owner
from .folder import DatabaseFolder, DatabaseIdentity, Pauses, lost_database
from .membership import INHERITED
from .native.checkpoint import copy_checkpoint
from .native.database import CLOSED
from .owner.local_route import LocalRoute
from .owner.store import LocalStore
from .private_copies import PrivateCopy, private_folder
from .protocol.shared_memory import no_shared
from .route import NoRoute, Route
from .routed_engine import DatabaseSettings, RoutedEngine
from .splits import SharedCheckpoint, elsewhere, estimate, plan_splits, read_planned, read_rows, read_split

_ATTEMPTS = 5


class Observer:
    """The access of one read-only engine to a database folder: as a client of the owner, or through a private copy."""

    def __init__(self, engine: ObservingEngine, folder: DatabaseFolder, settings: DatabaseSettings) -> None:
        self.shared = no_shared()
        self._engine = engine
        self.folder = folder
        self._settings = settings
        self._lock = threading.RLock()
        self._route: Route = NoRoute("the database was not opened yet")
        self._copy: PrivateCopy | None = None
        self._identity = DatabaseIdentity(folder.database)
        self._closed = False
        self._accepts_losses = False
        _OPEN.add(self)

    def open(self) -> None:
        """Connect to the owner, or make a copy if there is none."""
        with self._lock:
            with self.folder.usable():
                self._identity.remember()
            self._choose()

    def failover(self, lost: Route) -> Route:
        """Return the next route after the owner was lost: to the next owner, or to a copy."""
        return uninterrupted(lambda: self._next_route(lost))

    def _next_route(self, lost: Route) -> Route:
        with self._lock:
            if self._closed:
                raise StorageUnavailableError(CLOSED)
            if self._route is lost:
                if isinstance(lost, Client):
                    lost.drop()
                if not self._identity.is_there():
                    self._engine.lose()
                    raise lost_database(self.folder.path)
                self._choose()
            return self._route

    def _choose(self) -> None:
        deadline = time.monotonic() + self._settings.request_timeout
        pauses = Pauses()
        while True:
            timeout = self._settings.request_timeout
            found = connect_to_owner(self.folder, self.failover, timeout, self._engine.tallies)
            if isinstance(found, Client):
                self._go(found, found.shared)
                return
            if not self.folder.is_owned():
                self._open_copy()
                return
            if time.monotonic() > deadline:
                raise StorageUnavailableError(f"another process owns the database in {self.folder.path}, {found}")
            pauses.pause()

    def _open_copy(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            copy: PrivateCopy | None = None
            self._accepts_losses = attempt == _ATTEMPTS
            try:
                with self.folder.usable():
                    self.folder.check_clean(keep=True)
                copy = PrivateCopy(self.folder.database)
                self.open_store(copy.path, copy.folder)
            except StructableError as error:
                if copy is not None:
                    copy.remove()
                # A process that has just opened the database may have removed files, or the staged rows of a
                # decided job; it may also have closed the database again.
                if attempt == _ATTEMPTS or not (isinstance(error, RunLostError) or self.folder.is_owned()):
                    raise
            else:
                self._copy = copy
                return

    def open_store(self, path: Path, private: DatabaseFolder) -> None:
        """Open a copy, and complete the bulk commits decided in it; `private` is for checkpoints of it."""
        before, shared = self._route, memoryview(bytearray(no_shared().nbytes)).cast("Q")
        store = LocalStore(path, self._settings.database, shared, self._upcalls, self._recover)
        try:
            with store.committer.exclusive():
                self._go(LocalRoute(store, private), shared)
                store.open(create=False)
        except BaseException:
            self._go(before, self.shared)
            store.close()
            raise

    def _go(self, route: Route, shared: memoryview[int]) -> None:
        self._route = route
        self.shared = shared
        self._engine.bind(route, shared)

    def checkpoint(self, plan: str, private: DatabaseFolder) -> None:
        with self._lock:
            route = self._route
        if isinstance(route, LocalRoute):
            route.store.copy_to(private.checkpoint(plan))
            return
        for attempt in range(1, _ATTEMPTS + 1):
            copy_checkpoint(self.folder.database, private.checkpoint(plan))
            copied = _CopiedEngine(self.folder, self._settings, private.checkpoint(plan), private)
            try:
                OrderedStorage(copied, str(self.folder.path), read_only=True).close()
            except StructableError:
                # The owner has just completed a job, and removed its rows.
                shutil.rmtree(private.checkpoint(plan), ignore_errors=True)
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _upcalls(self) -> Upcalls:
        return self._engine.upcalls

    def _recover(self) -> None:
        """Complete, in the copy, the bulk commits that were decided and not completed.

        Raises `RunLostError` if the rows of one are gone, most likely because another process has completed it.
        """
        lost: list[str] = json.loads(self._engine.upcalls.procedures["recover"](b""))
        if lost and not self._accepts_losses:
            raise RunLostError(lost[0])

    def close(self) -> None:
        """Leave the owner, or remove the copy; idempotent."""
        with self._lock:
            self._closed = True
            route, self._route = self._route, NoRoute(CLOSED)
            copy, self._copy = self._copy, None
            self._identity.close()
            if isinstance(route, Client):
                route.close()
            elif isinstance(route, LocalRoute):
                route.store.close()
            if copy is not None:
                copy.remove()

    def end(self) -> None:
        try:
            self.close()
        finally:
            self._engine.abandon(CLOSED)

    def abandon(self) -> None:
        """Release everything in a forked process, except for the parent's resources."""
        self._lock = threading.RLock()
        self._closed = True
        route, self._route = self._route, NoRoute(INHERITED)
        if isinstance(route, LocalRoute):
            route.store.abandon()
        elif isinstance(route, Client):
            route.abandon()
        self._identity.close()
        self._engine.abandon(INHERITED)


class ObservingEngine(RoutedEngine):
    """An existing database folder that is only read."""

    def __init__(self, folder: Path, settings: DatabaseSettings) -> None:
        super().__init__(folder, settings)
        self._observer: Observer | None = None
        self.tallies = Tallies()

    def traffic(self) -> Traffic:
        """Return the traffic with the process that owns the database; a copy has none."""
        return self.tallies.traffic()

    def _start(self) -> None:
        self.folder.require_database()
        self._observer = Observer(self, self.folder, self._settings)
        self._observer.open()

    def _checkpoint(self, private: DatabaseFolder, name: str) -> None:
        observer = self._observer
        if observer is None:
            raise StorageUnavailableError(CLOSED)
        uninterrupted(lambda: observer.checkpoint(name, private))

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        private = private_folder()
        plan = plan_splits(private, partial(self._checkpoint, private), lambda: self.epoch, begin, end, count)
        return SplitPlan(elsewhere(plan.states, private), plan.release, plan.epoch, plan.version)

    def share_snapshot(self) -> SharedSplits:
        private = private_folder()
        return SharedCheckpoint(private, partial(self._checkpoint, private), is_elsewhere=True)

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        private = private_folder()
        return estimate(private, partial(self._checkpoint, private), begin, end)

    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        return read_split(self.folder, state, intervals, aside=private_folder())

    def read_rows(
        self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None, *, keyed: bool
    ) -> Iterator[RawRows]:
        return read_rows(self.folder, state, intervals, keyed=keyed, aside=private_folder())

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        return read_planned(self.folder, state, keys, aside=private_folder())

    def write_run(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        raise UnsupportedOperationError("a read-only storage cannot stage rows; connect without read_only=True")

    def drop_runs(self, runs: Iterable[StagedRun]) -> None:
        """Keep the runs: they belong to writers."""

    def _leave(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()


class _CopiedEngine(ObservingEngine):
    """Opens the copy of a plan, to complete the bulk commits decided in it."""

    def __init__(self, folder: DatabaseFolder, settings: DatabaseSettings, copy: Path, private: DatabaseFolder) -> None:
        super().__init__(folder.path, settings)
        self._copied = copy
        self._private = private

    def _start(self) -> None:
        self._observer = Observer(self, self.folder, self._settings)
        self._observer.open_store(self._copied, self._private)


_OPEN: weakref.WeakSet[Observer] = weakref.WeakSet()


def _after_fork() -> None:
    for observer in list(_OPEN):
        observer.abandon()


def _at_exit() -> None:
    for observer in list(_OPEN):
        observer.end()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
