"""`ScanRows`: the rows of a scan, fetched from a cursor of the server's in chunks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from psycopg import pq

from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import build_rows
from structable.backends.postgresql.sql.queries import few_rows, scan_query
from structable.backends.postgresql.sql.templates import Templated
from structable.spi import Row, RowIterator, StructableError, TransactionClosedError
from structable.spi.authors import ScanRequest

from .bound_table import BoundTable, TableCall
from .server_transaction import ServerTransaction

_MOST_ROWS = 5_000
_CHUNK = 2 << 20
"""The approximate size of a chunk, in bytes."""
_MOST_READ_CURSORS = 64
_numbers = itertools.count(1)


class ScanRows(RowIterator):
    """The rows of one scan in a transaction; it holds one chunk of them at a time.

    Few rows are read by one statement. It asks for one row more than a chunk, unless the limit is less: if that row
    comes, a cursor returns all rows instead, opened before anything else is done in the transaction.
    """

    def __init__(
        self, transaction: ServerTransaction, table: BoundTable, request: ScanRequest, known: Templated | None = None
    ) -> None:
        self._tx = transaction
        self._table = table
        self._owns = False
        self._refusal = ""
        self._cursor = ""
        self._done = request.limit == 0 or request.limit_per_range == 0 or not request.ranges
        self._rows: Iterator[Row] = iter(())
        if self._done:
            transaction.flush()  # the snapshot must be this call's
        elif not self._read_few(request, known):
            self._open_cursor(request)

    def _read_few(self, request: ScanRequest, known: Templated | None) -> bool:
        """Read the rows, and return whether these are all."""
        table = self._table
        first, (query, values) = table.binding, scan_query(table.binding, request, known)
        few = few_rows(first, request.columns)
        if not query.by_index and (request.limit is None or request.limit > few):
            return False

        def build(binding: TableBinding) -> Call:
            if binding is first:
                return query.call(values)
            other, others = scan_query(binding, request)
            return other.call(others)

        result = self._tx.ask(table, build)
        if table.binding is not first:
            few = few_rows(table.binding, request.columns)
        if result.ntuples > few:
            query.note(many=True)
            return False
        self._done = True
        if not self._tx.read_only:
            table.seen.note(result, table.binding, request.columns)
        self._rows = build_rows(self._tx.rows_of(result), table.binding.shape_of(request.columns))
        return True

    def _open_cursor(self, request: ScanRequest) -> None:
        transaction, table = self._tx, self._table
        self._cursor = f"c{next(_numbers)}"
        if len(transaction.read_cursors) >= _MOST_READ_CURSORS:
            for name in transaction.read_cursors:
                self._close_cursor(name)
            transaction.read_cursors.clear()

        def declare(binding: TableBinding) -> Call:
            query, values = scan_query(binding, request)
            return query.call_freely(values, f"declare {self._cursor} no scroll cursor for ")

        # Declared and fetched from in one round trip; the first chunk is often the only one.
        transaction.precede(table, declare)
        few = few_rows(table.binding, request.columns)
        result = transaction.ask(table, lambda _: self._fetch(few))
        self._shape = table.binding.shape_of(request.columns)
        if not transaction.read_only:
            table.seen.note(result, table.binding, request.columns)
        scan_query(table.binding, request)[0].note(many=result.ntuples >= few)
        self._take(result, few)

    def own(self) -> None:
        """End the transaction with the scan."""
        self._owns = True
        if self._done:
            # All rows have been read.
            self._tx.rollback()

    def _fetch(self, rows: int) -> Call:
        return command(f"fetch {rows} from {self._cursor}")

    def _take_chunk(self) -> None:
        chunk = self._chunk
        self._take(self._tx.ask(self._table, lambda _: self._fetch(chunk)), chunk)

    def _take(self, result: pq.abc.PGresult, wanted: int) -> None:
        count = result.ntuples
        self._done = count < wanted
        if self._done:
            self._tx.read_cursors.append(self._cursor)
        self._rows = build_rows(self._tx.rows_of(result), self._shape)
        if not self._done:
            sample = range(0, count, max(count // 8, 1))
            value = result.get_value
            size = sum(len(value(row, column) or b"") for row in sample for column in range(result.nfields))
            average = max(size // len(sample), 1)
            self._chunk = max(1, min(_MOST_ROWS, _CHUNK // average))

    def __next__(self) -> Row:
        if self._refusal:
            raise TransactionClosedError(self._refusal)
        if not self._tx.usable and not (self._owns and self._done):
            self._tx.refuse()
        while True:
            try:
                for row in self._rows:
                    return row
                if self._done:
                    break
                self._take_chunk()
            except StructableError:
                # Nothing was read; the scan can go on if the transaction can.
                if self._owns:
                    self._tx.rollback()
                raise
            except BaseException:
                if self._owns or self._tx.usable:
                    # The rows that were being read are lost, and the next ones must not come in their place.
                    self._end("the scan failed before its end; begin a new one")
                raise
        if self._owns:
            self._tx.rollback()
        raise StopIteration

    def close(self) -> None:
        self._end("the scan was closed; begin a new one")

    def _end(self, refusal: str) -> None:
        if self._refusal:
            return
        self._refusal = refusal
        self._rows = iter(())
        if self._owns:
            self._tx.rollback()
        elif not self._done and self._tx.usable:
            self._done = True
            self._close_cursor(self._cursor)

    def _close_cursor(self, name: str) -> None:
        self._tx.writes.put_first(TableCall(self._table, partial(_closing, name)))

    def __del__(self) -> None:
        if getattr(self, "_owns", False):
            self._tx.rollback()


def _closing(cursor: str, _binding: TableBinding) -> Call:
    return command(f"close {cursor}")
