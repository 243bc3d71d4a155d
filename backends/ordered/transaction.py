"""`OrderedTransaction`: a snapshot, the writes on top of it, and the commit that hands both to the engine."""

from __future__ import annotations

import enum
from typing import NoReturn

from structable.spi import (
    Isolation,
    StorageUnavailableError,
    StructableError,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .binding import TableBinding
from .catalog import Catalog
from .engine import Engine, EngineSnapshot, ReadSet, SchemaChangedError, WriteSet
from .table import OrderedTable

__all__ = ["OrderedTransaction"]


class _State(enum.Enum):
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class OrderedTransaction(Transaction):
    """A transaction of an ordered store: its writes are kept here until the commit.

    Parameters
    ----------
    engine : Engine
        The store.
    catalog : Catalog
        Its tables.
    isolation : Isolation
        SERIALIZABLE also records what was read.
    read_only : bool
        Refuse writes.
    """

    __slots__ = (
        "_catalog",
        "_engine",
        "_failure",
        "_snapshot",
        "_state",
        "_tables",
        "read_only",
        "reads",
        "usable",
        "writable",
    )

    def __init__(self, engine: Engine, catalog: Catalog, isolation: Isolation, read_only: bool) -> None:
        self._engine = engine
        self._catalog = catalog
        self._snapshot: EngineSnapshot | None = None
        self._tables: dict[str, OrderedTable] = {}
        self._state = _State.OPEN
        self._failure: StructableError | None = None
        self.read_only = read_only
        # Commits are made in the order of their validation, and a snapshot is a prefix of that order: without writes
        # there is nothing that reads could contradict.
        self.reads = ReadSet() if isolation is Isolation.SERIALIZABLE and not read_only else None
        # What every operation asks first, as plain attributes.
        self.usable = True
        self.writable = not read_only

    def table(self, name: str) -> OrderedTable:
        """Return a table inside this transaction; the same object each time."""
        if not self.usable:
            self.refuse()
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = OrderedTable(self, self._bound(name))
        return table

    def _bound(self, name: str) -> TableBinding:
        try:
            while True:
                try:
                    return self._catalog.table(self.snapshot, name)
                except SchemaChangedError:
                    if self._tables:
                        raise
                    # Nothing was done yet: the snapshot may as well be one that is up to date.
                    self._release()
        except (SchemaChangedError, TransactionConflictError, StorageUnavailableError) as error:
            self.fail(error)

    @property
    def snapshot(self) -> EngineSnapshot:
        """The state that the transaction reads, taken when it is first needed."""
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = self._snapshot = self._engine.begin(self.read_only)
        return snapshot

    @property
    def closed(self) -> bool:
        """Whether the transaction has ended."""
        return self._state is _State.CLOSED

    def refuse(self) -> NoReturn:
        """Raise why the transaction cannot be used any more."""
        if self._state is _State.FAILED and self._failure is not None:
            raise self._failure
        raise TransactionClosedError("the transaction has ended; begin a new one")

    def refuse_write(self) -> NoReturn:
        """Raise why the transaction cannot be written."""
        if not self.usable:
            self.refuse()
        raise UnsupportedOperationError("the transaction is read-only; begin one with read_only=False to write")

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error after which the transaction can only be left."""
        if isinstance(error, SchemaChangedError):
            error = TransactionConflictError("a table's schema changed as the transaction began; run it again")
        if self._state is _State.OPEN and isinstance(error, StructableError):
            self._end(_State.FAILED)
            self._failure = error
        raise error

    def commit(self) -> None:
        """Hand all writes to the engine; see `Transaction.commit`."""
        if not self.usable:
            failure, self._state = self._state is _State.FAILED, _State.CLOSED
            if failure and self._failure is not None:
                raise self._failure
            self.refuse()
        try:
            changes = WriteSet(reads=self.reads)
            for table in self._tables.values():
                table.collect(changes)
            if changes.writes or changes.increments:
                self._engine.commit(self.snapshot, changes)
        except (StructableError, SchemaChangedError) as error:
            self.fail(error)
        self._end(_State.CLOSED)

    def rollback(self) -> None:
        """Drop all writes; see `Transaction.rollback`."""
        if self._state is not _State.CLOSED:
            self._end(_State.CLOSED)

    def _end(self, state: _State) -> None:
        self._state = state
        self.usable = self.writable = False
        self._tables = {}
        self._release()

    def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    def __del__(self) -> None:
        if self._state is _State.OPEN:
            self._end(_State.CLOSED)
