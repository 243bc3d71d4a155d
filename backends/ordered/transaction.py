"""`OrderedTransaction`: a snapshot, the writes on top of it, and the commit that hands both to the engine."""

from __future__ import annotations

from typing import NoReturn

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import (
    Isolation,
    StorageUnavailableError,
    StructableError,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .engine import EngineSnapshot, OrderedMap, ReadSet, SchemaChangedError, WriteSet
from .schema.binding import TableBinding
from .schema.catalog import Catalog
from .table import OrderedTable
from .write_size import check_write_size

__all__ = ["OrderedTransaction"]

_SERIALIZABLE = Isolation.SERIALIZABLE


class OrderedTransaction(TransactionLifecycle, Transaction):
    """A transaction of an ordered store: its writes are kept here until the commit.

    Parameters
    ----------
    engine : OrderedMap
        The store.
    catalog : Catalog
        Its tables.
    isolation : Isolation
        SERIALIZABLE also records what was read.
    read_only : bool
        Refuse writes.
    """

    # Of the class until they differ, as `usable`.
    _snapshot: EngineSnapshot | None = None
    reads: ReadSet | None = None

    def __init__(self, engine: OrderedMap, catalog: Catalog, isolation: Isolation, read_only: bool) -> None:
        self._engine = engine
        self._catalog = catalog
        self._tables: dict[str, OrderedTable] = {}
        self.writable = not read_only
        # Commits are made in the order of their validation, and a snapshot is a prefix of that order: without writes
        # there is nothing that reads could contradict.
        if isolation is _SERIALIZABLE and not read_only:
            self.reads = ReadSet()

    def table(self, name: str) -> OrderedTable:
        """Return a table inside this transaction; the same object each time."""
        if not self.usable:
            self.refuse()
        tables = self._tables
        table = tables.get(name) if isinstance(name, str) else None
        if table is None:
            binding = self._bound(name)
            assert self._snapshot is not None
            table = tables[name] = OrderedTable(self, self.reads, binding, self._snapshot)
        return table

    def _bound(self, name: str) -> TableBinding:
        try:
            while True:
                try:
                    return self._catalog.table(self._snapshot or self.snapshot, name)
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
            snapshot = self._snapshot = self._engine.begin(not self.writable)
        return snapshot

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error after which the transaction can only be left."""
        if isinstance(error, SchemaChangedError):
            error = TransactionConflictError("a table's schema changed as the transaction began; run it again")
        super().fail(error)

    def commit(self) -> None:
        """Hand all writes to the engine; see `Transaction.commit`."""
        if not self.usable:
            self.refuse_commit()
        has_writes = False
        for table in self._tables.values():
            if table.writes or table.increments:
                has_writes = True
        refusal: UnsupportedOperationError | None = None
        try:
            if has_writes:
                refusal = self._commit_writes()
        finally:
            if refusal is None:
                self._end()  # whatever interrupts it: what may have been committed must not be committed again
        if refusal is not None:
            raise refusal

    def _commit_writes(self) -> UnsupportedOperationError | None:
        """Commit, or return why nothing was sent and the transaction goes on: it is too large."""
        try:
            changes = WriteSet({}, {}, {}, self.reads, set(), set())  # the defaults take longer
            for table in self._tables.values():
                table.collect(changes)
            if self.reads is not None:
                # What was read of a table is as good as its schema: an overwritten one has its rows elsewhere.
                changes.spaces.update(table.binding.schema.space for table in self._tables.values())
            try:
                check_write_size(changes)
            except UnsupportedOperationError as refusal:
                return refusal
            self._engine.commit(self.snapshot, changes)
        except (StructableError, SchemaChangedError) as error:
            self.fail(error)
        return None

    def _end(self) -> None:
        self.usable = self.writable = False
        self._tables = {}
        snapshot = self._snapshot
        if snapshot is not None:
            self._snapshot = None
            snapshot.close()

    def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()
