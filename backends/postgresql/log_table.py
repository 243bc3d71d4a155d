"""`LogTable`: a table that keeps no rows, inside a transaction: rows go to its change feed alone."""

from __future__ import annotations

from collections.abc import Sequence

from structable.spi import Range, RowKind, TableStatistics
from structable.spi.operations import APPLY_CHANGES, Answer, RowWrites
from structable.spi.rules.changes import check_row_kinds
from structable.spi.rules.keyless import check_verb
from structable.spi.rules.ranges import check_range

from .driver.statement import Call
from .driver.statement import CHAR
from .feeds.layout import record_kind
from .feeds.record_statements import record_given
from .sql.binding import TableBinding
from .sql.row_codec import Pieces, at_most
from .sql.types import array
from .table import PostgreSQLTable
from .txn.bound_table import on_current_schema
from .txn.row_statements import Given, encoded_whole, portions

__all__ = ["LogTable"]

_KIND = record_kind(RowKind.INSERT).encode()


class LogTable(PostgreSQLTable):
    """Takes rows, and has none."""

    @on_current_schema
    def _write(self, writes: RowWrites) -> Answer | None:
        tx, binding = self._tx, self.binding
        tx.require_usable()
        check_verb(binding.spec, writes.verb.name)
        tx.require_writable()
        self.written = True
        if writes.verb is APPLY_CHANGES:
            given: Sequence[Given] = [row for _, row in check_row_kinds(binding.write_spec, writes.rows)]
        else:
            given = writes.rows if writes.rows.__class__ is tuple else self._many(writes)
        # A copy of each: the caller may change it before the statement is built for another version of the table.
        rows: list[tuple[Given, Pieces]] = [
            (dict(row), pieces) for row, pieces in zip(given, map(self._encoded, given), strict=True)
        ]
        tx.require_room(sum(at_most(pieces) for _, pieces in rows))
        for portion in portions(rows, lambda one: at_most(one[1])):
            self._append(binding, portion)
        return None

    def _encoded(self, row: Given) -> Pieces:
        return encoded_whole(self.binding, row)

    def _append(self, first: TableBinding, rows: list[tuple[Given, Pieces]]) -> None:
        def build(binding: TableBinding) -> Call:
            given = [pieces if binding is first else encoded_whole(binding, row) for row, pieces in rows]
            kinds = array(CHAR, [_KIND] * len(rows))
            return Call(record_given(binding), [kinds, *binding.arrays(binding.shape.columns, given)])

        self._tx.defer(self, build)

    def statistics(self, range: Range) -> TableStatistics:
        check_range(self.specification, range)  # which the server has
        return TableStatistics(0, 0, exact=True)
