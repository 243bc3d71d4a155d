"""Rows with the columns that a table's rules compute, and the progress of a fill, which errors report."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from ._errors import StructableError, TransactionClosedError
from ._evaluation import Predicate
from ._filters import Filter
from ._row_rules import Projector, RowRules
from ._rows import Row, shared_shape
from ._scans import RowIterator
from ._specification import TableSpecification

if TYPE_CHECKING:
    from ._transactions import Transaction

FILLS_GROUP = "structable.fills"
"""The group of entry points of functions that return the share of rows in which a field is filled, or None if unknown.

Each takes a transaction, a table and a field.
"""


class ComputedRows(RowIterator):
    """Rows of a scan with computed columns, and only those rows for which a filter on these columns is true."""

    __slots__ = ("_left", "_next", "_predicate", "_projector", "_rows", "_rules", "_shape", "_where")

    def __init__(
        self,
        rows: RowIterator,
        spec: TableSpecification,
        rules: RowRules,
        names: tuple[str, ...],
        where: Filter | None = None,
        limit: int | None = None,
    ) -> None:
        self._rows = rows
        self._next = rows.__next__
        self._shape = shared_shape(spec.name, names, spec.primary_key)
        self._rules = rules
        self._where = where
        self._left = limit
        self._projector: Projector | None = None
        self._predicate: Predicate | None = None

    def __next__(self) -> Row:
        if self._left == 0:
            self._rows.close()
            raise StopIteration
        try:
            while True:
                row = self._next()
                values = row.astuple()
                projector = self._projector or self._begin(row)
                if self._predicate is None or self._predicate(values):
                    break
            if self._left is not None:
                self._left -= 1
            return Row(self._shape, projector(values))
        except (StopIteration, StructableError):
            raise
        except BaseException:
            self._rows.close()  # the row is lost, and the next one must not come in its place
            raise

    def _begin(self, row: Row) -> Projector:
        columns = tuple(row)
        if self._where is not None:
            self._predicate = self._rules.predicate(self._where, columns)
        self._projector = self._rules.projector(columns, self._shape.columns)
        return self._projector

    def close(self) -> None:
        self._rows.close()


class ListedRows(RowIterator):
    """Rows that are all in memory, and need no transaction any more."""

    __slots__ = ("_closed", "_rows")

    def __init__(self, rows: list[Row]) -> None:
        self._rows = iter(rows)
        self._closed = False

    def __next__(self) -> Row:
        if self._closed:
            raise TransactionClosedError("the scan was closed; begin a new one")
        for row in self._rows:  # after `next` a signal handler could raise, and the row would be lost
            return row
        raise StopIteration

    def close(self) -> None:
        self._closed = True


def with_computed(rows: list[Row], spec: TableSpecification, rules: RowRules, names: tuple[str, ...]) -> list[Row]:
    """Return rows with other columns, computed from rows of stored columns."""
    if not rows:
        return []
    shape, values_of = shared_shape(spec.name, names, spec.primary_key), rules.projector(tuple(rows[0]), names)
    return [Row(shape, values_of(row.astuple())) for row in rows]


def fill_progress(transaction: Transaction, table: str, field: str) -> str:
    """Return how far the fill of a field is, for an error: ", 42 %", or nothing if it is unknown."""
    for entry in entry_points(group=FILLS_GROUP):
        with suppress(ImportError, StructableError):  # an error here must not hide the error that is reported
            share = entry.load()(transaction, table, field)
            if share is not None:
                return f", {int(share * 100)} %"
    return ""
