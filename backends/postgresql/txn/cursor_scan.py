"""`ScanRows`: the rows of a scan, fetched from a cursor of the server's in portions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from psycopg import pq

from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import build_rows
from structable.backends.postgresql.sql.queries import scan_call
from structable.spi import Row, RowIterator, TransactionClosedError
from structable.spi.rules.scans import ScanRequest

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

__all__ = ["ScanRows"]

_FIRST_ROWS = 64
_MOST_ROWS = 5_000
_PORTION = 2 << 20
"""Approximate size of a portion, in bytes."""
_MOST_READ_CURSORS = 64
_numbers = itertools.count(1)


class ScanRows(RowIterator):
    """The rows of one scan in a transaction; it holds one portion of them at a time."""

    def __init__(self, transaction: ServerTransaction, table: BoundTable, request: ScanRequest) -> None:
        self._tx = transaction
        self._table = table
        self._cursor = f"c{next(_numbers)}"
        self._owns = False
        self._closed = False
        self._done = request.limit == 0 or not request.ranges
        self._rows: Iterator[Row] = iter(())
        if self._done:
            transaction.flush()  # the snapshot must be that of this call
            return
        if len(transaction.read_cursors) >= _MOST_READ_CURSORS:
            for name in transaction.read_cursors:
                transaction.precede(table, partial(_closing, name))
            transaction.read_cursors.clear()
        # Declared and fetched from in one round trip; the first portion is often all.
        transaction.precede(table, lambda binding: self._declaration(binding, request))
        result = transaction.ask(table, lambda _: self._fetch(_FIRST_ROWS))
        self._shape = table.binding.shape_of(request.columns)
        self._take(result, _FIRST_ROWS)

    def own(self) -> None:
        """End the transaction with the scan."""
        self._owns = True
        if self._done:
            # All rows are here.
            self._tx.rollback()

    def _declaration(self, binding: TableBinding, request: ScanRequest) -> Call:
        return scan_call(binding, request, f"declare {self._cursor} no scroll cursor for ")

    def _fetch(self, rows: int) -> Call:
        return command(f"fetch {rows} from {self._cursor}")

    def _take(self, result: pq.abc.PGresult, wanted: int) -> None:
        count = result.ntuples
        self._done = count < wanted
        if self._done:
            self._tx.read_cursors.append(self._cursor)
        self._rows = iter(build_rows(self._tx.rows_of(result), self._shape))
        if not self._done:
            sample = range(0, count, max(count // 8, 1))
            value = result.get_value
            size = sum(len(value(row, column) or b"") for row in sample for column in range(result.nfields))
            average = max(size // len(sample), 1)
            self._portion = max(1, min(_MOST_ROWS, _PORTION // average))

    def __next__(self) -> Row:
        if self._closed:
            raise TransactionClosedError("the scan was closed")
        if not self._tx.usable and not (self._owns and self._done):
            self._tx.refuse()
        for row in self._rows:
            return row
        if self._done:
            self._finish()
            raise StopIteration
        try:
            portion = self._portion
            self._take(self._tx.ask(self._table, lambda _: self._fetch(portion)), portion)
        except BaseException:
            self._finish()
            raise
        return next(self)

    def _finish(self) -> None:
        if self._owns:
            self._tx.rollback()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._rows = iter(())
        if self._owns:
            self._tx.rollback()
        elif not self._done and self._tx.usable:
            self._done = True
            self._tx.defer(self._table, partial(_closing, self._cursor))

    def __del__(self) -> None:
        if getattr(self, "_owns", False):
            self._tx.rollback()


def _closing(cursor: str, _binding: TableBinding) -> Call:
    return command(f"close {cursor}")
