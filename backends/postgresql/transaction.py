"""`PostgreSQLTransaction`: the contract's transaction over a `ServerTransaction`."""

from __future__ import annotations

from types import TracebackType

from structable.spi import Isolation, Transaction

from .driver.pool import ServerPool
from .keyless_table import KeylessPostgreSQLTable
from .schema.catalog import Catalog
from .table import PostgreSQLTable
from .txn.merges import SnapshotNeededError
from .txn.server_transaction import ServerTransaction

__all__ = ["PostgreSQLTransaction"]


class PostgreSQLTransaction(Transaction):
    """A transaction that takes a connection and a snapshot with its first operation.

    One that `is_single` has one call, which writes one row; for one that `waits`, see `ServerTransaction`.
    """

    def __init__(
        self,
        pool: ServerPool,
        catalog: Catalog,
        isolation: Isolation,
        read_only: bool,
        *,
        is_single: bool = False,
        waits: bool = False,
    ) -> None:
        self._tx = ServerTransaction(pool, catalog, isolation, read_only, is_single=is_single, waits=waits)
        self._tables: dict[str, PostgreSQLTable] = {}

    def table(self, name: str) -> PostgreSQLTable:
        tx = self._tx
        if not tx.usable:
            tx.refuse()
        table = self._tables.get(name) if isinstance(name, str) else None
        if table is None:
            binding = tx.binding(name)
            if tx.waits and not binding.merges:
                raise SnapshotNeededError
            kind = KeylessPostgreSQLTable if binding.spec.keyless else PostgreSQLTable
            table = self._tables[name] = kind(tx, binding)
            tx.join(name, table)
        return table

    @property
    def closed(self) -> bool:
        return self._tx.closed

    def commit(self) -> None:
        self._tx.commit()

    def rollback(self) -> None:
        self._tx.rollback()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tx.__exit__(kind, error, traceback)
