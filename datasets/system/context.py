"""`Context`: the state that all datasets of one session share; `Dataset`: their base class."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from structable.datasets.coordination import fences
from structable.datasets.coordination.beats import Watch
from structable.datasets.records import Record, Records, RecordTable
from structable.datasets.records.record_table import PrefixedTables
from structable.datasets.tables.coordination import FENCES
from structable.datasets.tables.namespaces import NAMESPACES
from structable.spi import FieldSizeLimitError, Transaction, Value
from structable.spi.authors import MAX_ROW_SIZE, check_row, is_aware, own_class, plain_datetime, value_size

if TYPE_CHECKING:
    from structable.datasets.secrets.key_providers import KeyProvider

R = TypeVar("R", bound=Record)
_DATETIME = own_class(dt.datetime)


class Context:
    """The transaction of a session, and the state that its datasets share.

    Parameters
    ----------
    tx : Transaction
        The transaction in which everything happens.
    tables : PrefixedTables
        The tables' names.
    clock : callable
        Returns the time, an aware datetime.
    keys : KeyProvider or None
        The master keys of sealed values.
    job_beats : Watch
        The beats of jobs that this process has seen.
    """

    def __init__(
        self,
        tx: Transaction,
        tables: PrefixedTables,
        clock: Callable[[], dt.datetime],
        keys: KeyProvider | None,
        job_beats: Watch,
    ) -> None:
        self.tx = tx
        self.keys = keys
        self.job_beats = job_beats
        self.delayed: dict[str, dt.datetime] | None = {}
        """The time at which the first job of each queue is due, of jobs written without a signal.

        None if all jobs are signalled, because the end of the transaction is not seen.
        """
        self.moved_jobs: set[str] = set()
        """The ids of the jobs whose state the transaction has changed."""
        self._tables = tables
        self._clock = clock
        self._records: dict[str, Records[Any]] = {}
        self._fenced: set[str] = set()
        self._present: set[str] = set()

    @property
    def prefix(self) -> str:
        """The prefix of the tables' names."""
        return self._tables.prefix

    def records(self, table: RecordTable[R]) -> Records[R]:
        """Return the records of a table, named without the prefix, in the transaction."""
        found = self._records.get(table.name)
        if found is None:
            found = self._records[table.name] = self._tables[table](self.tx, checked=True)
        return found

    def check(self, table: RecordTable[R], records: Iterable[R]) -> None:
        """Check records as `put` would. Operations with several writes call it before the first one."""
        encode, specification = self._tables[table].codec.encode, self.records(table).table.specification
        for record in records:
            check_row(specification, encode(record))

    def row(self, table: RecordTable[R], record: R) -> dict[str, Value]:
        """Return the row of a record, after checking its documents."""
        return self._tables[table].codec.encode(record)

    def row_with_room(self, table: RecordTable[R], record: R, room: int) -> dict[str, Value]:
        """Return the row of a record, as `row` does, after checking that it leaves `room` bytes for later writes.

        Its texts that are no documents are checked names.
        """
        named, most = self._tables[table], MAX_ROW_SIZE - room
        row = named.codec.encode(record)
        if sum([len(str(row[name])) for name in named.codec.documents]) >= most // 8:
            # A row with fewer characters fits the limit, even with 4 bytes a character and its small values.
            specification = named.specification
            size = sum(value_size(specification.field(name), value) for name, value in row.items())
            if size > most:
                raise FieldSizeLimitError(specification.name, "row", size, most)
        return row

    def now(self, at: dt.datetime | None = None) -> dt.datetime:
        """Return the time given, or the clock's, in UTC.

        Raises
        ------
        ValueError
            If it is not an aware datetime, or in UTC not in the years 1 to 9999.
        """
        time = self._clock() if at is None else at
        if time.__class__ is _DATETIME and time.tzinfo is dt.UTC:
            return time
        if not is_aware(time):
            raise ValueError(f"the time is {time!r}; it must be an aware datetime")
        try:
            return plain_datetime(time).astimezone(dt.UTC)
        except OverflowError:
            raise ValueError(f"the time is {time!r}; in UTC it must be in the years 1 to 9999") from None

    def share(self, scope: str) -> None:
        """Share a fence, once in the transaction."""
        if scope not in self._fenced:
            fences.share(self.tx, self._tables[FENCES].name, scope)
            self._fenced.add(scope)

    def exclude(self, scope: str) -> None:
        """Exclude every transaction that shares a fence."""
        fences.exclude(self.tx, self._tables[FENCES].name, scope)
        self._fenced.add(scope)

    def member_of(self, namespace: str) -> None:
        """Share the fence of a namespace to which something is added.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        """
        if namespace in self._present:
            return
        self.records(NAMESPACES).require(namespace)
        self.share(f"ns/{namespace}")
        self._present.add(namespace)

    def no_member_of(self, namespace: str) -> None:
        """Hold the namespace's fence exclusively before its deletion; later additions to the namespace are rejected."""
        self.exclude(f"ns/{namespace}")
        self._present.discard(namespace)


class Dataset:
    """The operations of one dataset, in the transaction of a session."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context


class SessionFences(Dataset):
    """The fences of a store, in the transaction of a session: `s.fences`."""

    def share(self, scope: str) -> None:
        """Conflict with every transaction that excludes the scope; two that share it conflict in one of 16 cases."""
        self._context.share(scope)

    def exclude(self, scope: str) -> None:
        """Conflict with every transaction that shares or excludes the scope."""
        self._context.exclude(scope)
