"""`SystemData`: the system datasets of one store."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar
from weakref import WeakSet

from structable.spi import Isolation, Storage, TableNotFoundError, TableSpecification, Transaction, connect

from .coordination.beats import Watch
from .coordination.fences import Fences
from .coordination.leases import Leases
from .coordination.permits import Permits
from .errors import SchemaMissingError
from .messaging.consumer import Consumer, consumer_of
from .messaging.reading import document_of
from .messaging.topics import Topics
from .records.record_table import PrefixedTables
from .session import Session
from .system.context import Context
from .system.job_moves import run_body, signal_late
from .system.messages import GroupSource, Message
from .system.queues import Queue
from .system.removal import remove_application, remove_namespace
from .tables import ALL_TABLES
from .tables.coordination import FENCES

if TYPE_CHECKING:
    from .secrets.key_providers import KeyProvider

Body = TypeVar("Body")
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
    topics : Topics
        Topics, and the groups that read them.
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
        self.topics = Topics(storage, self._context, prefix)
        self._group_beats = Watch(monotonic)
        self._consumers: WeakSet[Consumer[Any]] = WeakSet()

    def __repr__(self) -> str:
        return f"<system datasets {self._tables.prefix}* of {self.storage.url}>"

    @classmethod
    def open(
        cls,
        store: str | Storage,
        *,
        prefix: str = DEFAULT_PREFIX,
        clock: Clock | None = None,
        keys: KeyProvider | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Open the datasets of a store that has them.

        Parameters
        ----------
        store : str or Storage
            A URL, whose storage `close` closes; or a storage, which stays open.
        prefix : str
            The prefix of the tables' names.
        clock : callable, optional
            Returns the time, an aware datetime; UTC now, if not given.
        keys : KeyProvider, optional
            The master keys, which sealed values need.
        monotonic : callable
            Returns seconds that never go back; the clock for leases, and for the beats of jobs and groups.

        Raises
        ------
        SchemaMissingError
            If the store lacks tables, fields or indexes; it lists them. Supersets are accepted.
        """
        storage = connect(store) if isinstance(store, str) else store
        owned = isinstance(store, str)
        try:
            self = cls(storage, prefix=prefix, clock=clock, keys=keys, monotonic=monotonic, owned=owned)
            _check_schema(storage, self._tables)
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
        _create_tables(storage, self._tables)

        def make_namespaces(s: Session) -> None:
            for name in ("default", "system"):
                if s.namespaces.get(name) is None:
                    s.namespaces.create(name)

        self.run(make_namespaces)

    @property
    def prefix(self) -> str:
        """The prefix of the tables' names."""
        return self._tables.prefix

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of all tables, with the prefix."""
        return tuple(self._tables[table].name for table in ALL_TABLES)

    @contextmanager
    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Iterator[Session]:
        """Run a transaction: committed on leaving, rolled back on an exception."""
        with self.storage.transaction(isolation, read_only) as tx:
            context = self._context(tx)
            yield Session(context)
            signal_late(context)

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
            lambda tx: run_body(self._context(tx), lambda context: body(Session(context))),
            isolation=isolation,
            read_only=read_only,
            max_attempts=max_attempts,
            deadline=deadline,
        )

    def bind(self, tx: Transaction) -> Session:
        """Return the datasets inside a transaction of the caller's.

        Its commit wakes the workers of each queue with new READY jobs, also for jobs that are due later.
        """
        context = self._context(tx)
        context.delayed = None
        return Session(context)

    def queue(self, name: str) -> Queue:
        """Return a queue of jobs; it may be empty.

        Raises
        ------
        ValueError
            If the name is empty, or longer than 255 bytes.
        """
        return Queue(self._run_in_context, self._run_at_once, name)

    def consumer(
        self,
        topic: GroupSource[Body],
        *,
        group: str,
        start: Literal["first", "end"] = "first",
        max_attempts: int = 10,
        on_lost: Literal["raise", "skip"] = "raise",
        ttl: int = 15,
    ) -> Consumer[Body]:
        """Return a member of a group, which reads a topic or the feed of any table. Close it after use.

        Parameters
        ----------
        topic : Topic or Feed
            The topic or feed to read.
        group : str
            The group. Each group gets every message; of its members, one at a time is active.
        start : {"first", "end"}
            The start of a new group: the earliest message that is kept, or behind the latest.
        max_attempts : int
            The number of failures after which a message goes to the dead letters.
        on_lost : {"raise", "skip"}
            Whether messages that expired unread raise `MessagesLostError`, once, or only log a warning.
        ttl : int
            Seconds without a beat of the active member, after which this one may take over; members that share a group
            have the same.

        Raises
        ------
        NotFoundError
            If there is no such topic, or table.
        UnsupportedOperationError
            If the table has no change feed.
        ValueError
            If an argument is out of its range.
        """
        consumer = consumer_of(
            self.storage,
            self._context,
            topic,
            group,
            prefix=self._tables.prefix,
            start=start,
            max_attempts=max_attempts,
            on_lost=on_lost,
            ttl=ttl,
            watch=self._group_beats,
            now=self._clock,
        )
        self._consumers.add(consumer)
        return consumer

    def forward(self, topic: GroupSource[Any], group: str, queue: str) -> int:
        """Make a job of each of the next messages of a group, exactly once, and return their number: one batch.

        The arguments of a job are `id`, `key`, `body`, `headers` and `published` of its message, as a document; 0 if
        there is no message, or another member of the group is active.

        Raises
        ------
        Exception
            As `consumer` and `Consumer.process` do.
        """
        name = self.queue(queue).name  # checked before: a wrong name must not fail messages

        def enqueue(s: Session, messages: Sequence[Message[Any]]) -> None:
            for message in messages:
                s.jobs.enqueue(name, document_of(message))

        with self.consumer(topic, group=group) as consumer:
            return consumer.process(enqueue, wait=0)

    def remove_application(self, namespace: str, application: str) -> None:
        """Remove an application and everything in it, running or not: its versions, state, runs and statistics.

        The newest 10,000 runs go with the rest in one transaction, and older ones before it, in transactions of their
        own. If the process is killed, a second call removes the rest. An absent application is not an error.
        """
        remove_application(self._run_in_context, namespace, application)

    def remove_namespace(self, namespace: str) -> None:
        """Remove a namespace and its rows in every table, in steps as `remove_application` does."""
        remove_namespace(self._run_in_context, namespace)

    def close(self) -> None:
        """End the threads that keep leases and groups, and close the storage if `open` connected to it; idempotent."""
        self.leases.close()
        for consumer in list(self._consumers):
            consumer.stop_beating()
        if self._owned:
            self.storage.close()

    def _context(self, tx: Transaction) -> Context:
        return Context(tx, self._tables, self._clock, self._keys, self._job_beats)

    def _run_in_context(self, body: Callable[[Context], Result]) -> Result:
        return self.storage.run(lambda tx: run_body(self._context(tx), body))

    def _run_at_once(self, body: Callable[[Context], Result]) -> Result:
        return self.storage._run_at_once(lambda tx: run_body(self._context(tx), body))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _create_tables(storage: Storage, tables: PrefixedTables) -> None:
    """Make or extend every table; idempotent."""
    for table in ALL_TABLES:
        storage.admin.create_or_update(tables[table].specification)


def _check_schema(storage: Storage, tables: PrefixedTables) -> None:
    """Check that the store has every table with its fields and indexes; more of them are accepted.

    Raises
    ------
    SchemaMissingError
        If the store lacks any of them.
    """
    missing: list[str] = []
    differing: list[str] = []
    for table in ALL_TABLES:
        wanted = tables[table]
        try:
            found = storage.admin.get_specification(wanted.name)
        except TableNotFoundError:
            missing.append(wanted.name)
        else:
            differing += wanted.differences(found)
    if missing or differing:
        raise SchemaMissingError(missing, differing)
