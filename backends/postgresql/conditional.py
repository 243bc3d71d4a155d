"""Writes of one row that depend on what is there: one statement, which also reports what it found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from structable.spi import Value
from structable.spi.values import MAX_ROW_SIZE

from . import statements
from .binding import TableBinding, compiled
from .session import Call
from .types import encode_value

if TYPE_CHECKING:
    from .table import PostgreSQLTable
    from .transaction import PostgreSQLTransaction

__all__ = ["Outcome", "compare_and_swap", "increment", "insert_row", "put_row"]


class Outcome(NamedTuple):
    """What a write found, and whether it changed that."""

    found: bool
    report: object
    changed: bool


def _run(
    tx: PostgreSQLTransaction,
    table: PostgreSQLTable,
    kind: tuple[object, ...],
    make: Any,  # noqa: ANN401 - from a binding to a query and the types of its parameters
    parameters: Any,  # noqa: ANN401 - from a binding to the values of its parameters
) -> Outcome:
    def build(binding: TableBinding) -> Call:
        statement, order = binding.kept(kind, lambda: compiled(*make(binding)))
        values = parameters(binding)
        return Call(statement, [values[name] for name in order])

    row = tx.rows_of(tx.ask(table, build))[0]
    return Outcome(bool(row[0]), row[1], bool(row[2]) if len(row) > 2 else False)


def _key(binding: TableBinding, row: Mapping[str, Value]) -> dict[str, bytes | None]:
    return {f"k{place}": encode_value(field, row[field.name]) for place, field in enumerate(binding.key_fields)}


def _named(binding: TableBinding, names: tuple[str, ...], prefix: str) -> dict[str, str]:
    values = [name for name in names if name not in binding.spec.primary_key]
    return {name: f"{prefix}{place}" for place, name in enumerate(values)}


def _types(binding: TableBinding, *named: Mapping[str, str]) -> dict[str, int]:
    return {
        **binding.key_types,
        **{parameter: binding.oids[name] for one in named for name, parameter in one.items()},
    }


def _values(binding: TableBinding, row: Mapping[str, Value], named: Mapping[str, str]) -> dict[str, bytes | None]:
    return {parameter: encode_value(binding.spec.field(name), row[name]) for name, parameter in named.items()}


def _parameters(named: Mapping[str, str]) -> dict[str, sa.ColumnElement[Any]]:
    return {name: TableBinding.parameter(parameter) for name, parameter in named.items()}


def put_row(
    tx: PostgreSQLTransaction,
    table: PostgreSQLTable,
    names: tuple[str, ...],
    row: Mapping[str, Value],
    *,
    insert: Mapping[str, Value] | None = None,
    may_insert: bool = True,
) -> Outcome:
    """Change fields of a row unless it becomes too large, or insert it; the report is the size that it would have.

    Parameters
    ----------
    tx : PostgreSQLTransaction
        The transaction.
    table : PostgreSQLTable
        The table in it.
    names : tuple of str
        The fields that are changed, and the key.
    row : mapping of str to Value
        Checked values of these.
    insert : mapping of str to Value, optional
        What is inserted instead of `row` where there is none.
    may_insert : bool
        Whether anything is.
    """
    new = row if insert is None else insert

    def make(binding: TableBinding) -> tuple[sa.Select[Any], dict[str, int]]:
        changed = _named(binding, names, "v")
        inserted = _named(binding, binding.ordered(new), "i")
        size = statements.row_size(binding, _parameters(changed))
        query = statements.outcome_of(
            binding,
            report=size,
            changes=_parameters(changed),
            when=size <= sa.literal_column(str(MAX_ROW_SIZE)),
            inserts=_parameters(inserted) if may_insert else None,
        )
        return query, _types(binding, changed, inserted)

    def parameters(binding: TableBinding) -> dict[str, bytes | None]:
        return {
            **_key(binding, row),
            **_values(binding, row, _named(binding, names, "v")),
            **_values(binding, new, _named(binding, binding.ordered(new), "i")),
        }

    return _run(tx, table, ("put_row", names, tuple(sorted(new)), may_insert), make, parameters)


def insert_row(
    tx: PostgreSQLTransaction, table: PostgreSQLTable, names: tuple[str, ...], row: Mapping[str, Value]
) -> Outcome:
    """Insert a row where there is none; `found` tells that there was one."""

    def build(binding: TableBinding) -> Call:
        def make() -> Any:  # noqa: ANN401
            inserted = _named(binding, names, "v")
            query = statements.outcome_of(
                binding,
                report=sa.literal_column("1"),
                changes=None,
                when=sa.true(),
                inserts=_parameters(inserted),
            )
            return compiled(query, _types(binding, inserted))

        statement, order = binding.kept(("insert_row", names), make)
        pieces = binding.encoder(tuple(row)).pieces(row)
        width = len(binding.key_fields)
        values = {f"k{place}": piece for place, piece in enumerate(pieces[:width])}
        values |= {f"v{place}": piece for place, piece in enumerate(pieces[width:])}
        return Call(statement, [values[name] for name in order])

    found = tx.rows_of(tx.ask(table, build))[0]
    return Outcome(bool(found[0]), found[1], False)


def compare_and_swap(
    tx: PostgreSQLTransaction,
    table: PostgreSQLTable,
    key: tuple[Value, ...],
    field: str,
    expected: Value,
    value: Value,
) -> Outcome:
    """Change a field that has the expected value; the report is the size, if that alone keeps it from being changed."""
    row = {**dict(zip(table.binding.spec.primary_key, key, strict=True)), field: value}

    def make(binding: TableBinding) -> tuple[sa.Select[Any], dict[str, int]]:
        column = binding.core.c[field]
        new = {field: TableBinding.parameter("v")}
        as_expected = column.is_(None) if expected is None else column == TableBinding.parameter("e")
        size = statements.row_size(binding, new)
        fits = size <= sa.literal_column(str(MAX_ROW_SIZE))
        query = statements.outcome_of(
            binding,
            report=sa.case((as_expected, size), else_=sa.null()),
            changes=new,
            when=sa.and_(as_expected, fits),
            inserts=new if expected is None else None,
        )
        oid = binding.oids[field]
        return query, {**binding.key_types, "v": oid, "e": oid}

    def parameters(binding: TableBinding) -> dict[str, bytes | None]:
        kind = binding.spec.field(field)
        return {**_key(binding, row), "v": encode_value(kind, value), "e": encode_value(kind, expected)}

    return _run(tx, table, ("compare_and_swap", field, expected is None), make, parameters)


def increment(
    tx: PostgreSQLTransaction, table: PostgreSQLTable, key: tuple[Value, ...], field: str, amount: int
) -> Outcome:
    """Add to an integer field, unless it overflows; the report is the value before."""
    row: dict[str, Value] = {**dict(zip(table.binding.spec.primary_key, key, strict=True)), field: amount}

    def make(binding: TableBinding) -> tuple[sa.Select[Any], dict[str, int]]:
        bits = binding.spec.field(field).type.integer_bits
        before = sa.func.coalesce(binding.core.c[field], sa.literal_column("0"))
        step = TableBinding.parameter("v")
        wide = sa.cast(before, sa.Numeric()) + sa.cast(step, sa.Numeric())
        fits = wide.between(sa.literal_column(str(-(1 << (bits - 1)))), sa.literal_column(str((1 << (bits - 1)) - 1)))
        query = statements.outcome_of(
            binding, report=before, changes={field: before + step}, when=fits, inserts={field: step}
        )
        return query, {**binding.key_types, "v": binding.oids[field]}

    def parameters(binding: TableBinding) -> dict[str, bytes | None]:
        return {**_key(binding, row), "v": encode_value(binding.spec.field(field), amount)}

    return _run(tx, table, ("increment", field), make, parameters)
