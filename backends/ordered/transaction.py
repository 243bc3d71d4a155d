"""`OrderedTransaction`: a snapshot, the writes on top of it, and the commit that passes both to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from structable.backends.base.change_feed import require_feed
from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import (
    FeedPosition,
    Isolation,
    StorageUnavailableError,
    StructableError,
    StructuredTable,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
)
from structable.spi.authors import RuledTable, check_transaction_size, may_be_too_large

from .engine import EngineSnapshot, OrderedMap, ReadSet, SchemaChangedError, WriteSet
from .schema.binding import TableBinding
from .schema.catalog import Catalog
from .table import OrderedTable, TypedOrderedTable
from .typed_writers import writer_of

_SERIALIZABLE = Isolation.SERIALIZABLE
_ENTRY_BYTES = 16
"""The maximum overhead of a protocol per entry."""


class OrderedTransaction(TransactionLifecycle, Transaction):
    """A transaction of an ordered store: its writes stay in this process until the commit."""

    _snapshot: EngineSnapshot | None = None
    reads: ReadSet | None = None
    _positioned = False
    """Whether a position of the snapshot was returned."""

    def __init__(
        self,
        engine: OrderedMap,
        catalog: Catalog,
        isolation: Isolation,
        read_only: bool,
        feed_used: Callable[[str], None],
        send: Callable[[Iterable[str]], None],
    ) -> None:
        # Set on the instance too: each is read several times, and CPython 3.11 has no fast path to class attributes.
        self.usable = True
        self._snapshot = None
        self.reads = None
        self._engine = engine
        self._catalog = catalog
        self._feed_used = feed_used
        self._send = send
        self._tables: dict[str, OrderedTable] = {}
        self._views: dict[str, StructuredTable] = {}
        self.writable = not read_only
        # Commits happen in the order of their validation, and a snapshot is a prefix of that order: a transaction
        # without writes reads nothing that another could contradict.
        if isolation is _SERIALIZABLE and not read_only:
            self.reads = ReadSet()

    def table(self, name: str) -> StructuredTable:
        if not self.usable:
            self.refuse()
        view = self._views.get(name) if isinstance(name, str) else None
        if view is None:
            binding = self._bound(name)
            assert self._snapshot is not None
            table = self._tables[name] = bound_table(self, self.reads, binding, self._snapshot, self._engine)
            view = self._views[name] = table if binding.rules is None else RuledTable(table, binding.rules, self)
        return view

    def position(self, table: str) -> FeedPosition:
        if not self.usable:
            self.refuse()
        if self._tables:
            raise UnsupportedOperationError(
                f"position({table!r}) after table(); ask for positions first; the transaction then reads that snapshot"
            )
        binding = self._bound(table)
        require_feed(binding.spec)
        feed = binding.schema.feed
        assert feed is not None, "a table with a producer has a feed"
        try:
            version = self.snapshot.settled_version(feed.space)
        except (TransactionConflictError, StorageUnavailableError) as error:
            self.fail(error)
        self._positioned = True
        return FeedPosition(feed.token, version)

    def _bound(self, name: str) -> TableBinding:
        try:
            while True:
                try:
                    return self._catalog.table(self._snapshot or self._begin(), name)
                except SchemaChangedError:
                    if self._tables or self._positioned:
                        raise
                    # No operation has run yet, so a newer snapshot is equally valid.
                    self._release()
        except (SchemaChangedError, TransactionConflictError, StorageUnavailableError) as error:
            self.fail(error)

    @property
    def snapshot(self) -> EngineSnapshot:
        """The state that the transaction reads, taken at first use."""
        return self._snapshot or self._begin()

    def _begin(self) -> EngineSnapshot:
        snapshot = self._snapshot = self._engine.begin(not self.writable)
        return snapshot

    def fail(self, error: Exception) -> NoReturn:
        if isinstance(error, SchemaChangedError):
            error = TransactionConflictError("a table's schema changed as the transaction began; run it again")
        super().fail(error)

    def commit(self) -> None:
        if not self.usable:
            self.refuse_commit()
        has_writes = False
        for table in self._tables.values():
            if table.writes or table.increments or table.records:
                has_writes = True
        refusal: UnsupportedOperationError | None = None
        try:
            if has_writes:
                refusal = self._commit_writes()
            elif self.signals:
                self._commit_signals()
        finally:
            if refusal is None:
                self._end()  # even if interrupted: writes that may be committed must not be committed again
        if refusal is not None:
            raise refusal

    def _commit_writes(self) -> UnsupportedOperationError | None:
        """Commit, or return the error for a transaction that is too large, which stays open with nothing sent."""
        try:
            changes = WriteSet({}, {}, {}, self.reads, set(), set(), {})  # the defaults take longer
            for table in self._tables.values():
                table.collect(changes)
            if self.reads is not None:
                # Reads of a table are only as valid as its schema: an overwritten table has its rows elsewhere.
                changes.spaces.update(table.binding.schema.space for table in self._tables.values())
            try:
                _check_write_size(changes)
            except UnsupportedOperationError as refusal:
                return refusal
            if self.signals or changes.appends:
                channels = [
                    table.binding.feed_channel
                    for table in self._tables.values()
                    if (feed := table.binding.schema.feed) is not None and feed.space in changes.appends
                ]
                changes.signals = self.signals.union(channels)
            self._engine.commit(self._snapshot or self._begin(), changes)
        except (StructableError, SchemaChangedError) as error:
            self.fail(error)
        if changes.appends:
            for name, table in self._tables.items():
                if table.binding.schema.feed is not None:
                    self._feed_used(name)
        if changes.signals:
            self._send(changes.signals)
        return None

    def _commit_signals(self) -> None:
        if self._engine.traits.carries_signals:
            try:
                self._engine.commit(None, WriteSet(signals=self.signals))
            except StructableError as error:
                self.fail(error)
        self._send(self.signals)

    def _end(self) -> None:
        self.usable = self.writable = False
        self._tables, self._views = {}, {}
        snapshot = self._snapshot
        if snapshot is not None:
            self._snapshot = None
            snapshot.close()

    def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()


def bound_table(
    transaction: TransactionLifecycle,
    reads: ReadSet | None,
    binding: TableBinding,
    snapshot: EngineSnapshot,
    engine: OrderedMap,
) -> OrderedTable:
    """Return a table in a transaction."""
    if not binding.has_type:
        return OrderedTable(transaction, reads, binding, snapshot)
    writer = writer_of(binding, takes_operands=engine.traits.takes_operands)
    return TypedOrderedTable(transaction, reads, binding, snapshot, writer)


def _check_write_size(changes: WriteSet) -> None:
    """Reject a transaction whose rows, index entries, increments and images, with their overhead, are too large."""
    count = len(changes.writes) + len(changes.derived)
    if changes.increments:
        count += sum(map(len, changes.increments.values()))
    if changes.appends:
        count += sum(map(len, changes.appends.values()))
    if not may_be_too_large(count):
        return
    size = count * _ENTRY_BYTES
    for pairs in (changes.writes, changes.derived):
        size += sum(map(len, pairs)) + sum(map(len, filter(None, pairs.values())))
    for key, steps in changes.increments.items():
        size += sum([len(key) + step.size for step in steps])
    for payloads in changes.appends.values():
        size += sum(map(len, payloads))
    check_transaction_size(size)
