"""Reads of the row that a write depends on, before the write itself is deferred to the commit.

The result still holds when the write runs: the snapshot does not change, and a row that another transaction writes
meanwhile is a conflict. Until then no lock is held, and of two transactions the first to commit wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Call, Values
from structable.backends.postgresql.sql.binding import TableBinding, compiled
from structable.backends.postgresql.sql.row_sizes import row_size
from structable.backends.postgresql.sql.types import encode_value
from structable.spi import Value

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

__all__ = ["ProbedRow", "find_row", "find_size", "find_swap"]


class ProbedRow(NamedTuple):
    """Whether the row exists, and the requested values of it."""

    row: bool
    values: Values


def _find(
    tx: ServerTransaction,
    table: BoundTable,
    kind: Values,
    columns: Callable[[TableBinding], list[sa.ColumnElement[Any]]],
    row: Mapping[str, Value],
    parameters: Mapping[str, tuple[str, Value]],
) -> ProbedRow:
    """Evaluate expressions on the row of a key; their `parameters` are a field and one of its values each."""

    def build(binding: TableBinding) -> Call:
        def make() -> Any:  # noqa: ANN401 - what `compiled` returns
            query = sa.select(*columns(binding)).where(binding.key_matches, binding.current)
            types = {name: binding.oids[field] for name, (field, _) in parameters.items()}
            return compiled(query, {**binding.key_types, **types})

        statement, order = binding.kept(kind, make)
        pieces = {f"k{place}": encode_value(field, row[field.name]) for place, field in enumerate(binding.key_fields)}
        for name, (field, value) in parameters.items():
            pieces[name] = encode_value(binding.spec.field(field), value)
        return Call(statement, [pieces[name] for name in order])

    key = tuple([encode_value(field, row[field.name]) for field in table.binding.key_fields])
    rows = tx.rows_of(tx.ask(table, build, key))
    return ProbedRow(True, rows[0]) if rows else ProbedRow(False, ())


def find_row(tx: ServerTransaction, table: BoundTable, row: Mapping[str, Value]) -> bool:
    """Tell whether there is a row of a checked key."""
    return _find(tx, table, ("find_row",), lambda _: [sa.literal_column("1")], row, {}).row


def find_size(tx: ServerTransaction, table: BoundTable, row: Mapping[str, Value], names: tuple[str, ...]) -> int | None:
    """Return the size that a row would have with the fields `names` changed; None if there is no row."""
    changed = {f"v{place}": name for place, name in enumerate(names) if name not in table.binding.spec.primary_key}

    def columns(binding: TableBinding) -> list[sa.ColumnElement[Any]]:
        return [row_size(binding, {name: binding.parameter(place) for place, name in changed.items()})]

    given = {place: (name, row[name]) for place, name in changed.items()}
    found = _find(tx, table, ("find_size", names), columns, row, given)
    return int(str(found.values[0])) if found.row else None


def find_swap(
    tx: ServerTransaction, table: BoundTable, row: Mapping[str, Value], field: str, expected: Value
) -> ProbedRow:
    """Tell whether a field has an expected value, and the size of the row with the value in `row` instead."""

    def columns(binding: TableBinding) -> list[sa.ColumnElement[Any]]:
        column = binding.core.c[field]
        test = column.is_(None) if expected is None else sa.func.coalesce(column == binding.parameter("e"), sa.false())
        return [test, row_size(binding, {field: binding.parameter("v")})]

    given = {"v": (field, row[field])} if expected is None else {"v": (field, row[field]), "e": (field, expected)}
    return _find(tx, table, ("find_swap", field, expected is None), columns, row, given)
