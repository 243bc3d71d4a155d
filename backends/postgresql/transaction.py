"""`PostgreSQLTransaction`: the contract's transaction over a `ServerTransaction`."""

from __future__ import annotations

from types import TracebackType

from structable.spi import FeedPosition, Isolation, Transaction, UnsupportedOperationError

from .log_table import LogTable
from .recording_tables import RecordingTable
from .ruled import RuledPostgreSQLTable
from .sql.binding import TableBinding
from .table import PostgreSQLTable
from .txn.feed_positions import feed_position
from .txn.merges import SnapshotNeededError
from .txn.server_transaction import ServerTransaction
from .txn.store_parts import StoreParts

__all__ = ["PostgreSQLTransaction"]


class PostgreSQLTransaction(Transaction):
    """A transaction that takes a connection and a snapshot with its first operation.

    For one that `has_one_call`, or `waits`, see `ServerTransaction`.
    """

    def __init__(
        self,
        store: StoreParts,
        isolation: Isolation,
        read_only: bool,
        *,
        has_one_call: bool = False,
        waits: bool = False,
    ) -> None:
        self._tx = ServerTransaction(store, isolation, read_only, has_one_call=has_one_call, waits=waits)
        self._store = store
        self._isolation = isolation
        self._tables: dict[str, PostgreSQLTable | RuledPostgreSQLTable] = {}

    def table(self, name: str) -> PostgreSQLTable | RuledPostgreSQLTable:
        tx = self._tx
        if not tx.usable:
            tx.refuse()
        table = self._tables.get(name) if isinstance(name, str) else None
        if table is None:
            binding = tx.binding(name)
            if tx.waits and not binding.merges:
                raise SnapshotNeededError
            made = _table_class(binding)
            plain = made(tx, binding)
            tx.join(name, plain)
            table = plain if binding.rules is None else RuledPostgreSQLTable(plain, binding.rules)
            self._tables[name] = table
        return table

    def position(self, table: str) -> FeedPosition:
        self._tx.require_usable()
        if self._tables or (self._tx.begun and self._tx.position is None):
            raise UnsupportedOperationError(
                f"position({table!r}) after table(): ask for positions first; the transaction then reads that snapshot"
            )
        return feed_position(self._tx, self._store.catalog, self._store.feeds.gate, self._isolation, table)

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
        """Note the use of the feeds that the commit may have written, and signal."""
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
