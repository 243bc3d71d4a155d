"""`Place`: what one process has of one database folder, be it the owner or a client, and the change between the two."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import Increment, Upcalls
from structable.spi.errors import StorageUnavailableError, StructableError

from .client.client import Client
from .folder import Folder
from .native.database import CLOSED, DatabaseLockedError
from .owner.commit_markers import sweep_markers
from .owner.server import Server
from .owner.store import LocalStore
from .protocol.shared_memory import no_shared, open_shared
from .protocol.wire import ConnectionLostError, TimedOutError
from .route import LocalRoute, NoRoute, Route
from .settings import Settings
from .splits import sweep_plans

__all__ = ["INHERITED", "Participant", "Place"]

INHERITED = "this storage was inherited by a fork; connect anew in the child process"

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02
_LOCK_LINGERS = 3.0


class Participant(Protocol):
    """An engine, as its place sees it."""

    upcalls: Upcalls

    def bind(self, route: Route, shared: memoryview[int]) -> None:
        """Go this way from now on."""

    def abandon(self, reason: str) -> None:
        """End, without its place."""


class Place:
    """One folder in this process, shared by all engines on it.

    The first process that gets the folder's lock owns the database and serves the others. When the connection to the
    owner is lost, whoever notices tries the lock again, until it has it or is connected to who has.
    """

    def __init__(self, folder: Folder, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._participants: list[Participant] = []
        self._lock = threading.RLock()
        self._route: Route = NoRoute("the database was not opened yet")
        self._server: Server | None = None
        self._closing = False
        self._working: Counter[int] = Counter()
        self._work_ended = threading.Condition()
        self.shared = no_shared()

    # Joining and leaving

    @classmethod
    def join(cls, folder: Folder, settings: Settings, participant: Participant) -> Place:
        """Take part in the place of a folder, and open it if this is the first to do so in this process.

        Raises
        ------
        StorageUnavailableError, DataCorruptionError
            If it cannot be opened.
        """
        place: Place | None = None
        try:
            with _REGISTRY.lock:
                place = _REGISTRY.places.get(str(folder.path))
                if place is None:
                    place = _REGISTRY.places[str(folder.path)] = cls(folder, settings)
                place._participants.append(participant)
            with place._lock:
                if isinstance(place._route, NoRoute):
                    place._elect()
                else:
                    participant.bind(place._route, place.shared)
        except BaseException:
            if place is not None:
                place.leave(participant)
            raise
        return place

    def leave(self, participant: Participant) -> None:
        """Take part no longer, when what runs by this participant has ended; the last one closes the place.

        The last one still serves the clients' requests that are being worked at.
        """
        with _REGISTRY.lock:
            if participant not in self._participants:
                return
            last = len(self._participants) == 1
            if not last:
                with self._work_ended:
                    self._participants.remove(participant)
            elif _REGISTRY.places.get(str(self.folder.path)) is self:
                del _REGISTRY.places[
                    str(self.folder.path)
                ]  # a storage that joins from now on waits for the lock like a process
        if last:
            self._close()
        else:
            with self._work_ended:
                self._work_ended.wait_for(lambda: not self._working[id(participant)])

    def _close(self) -> None:
        self._closing = True  # a thread that waits for an owner gives up, and lets go of the lock
        with self._lock:
            try:
                route, self._route = self._route, NoRoute(CLOSED)
                server, self._server = self._server, None
                if isinstance(route, Client):
                    route.close()
                elif isinstance(route, LocalRoute):
                    self._retire(route.store, server)
            finally:
                self.folder.disown()

    def _retire(self, store: LocalStore, server: Server | None) -> None:
        """Stop serving and close the database; the lock is free afterwards even if a step fails."""
        try:
            if server is not None:
                server.stop()
        finally:
            try:
                if store.close():
                    self.folder.record_clean()
            finally:
                self.folder.disown()

    def abandon(self) -> None:
        """Let go of everything in a forked process, without touching what is the parent's."""
        self._lock = threading.RLock()
        self._work_ended = threading.Condition()
        route, self._route = self._route, NoRoute(INHERITED)
        if isinstance(route, LocalRoute):
            route.store.abandon()
        elif isinstance(route, Client):
            route.abandon()
        if self._server is not None:
            self._server.abandon()
        self.folder.disown()
        for participant in self._participants:
            participant.abandon(INHERITED)

    # Ownership

    def failover(self, lost: Route) -> Route:
        """Return the new way after one was lost: as a client of the next owner, or as the owner.

        Raises
        ------
        StorageUnavailableError
            If there is none within the time-out.
        """
        return uninterrupted(lambda: self._next_route(lost))

    def _next_route(self, lost: Route) -> Route:
        with self._lock:
            if self._route is lost:
                if isinstance(lost, Client):
                    lost.drop()
                self._elect()
            return self._route

    def _elect(self) -> None:
        """Become the owner, or a client of the owner: no matter which processes come and go meanwhile.

        Raises
        ------
        StorageUnavailableError
            If neither is possible within the time-out.
        """
        begun = time.monotonic()
        deadline = begun + self.settings.request_timeout
        pause = _FIRST_PAUSE
        while True:
            if self._closing:
                raise StorageUnavailableError(CLOSED)
            locked: DatabaseLockedError | None = None
            if self.folder.try_own():
                try:
                    self._own()
                    return
                except DatabaseLockedError as error:
                    # The lock of a process that is just ending may go a moment after its other one; or the file `lock`
                    # was removed under an owner that lives.
                    self.folder.disown()
                    locked = error
                except BaseException:
                    self.folder.disown()
                    raise
            problem = self._try_owner()
            if not problem:
                return
            if locked is not None and time.monotonic() > begun + _LOCK_LINGERS:
                raise locked
            if time.monotonic() > deadline:
                raise StorageUnavailableError(f"another process owns the database in {self.folder.path}, {problem}")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _try_owner(self) -> str:
        """Become a client of the owner; return what stands against it."""
        owner = self.folder.read_owner()
        if owner is None:
            return "which has not published its address"
        path, process = owner
        try:
            self._connect(path, process)
        except TimedOutError:
            return f"namely process {process}, and does not answer"
        except ConnectionLostError as error:
            return f"namely process {process}, and cannot be reached: {error}"
        except StorageUnavailableError as error:
            return f"namely process {process}, and cannot be used: {error}"
        return ""

    def _own(self) -> None:
        folder, settings, before = self.folder, self.settings, self._route
        try:
            create = folder.may_create()
            if create:
                folder.begin_creation()
            checked = folder.check_clean()
            shared = open_shared(folder.epoch, writable=True)
        except OSError as error:
            raise StorageUnavailableError(f"the folder {folder.path} cannot be used: {error}") from error
        store = LocalStore(folder.database, settings.database, self)
        try:
            with store.exclusive():
                # Whoever asks now waits in the store, except for this thread, which recovers through the engines.
                self._go(LocalRoute(store, folder), shared)
                store.open(create=create, checked=checked)
                if create:
                    folder.end_creation()
            with suppress(StructableError):  # remains do no harm, and the next owner tries again
                sweep_markers(store)
            sweep_plans(folder)
            self._server = Server(folder, store, self, settings.request_timeout)
            self._server.start()
        except BaseException:
            self._go(before, self.shared)
            server, self._server = self._server, None
            try:
                if server is not None:
                    server.stop()
            finally:
                store.close()
            raise

    def _connect(self, socket: str, process: int) -> None:
        try:
            shared = open_shared(self.folder.epoch, writable=False)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(str(error)) from error
        self._go(Client(self, shared, socket, process, self.settings.request_timeout), shared)

    def _go(self, route: Route, shared: memoryview[int]) -> None:
        self._route = route
        self.shared = shared
        for participant in list(self._participants):
            participant.bind(route, shared)

    # What the store and the server need from above

    def merge(self, value: bytes | None, increments: Sequence[Increment]) -> bytes:
        """Apply increments to a row."""
        return self._any_participant().upcalls.merge(value, increments)

    def recover(self) -> None:
        """Complete the bulk commits that were decided and not completed."""
        with self._at_work() as participant:
            recover = participant.upcalls.procedures.get("recover")
            if recover is not None:
                recover(b"")

    def run(self, procedure: str, argument: bytes) -> bytes:
        """Run a procedure of an engine that is open in this process."""
        with self._at_work() as participant:
            return participant.upcalls.procedures[procedure](argument)

    @contextmanager
    def _at_work(self) -> Iterator[Participant]:
        """Keep a participant from leaving."""
        with self._work_ended:
            participant = self._any_participant()
            self._working[id(participant)] += 1
        try:
            yield participant
        finally:
            with self._work_ended:
                self._working[id(participant)] -= 1
                self._work_ended.notify_all()

    def epoch_changed(self, epoch: int) -> None:
        """Tell the epoch to every engine of every process."""
        self.shared[0] = epoch

    def _any_participant(self) -> Participant:
        try:
            return self._participants[0]
        except IndexError:
            raise StorageUnavailableError(CLOSED) from None


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.places: dict[str, Place] = {}

    def after_fork(self) -> None:
        inherited, self.places, self.lock = self.places, {}, threading.Lock()
        for place in inherited.values():
            place.abandon()

    def at_exit(self) -> None:
        ended, self.places = self.places, {}  # who connects even later has a place of its own
        with ExitStack() as closing:
            for place in ended.values():
                for participant in list(place._participants):
                    closing.callback(participant.abandon, CLOSED)
                closing.callback(place._close)


_REGISTRY = _Registry()
os.register_at_fork(after_in_child=_REGISTRY.after_fork)
atexit.register(_REGISTRY.at_exit)
