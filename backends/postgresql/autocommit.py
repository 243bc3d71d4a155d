"""`AutoCommitPostgreSQLTable`: the auto-commit view, whose single operations are one statement each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from structable.spi import (
    Filter,
    InvalidFieldError,
    Isolation,
    Key,
    Range,
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

from .driver.errors import (
    STALE,
    BrokenConnectionError,
    ForeignSessionError,
    PostgreSQLError,
    StatementRefusedError,
    translated,
)
from .driver.statement import Call, Values, require_sendable
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, lookup_call
from .sql.queries import MOST_FEW, few_rows, scan_query
from .transaction import PostgreSQLTransaction
from .txn.cursor_scan import ReadRows, ScanRows
from .txn.merges import SnapshotNeededError
from .txn.single_writes import (
    SingleWrite,
    commit_alone,
    single_delete,
    single_increment,
    single_insert,
    single_replace,
    single_update,
    single_upsert,
)
from .txn.store_parts import StoreParts

__all__ = ["AutoCommitPostgreSQLTable"]

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

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

    # Writes of one row

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self._alone(single_upsert, row):
            super().upsert(row)

    def replace(self, row: Mapping[str, Value]) -> None:
        if not self._alone(single_replace, row):
            super().replace(row)

    def insert(self, row: Mapping[str, Value]) -> None:
        if not self._alone(single_insert, row):
            super().insert(row)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        if default is not None or not self._alone(single_update, row):
            super().update(row, default)

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        if not self._alone(single_increment, key, field, amount):
            super().increment(key, field, amount)

    def delete(self, key: Key) -> None:
        if not self._alone(single_delete, key):
            super().delete(key)

    def _alone(
        self,
        make: Callable[Concatenate[TableBinding, Arguments], SingleWrite | None],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> bool:
        """Commit a write of one row, as `commit_alone` does; False if a transaction must try."""
        binding = self._catalog.known(self._name)
        if binding is None or binding.spec.keyless or binding.takes_input:
            return False
        try:
            write = make(binding, *arguments, **named)
        except InvalidFieldError:
            return False  # the table may have changed
        if write is None:
            return False
        done = retry(self._storage, lambda: commit_alone(self._parts, self._name, write), writes=True)
        if done and binding.version.feed is not None:
            self._parts.feeds.used(self._name)
        return done

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
        if binding is not None and limit.__class__ is int and 0 < limit <= MOST_FEW:
            try:
                request = ScanRequest.checked(binding.spec, (range,), where, names, order_by, reverse, limit)
            except InvalidFieldError:
                pass  # the table may have changed
            else:
                query, values = scan_query(binding, request)
                is_small = query.by_index and limit <= few_rows(binding, request.columns)
                found = self._at_once(query.call(values)) if is_small else None
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
        except ForeignSessionError as error:
            raise translated(error, "a read") from error
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
