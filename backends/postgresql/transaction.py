"""`PostgreSQLTransaction`: the contract's transaction over a `ServerTransaction`."""

from __future__ import annotations

from functools import partial
from types import TracebackType

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.change_feed import require_feed
from structable.spi import (
    FeedPosition,
    Isolation,
    Range,
    StructuredTable,
    TableNotFoundError,
    TableStatistics,
    Transaction,
    UnsupportedOperationError,
)
from structable.spi.authors import RuledTable

from .driver.statement import Ask, Call, Statement
from .feeds.gate import VersionGate
from .feeds.layout import FEEDS
from .recording_tables import LogTable, RecordingTable
from .schema.catalog import Catalog
from .sql.binding import TableBinding
from .sql.names import qualified
from .table import PostgreSQLTable
from .txn.merges import SnapshotNeededError
from .txn.server_transaction import ServerTransaction
from .txn.store_context import StoreContext


class PostgreSQLTransaction(Transaction):
    """A transaction that takes a connection and a snapshot with its first operation.

    For `has_one_call` and `waits`, see `ServerTransaction`.
    """

    def __init__(
        self,
        store: StoreContext,
        isolation: Isolation,
        read_only: bool,
        *,
        has_one_call: bool = False,
        waits: bool = False,
    ) -> None:
        self._tx = ServerTransaction(store, isolation, read_only, has_one_call=has_one_call, waits=waits)
        self._store = store
        self._isolation = isolation
        self._tables: dict[str, PostgreSQLTable] = {}
        self._views: dict[str, StructuredTable] = {}

    def table(self, name: str) -> StructuredTable:
        tx = self._tx
        if not tx.usable:
            tx.refuse()
        view = self._views.get(name) if isinstance(name, str) else None
        if view is None:
            binding = tx.binding(name)
            if tx.waits and not binding.merges:
                raise SnapshotNeededError
            table = self._tables[name] = _table_class(binding)(tx, binding)
            tx.join(name, table)
            view = self._views[name] = table if binding.rules is None else RuledTable(table, binding.rules, self)
        return view

    def statistics(self, table: str, range: Range) -> TableStatistics:
        self.table(table)
        return self._tables[table].statistics(range)

    def position(self, table: str) -> FeedPosition:
        self._tx.require_usable()
        if self._tables or (self._tx.begun and self._tx.position is None):
            raise UnsupportedOperationError(
                f"position({table!r}) after table(); ask for positions first; the transaction then reads that snapshot"
            )
        return _feed_position(self._tx, self._store.catalog, self._store.feeds.gate, self._isolation, table)

    def signal(self, channel: str) -> None:
        self._tx.require_writable()
        self._tx.signal(channel)

    @property
    def closed(self) -> bool:
        return self._tx.closed

    def commit(self) -> None:
        self._tx.commit()
        self._note_commit()

    def _note_commit(self) -> None:
        """Record the use of the feeds that the commit may have written, and signal."""
        if self._tx.read_only:
            return
        signals = self._tx.signals
        for name, table in self._tables.items():
            if table.binding.version.feed is not None:
                self._store.feeds.used(name)
            if table.written:
                signals |= table.binding.signals
        self._store.signals.send(signals)

    def rollback(self) -> None:
        self._tx.rollback()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        was_open = self._tx.usable
        self._tx.__exit__(kind, error, traceback)
        if error is None and was_open:
            self._note_commit()


def _table_class(binding: TableBinding) -> type[PostgreSQLTable]:
    if binding.spec.table_options.log:
        return LogTable
    return RecordingTable if binding.takes_input else PostgreSQLTable


def _feed_position(
    transaction: ServerTransaction, catalog: Catalog, gate: VersionGate, isolation: Isolation, table: str
) -> FeedPosition:
    """Return the position of a transaction's snapshot, which is then exactly a version of the store.

    The first call begins the transaction with this isolation.
    """
    if transaction.position is None:
        begin = partial(gate.begin, is_serializable=isolation is Isolation.SERIALIZABLE)
        transaction.begin_exactly(begin, lambda ask: _recorded(ask, catalog, table))
    assert transaction.position is not None
    feeds = qualified(catalog.schema, FEEDS)
    number = _recorded(transaction.rows_alone, catalog, table)
    token = Call(Statement(f"select token from {feeds} where feed = {number}", prepare=False))
    return FeedPosition(str(transaction.rows_alone(token)[0][0]), transaction.position)


def _recorded(ask: Ask, catalog: Catalog, table: str) -> int | None:
    """Return the number of a table's feed; raises the errors of `Transaction.position`."""
    version = catalog.find(ask, table)
    if version is None:
        raise TableNotFoundError(table)
    require_unretired(version.spec)
    require_feed(version.spec)
    return version.feed
