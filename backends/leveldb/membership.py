"""`Membership`: one process on one database folder, as the owner or a client, and the election of the next owner."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from structable.backends.base.uninterrupted import uninterrupted
from structable.backends.ordered.engine import Upcalls
from structable.spi import StorageUnavailableError, StructableError

from .client.client import Client, connect_to_owner
from .folder import DatabaseFolder, DatabaseIdentity, Pauses, lost_database
from .native.database import CLOSED, DEFAULT_COMPRESSION, DatabaseLockedError, record_compression
from .native.forked import can_own
from .owner.commit_markers import sweep_markers
from .owner.local_route import LocalRoute
from .owner.server import Server
from .owner.store import LocalStore
from .protocol.shared_memory import no_shared, open_shared, raise_every_cell
from .route import NoRoute, Route
from .routed_engine import DatabaseSettings, RoutedEngine
from .shared_traffic import SharedTraffic
from .splits import sweep_plans

INHERITED = "this storage was inherited by a fork; connect again in the child process"

_LOCK_LINGERS = 3.0
_FORKED = (
    "this one cannot: it was forked from a process that had used LevelDB, which does not work in the child; connect "
    "only in the children, or start them by 'spawn'"
)
_log = logging.getLogger("structable.leveldb")


class Membership:
    """The membership of this process in a folder, shared by all its engines on the folder.

    The first process that gets the folder's lock owns the database and serves the others. A process that loses the
    connection to the owner tries the lock again, until it has the lock or is connected to the process that has it.
    """

    def __init__(self, folder: DatabaseFolder, settings: DatabaseSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._engines: list[RoutedEngine] = []
        self.traffic = SharedTraffic()
        self._lock = threading.RLock()
        self._route: Route = NoRoute("the database was not opened yet")
        self.server: Server | None = None
        self._closing = False
        self._working: Counter[int] = Counter()
        self._work_ended = threading.Condition()
        self.shared = no_shared()
        self._identity = DatabaseIdentity(folder.database)

    @classmethod
    def join(cls, folder: DatabaseFolder, settings: DatabaseSettings, engine: RoutedEngine) -> Membership:
        """Add an engine to the membership in a folder; the first one opens the database."""
        member: Membership | None = None
        try:
            with _REGISTRY.lock:
                member = _REGISTRY.memberships.get(str(folder.path))
                if member is None:
                    member = _REGISTRY.memberships[str(folder.path)] = cls(folder, settings)
                member._engines.append(engine)
                member.traffic.join(engine)
            with member._lock:
                if isinstance(member._route, NoRoute):
                    member._elect()
                else:
                    engine.bind(member._route, member.shared)
        except BaseException:
            if member is not None:
                member.leave(engine)
            raise
        return member

    def leave(self, engine: RoutedEngine) -> None:
        """Remove an engine, once the procedures that it runs have ended; the last one closes the membership.

        The last one still finishes the clients' current requests.
        """
        with _REGISTRY.lock:
            if engine not in self._engines:
                return
            last = len(self._engines) == 1
            if not last:
                with self._work_ended:
                    self._engines.remove(engine)
                    self.traffic.leave(engine)
            elif _REGISTRY.memberships.get(str(self.folder.path)) is self:
                # An engine that joins from now on waits for the lock, like another process.
                del _REGISTRY.memberships[str(self.folder.path)]
        if last:
            self._close()
        else:
            with self._work_ended:
                self._work_ended.wait_for(lambda: not self._working[id(engine)])

    def _close(self) -> None:
        self._closing = True  # a thread that waits for an owner gives up, and releases the lock
        with self._lock:
            self._end(NoRoute(CLOSED))

    def _end(self, route: NoRoute) -> None:
        """Leave the owner, or give the database up."""
        try:
            before, self._route = self._route, route
            server, self.server = self.server, None
            if isinstance(before, Client):
                before.close()
            elif isinstance(before, LocalRoute):
                self._retire(before.store, server)
        finally:
            self.folder.disown()
            self._identity.close()

    def _retire(self, store: LocalStore, server: Server | None) -> None:
        """Stop serving and close the database; the lock is free afterwards even if a step fails."""
        try:
            if server is not None:
                server.stop()
        finally:
            try:
                # Without the lock, or in another folder, the files there may be another database's.
                if store.close() and self.folder.holds_lock and self._identity.holds_database():
                    self.folder.record_clean()
                else:
                    _log.info("the database in %s was not closed cleanly", self.folder.path)
            finally:
                self.folder.disown()
                _log.info("process %d gave up the database in %s", os.getpid(), self.folder.path)

    def abandon(self) -> None:
        """Release everything in a forked process, and leave the resources of the parent."""
        self._lock = threading.RLock()
        self._work_ended = threading.Condition()
        route, self._route = self._route, NoRoute(INHERITED)
        if isinstance(route, LocalRoute):
            route.store.abandon()
        elif isinstance(route, Client):
            route.abandon()
        if self.server is not None:
            self.server.abandon()
        self.folder.disown()
        self._identity.close()
        for engine in self._engines:
            engine.abandon(INHERITED)

    def _require_same_database(self) -> None:
        """Raise `StorageUnavailableError` if the folder is no longer the one that was opened."""
        with self.folder.usable():
            self._identity.remember()
        if not self._identity.is_there():
            self._part()
            raise lost_database(self.folder.path)

    def check_database(self) -> None:
        """Give the database up if the folder no longer holds it, in another thread: giving up ends the caller's."""
        if not self._identity.holds_database():
            threading.Thread(target=self._give_up, name="structable removed folder", daemon=True).start()

    def _give_up(self) -> None:
        with self._lock:
            if isinstance(self._route, LocalRoute):
                _log.info("gave up the database in %s, which was removed or replaced", self.folder.path)
                self._part()

    def _part(self) -> None:
        """Fail all calls of this membership from now on; the next storage that is opened begins another."""
        with _REGISTRY.lock:
            if _REGISTRY.memberships.get(str(self.folder.path)) is self:
                del _REGISTRY.memberships[str(self.folder.path)]
        for engine in list(self._engines):
            engine.lose()
        self._end(NoRoute(str(lost_database(self.folder.path)), lasting=True))

    def failover(self, lost: Route) -> Route:
        """Return the next route after one was lost: as a client of the next owner, or as the owner."""
        return uninterrupted(lambda: self._next_route(lost))

    def _next_route(self, lost: Route) -> Route:
        with self._lock:
            if self._route is lost:
                if isinstance(lost, Client):
                    _log.info("lost process %d, the owner of the database in %s", lost.process, self.folder.path)
                    lost.drop()
                self._elect()
                self._require_same_database()
            return self._route

    def _elect(self) -> None:
        """Become the owner, or a client of the owner, while other processes come and go."""
        begun = time.monotonic()
        deadline = begun + self.settings.request_timeout
        pauses = Pauses()
        may_own = can_own(self.folder.database)
        while True:
            if self._closing:
                raise StorageUnavailableError(CLOSED)
            self._require_same_database()
            locked: DatabaseLockedError | None = None
            if may_own and self.folder.try_own():
                try:
                    self._own()
                    return
                except DatabaseLockedError as error:
                    # LevelDB's own lock of an ending process may be released a moment later; or the file `lock` was
                    # removed under a living owner.
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
            if not may_own and time.monotonic() > begun + _LOCK_LINGERS and not self.folder.is_owned():
                forked = StorageUnavailableError(f"no process owns the database in {self.folder.path}, and {_FORKED}")
                forked.lasting = True
                raise forked
            if time.monotonic() > deadline:
                raise StorageUnavailableError(f"another process owns the database in {self.folder.path}, {problem}")
            pauses.pause()

    def _try_owner(self) -> str:
        """Become a client of the owner; return the problem if that fails."""
        client = connect_to_owner(self.folder, self.failover, self.settings.request_timeout, self.traffic.tallies)
        if isinstance(client, str):
            return client
        self._go(client, client.shared)
        _log.info(
            "process %d is a client of process %d, the owner of the database in %s",
            os.getpid(),
            client.process,
            self.folder.path,
        )
        return ""

    def _own(self) -> None:
        folder, settings, before = self.folder, self.settings, self._route
        with folder.usable():
            create = folder.may_create()
            if create:
                folder.begin_creation()
                record_compression(folder.database, settings.database.compression or DEFAULT_COMPRESSION)
            checked = folder.check_clean()
            shared = open_shared(folder.epoch, writable=True)
        store = LocalStore(folder.database, settings.database, shared, self.upcalls, self.recover)
        try:
            with store.committer.exclusive():
                # From now on calls wait in the store, except for this thread, which recovers through the engines.
                self._go(LocalRoute(store, folder), shared)
                store.open(create=create, checked=checked)
                raise_every_cell(shared)
                if create:
                    folder.end_creation()
            with suppress(StructableError):  # old markers are harmless, and the next owner tries again
                sweep_markers(store)
            sweep_plans(folder)
            self.server = Server(folder, store, self.run, self.check_database, settings.request_timeout)
            self.server.start()
            _log.info("process %d owns the database in %s and serves it", os.getpid(), folder.path)
        except BaseException:
            self._go(before, self.shared)
            server, self.server = self.server, None
            try:
                if server is not None:
                    server.stop()
            finally:
                store.close()
            raise

    def _go(self, route: Route, shared: memoryview[int]) -> None:
        self._route = route
        self.shared = shared
        for engine in list(self._engines):
            engine.bind(route, shared)

    def upcalls(self) -> Upcalls:
        return self._any_engine().upcalls

    def recover(self) -> None:
        """Complete the bulk commits that were decided and not completed."""
        with self._at_work() as engine:
            recover = engine.upcalls.procedures.get("recover")
            if recover is not None:
                recover(b"")

    def run(self, procedure: str, argument: bytes) -> bytes:
        with self._at_work() as engine:
            return engine.upcalls.procedures[procedure](argument)

    @contextmanager
    def _at_work(self) -> Iterator[RoutedEngine]:
        """Keep an engine from leaving."""
        with self._work_ended:
            engine = self._any_engine()
            self._working[id(engine)] += 1
        try:
            yield engine
        finally:
            with self._work_ended:
                self._working[id(engine)] -= 1
                self._work_ended.notify_all()

    def _any_engine(self) -> RoutedEngine:
        try:
            return self._engines[0]
        except IndexError:
            raise StorageUnavailableError(CLOSED) from None


class _Memberships:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memberships: dict[str, Membership] = {}

    def after_fork(self) -> None:
        inherited, self.memberships, self.lock = self.memberships, {}, threading.Lock()
        for member in inherited.values():
            member.abandon()

    def at_exit(self) -> None:
        ended, self.memberships = self.memberships, {}  # an engine that joins even later gets a membership of its own
        with ExitStack() as closing:
            for member in ended.values():
                for engine in list(member._engines):
                    closing.callback(engine.abandon, CLOSED)
                closing.callback(member._close)


_REGISTRY = _Memberships()
os.register_at_fork(after_in_child=_REGISTRY.after_fork)
atexit.register(_REGISTRY.at_exit)
