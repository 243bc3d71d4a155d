"""`SystemData`: the system datasets of one store."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from structable.spi import Isolation, Storage, TableSpecification, Transaction, connect

from .coordination.fences import FENCES, Fences
from .coordination.leases import Leases
from .coordination.permits import Permits
from .coordination.watch import Watch
from .schema import check_schema, create_tables
from .session import Session
from .system.context import Context, PrefixedTables
from .system.queues import Queue
from .system.removal import remove_application, remove_namespace
from .tables import ALL_TABLES

if TYPE_CHECKING:
    from .secrets.key_providers import KeyProvider

__all__ = ["SystemData"]

Result = TypeVar("Result")
Clock = Callable[[], dt.datetime]

DEFAULT_PREFIX = "sys_"


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class SystemData:
    """The system datasets of one store. Safe to share between threads; each session belongs to one.

    Attributes
    ----------
    SPECIFICATIONS : tuple of TableSpecification
        All tables, with the default prefix.
    storage : Storage
        The store.
    leases : Leases
        Leases, one owner of a name at a time.
    permits : Permits
        Permits, which limit the holders of a pool at a time.
    fences : Fences
        Fences, in the caller's transactions.
    """

    SPECIFICATIONS: ClassVar[tuple[TableSpecification, ...]] = tuple(
        table.named(DEFAULT_PREFIX + table.name).specification for table in ALL_TABLES
    )

    def __init__(
        self,
        storage: Storage,
        *,
        prefix: str = DEFAULT_PREFIX,
        clock: Clock | None = None,
        keys: KeyProvider | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        owned: bool = False,
    ) -> None:
        self.storage = storage
        self._tables = PrefixedTables(prefix)
        self._clock = clock or _utc_now
        self._keys = keys
        self._owned = owned
        self.leases = Leases(storage, self._tables, monotonic)
        self.permits = Permits(storage, self._tables, monotonic)
        self._job_beats = Watch(monotonic)
        self.fences = Fences(self._tables[FENCES].name)

    def __repr__(self) -> str:
        return f"<system datasets {self._tables.prefix}* of {self.storage.url}>"

    @classmethod
    def open(
        cls,
        place: str | Storage,
        *,
        prefix: str = DEFAULT_PREFIX,
        clock: Clock | None = None,
        keys: KeyProvider | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Open the datasets of a store that has them.

        Parameters
        ----------
        place : str or Storage
            A URL, whose storage `close` closes; or a storage, which stays open.
        prefix : str
            What the tables' names begin with.
        clock : callable, optional
            Returns the time, an aware datetime; UTC now, if not given.
        keys : KeyProvider, optional
            The master keys, which sealed values need.
        monotonic : callable
            Returns seconds that never go back, by which leases and the beats of jobs are judged.

        Raises
        ------
        SchemaMissingError
            If the store lacks tables, fields or indexes; it lists them. Supersets are accepted.
        """
        storage = connect(place) if isinstance(place, str) else place
        owned = isinstance(place, str)
        try:
            self = cls(storage, prefix=prefix, clock=clock, keys=keys, monotonic=monotonic, owned=owned)
            check_schema(storage, self._tables)
        except BaseException:
            if owned:
                storage.close()
            raise
        return self

    @classmethod
    def create(cls, storage: Storage, prefix: str = DEFAULT_PREFIX, clock: Clock | None = None) -> None:
        """Make or extend every table, and the namespaces `system` and `default`; idempotent.

        Raises
        ------
        SchemaIncompatibleError
            If a table of the same name has other fields.
        """
        self = cls(storage, prefix=prefix, clock=clock)
        create_tables(storage, self._tables)

        def make_namespaces(s: Session) -> None:
            for name in ("default", "system"):
                if s.namespaces.get(name) is None:
                    s.namespaces.create(name)

        self.run(make_namespaces)

    @property
    def prefix(self) -> str:
        """What the tables' names begin with."""
        return self._tables.prefix

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of all tables, with the prefix."""
        return tuple(self._tables[table].name for table in ALL_TABLES)

    @contextmanager
    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Iterator[Session]:
        """Run a transaction: committed on leaving, rolled back on an exception."""
        with self.storage.transaction(isolation, read_only) as tx:
            yield self.bind(tx)

    def run(
        self,
        body: Callable[[Session], Result],
        *,
        isolation: Isolation = Isolation.SNAPSHOT,
        read_only: bool = False,
        max_attempts: int | None = None,
        deadline: float = 30.0,
    ) -> Result:
        """Run `body` in a transaction and retry it after conflicts, as `Transactional.run` does."""
        return self.storage.run(
            lambda tx: body(self.bind(tx)),
            isolation=isolation,
            read_only=read_only,
            max_attempts=max_attempts,
            deadline=deadline,
        )

    def bind(self, tx: Transaction) -> Session:
        """Return the datasets inside a transaction of the caller's."""
        return Session(self._context(tx))

    def queue(self, name: str) -> Queue:
        """Return a queue of jobs, which need not have any.

        Raises
        ------
        ValueError
            If the name is empty, or longer than 255 bytes.
        """
        return Queue(self._run_in_context, name)

    def remove_application(self, namespace: str, application: str) -> None:
        """Remove an application and all that belongs to it, running or not: its versions, state, runs and statistics.

        The newest 10,000 runs go with the rest in one transaction, and older ones before it, in transactions of their
        own. If the process is killed, a second call removes the rest. An absent application is no error.
        """
        remove_application(self._run_in_context, namespace, application)

    def remove_namespace(self, namespace: str) -> None:
        """Remove a namespace, and each row whose field `namespace` is it, in every table; else as an application."""
        remove_namespace(self._run_in_context, namespace)

    def close(self) -> None:
        """End the threads that keep leases, and close the storage if `open` connected to it; idempotent."""
        self.leases.close()
        if self._owned:
            self.storage.close()

    def _context(self, tx: Transaction) -> Context:
        return Context(tx, self._tables, self._clock, self._keys, self._job_beats)

    def _run_in_context(self, body: Callable[[Context], Result]) -> Result:
        return self.storage.run(lambda tx: body(self._context(tx)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
