"""`AutoCommitPostgreSQLTable`: the auto-commit view, whose single operations are one statement each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from structable.spi import (
    Filter,
    InvalidFieldError,
    Isolation,
    Key,
    Range,
    RecordNotFoundError,
    Row,
    RowIterator,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableNotFoundError,
    Transaction,
    Value,
)
from structable.spi.autocommit import AutoCommitTable
from structable.spi.delegation import consumed
from structable.spi.rules.scans import ScanRequest
from structable.spi.runner import retry

from .driver.errors import STALE, BrokenConnectionError, PostgreSQLError, StatementRefusedError, translated
from .driver.statement import Call, Values, require_sendable
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, lookup_call
from .sql.queries import FEW_ROWS, scan_query
from .transaction import PostgreSQLTransaction
from .txn.cursor_scan import ReadRows, ScanRows
from .txn.merges import SnapshotNeededError
from .txn.single_writes import SingleWrite, commit_alone, single_update, single_upsert
from .txn.store_parts import StoreParts

__all__ = ["AutoCommitPostgreSQLTable"]

Result = TypeVar("Result")
MakeWrite = Callable[[TableBinding, Mapping[str, Value]], SingleWrite | None]

_ALL = Range()
_MERGES = frozenset({"upsert", "upsert_many", "apply_changes"})


class AutoCommitPostgreSQLTable(AutoCommitTable):
    """The auto-commit view, with reads, small scans and writes of a row that are one statement each.

    No transaction is around it in the server; a write of a row is one by itself, and none around it here either.
    """

    def __init__(self, storage: Storage, parts: StoreParts, name: str) -> None:
        super().__init__(storage, name)
        self._parts = parts
        self._pool, self._catalog = parts.pool, parts.catalog
        self._binding()

    def _binding(self) -> TableBinding:
        name = self._name
        if not isinstance(name, str):
            raise TableNotFoundError(name)
        found = self._catalog.known(name)
        if found is not None:
            return found
        with self._pool.connection() as connection:
            try:
                return self._catalog.lookup(connection.ask, name)
            except PostgreSQLError as error:
                raise translated(error, "reading the catalog") from error

    def _write(self, operation: str, body: Callable[[StructuredTable], Result]) -> Result:
        known = self._catalog.known(self._name)
        if operation in _MERGES and known is not None and known.merges:
            with suppress(SnapshotNeededError):
                return self._once(body, waits=True)
        return self._once(body)

    def _once(self, body: Callable[[StructuredTable], Result], *, waits: bool = False) -> Result:
        """Run a call in a transaction of its own."""
        return retry(self._storage, lambda: self._attempt(body, waits), writes=True)

    def _attempt(self, body: Callable[[StructuredTable], Result], waits: bool) -> Result:
        with PostgreSQLTransaction(
            self._parts, Isolation.SNAPSHOT, read_only=False, has_one_call=True, waits=waits
        ) as transaction:
            return body(transaction.table(self._name))

    def upsert(self, row: Mapping[str, Value]) -> None:
        if self._alone(self._catalog.known(self._name), single_upsert, row) is None:
            super().upsert(row)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        binding = self._catalog.known(self._name)
        found = None if default is not None else self._alone(binding, single_update, row)
        if found is None or binding is None:
            super().update(row, default)
        elif not found:
            raise RecordNotFoundError(self._name, tuple([row[name] for name in binding.spec.primary_key]))

    def _alone(self, binding: TableBinding | None, make: MakeWrite, row: Mapping[str, Value]) -> bool | None:
        """Commit a write of one row, as `commit_alone` does; None if a transaction must try."""
        if binding is None or binding.version.feed is not None:
            return None
        try:
            write = make(binding, row)
        except InvalidFieldError:
            return None  # the table may have changed
        return None if write is None else retry(self._storage, lambda: commit_alone(self._parts, write), writes=True)

    def _owning(self, transaction: Transaction, rows: RowIterator) -> RowIterator:
        assert isinstance(rows, ScanRows)
        rows.own()
        return rows

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        names = consumed(columns)
        binding = self._catalog.known(self._name)
        if binding is None or binding.spec.keyless:
            return super().read(key, names)
        try:
            shape = binding.shape_of(names)
            checked, pieces = binding.encoded_key(key)
        except InvalidFieldError:
            return super().read(key, names)  # the table may have changed
        found = self._at_once(lookup_call(binding, pieces, shape))
        if found is None:
            return super().read(key, names)
        return decode_row(found[0], checked, shape) if found else None

    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        names = consumed(columns)
        binding = self._catalog.known(self._name)
        if binding is not None and limit.__class__ is int and 0 < limit <= FEW_ROWS:
            try:
                request = ScanRequest.checked(binding.spec, (range,), where, names, order_by, reverse, limit)
            except InvalidFieldError:
                pass  # the table may have changed
            else:
                query, values = scan_query(binding, request)
                found = self._at_once(query.call(values)) if query.by_index else None
                if found is not None:
                    return ReadRows(build_rows(found, binding.shape_of(request.columns)))
        return super().scan(range, where=where, columns=names, order_by=order_by, reverse=reverse, limit=limit)

    def _at_once(self, call: Call) -> list[Values] | None:
        """Return the rows of one statement, outside a transaction.

        None if that failed: a transaction looks the table up again, retries, and raises the error.
        """
        require_sendable(*call)
        pool = self._pool
        connection = pool.acquire()
        try:
            return connection.rows(connection.run(call))
        except StatementRefusedError as error:
            if error.state in STALE:
                self._catalog.forget(self._name)
            elif translated(error, "a read").__class__ is not StorageUnavailableError:
                raise translated(error, "a read") from error
            return None
        except BrokenConnectionError:
            return None
        finally:
            pool.release(connection)
