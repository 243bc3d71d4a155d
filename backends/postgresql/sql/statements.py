"""The statements of single rows and of batches of rows, built by SQLAlchemy and kept by the table's binding.

An upsert changes the row if the transaction's snapshot has it, and inserts it otherwise. ON CONFLICT is unsuitable: if
another transaction deleted the row meanwhile, it would insert the row without the conflict that the contract demands.
The server reports a conflict if the row has changed since the snapshot; the unique key reports a row inserted
meanwhile.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from structable.backends.postgresql.driver.statement import Call, Statement
from structable.spi import Field, FieldType

from .binding import TableBinding, compiled
from .names import column_name
from .row_codec import Pieces
from .types import stored_type

__all__ = [
    "RowStatement",
    "batch_upsert",
    "change",
    "current",
    "delete_row",
    "lookup",
    "lookup_many",
    "put",
    "oversized",
    "row_size",
    "size_of",
]


def _columns(binding: TableBinding, names: Sequence[str]) -> list[sa.ColumnElement[Any]]:
    return [binding.core.c[name] for name in names] or [_number(1)]


def current(binding: TableBinding) -> Statement:
    """Return the statement that the server refuses unless the binding is the table's current version."""
    found: Statement = binding.kept("current", lambda: Statement(f"select {binding.token}"))
    return found


def lookup(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that reads some fields of the row of a key, `k0` and so on."""

    def make() -> Statement:
        query = sa.select(*_columns(binding, names)).where(binding.key_matches, binding.current)
        return compiled(query, binding.key_types)[0]

    found: Statement = binding.kept(("lookup", names), make)
    return found


def _given(binding: TableBinding, names: Sequence[str]) -> tuple[sa.TableValuedAlias, dict[str, int]]:
    """Return rows given as arrays, one parameter `a0`, `a1` and so on for each column."""
    spec = binding.spec
    arrays = [TableBinding.parameter(f"a{place}") for place in range(len(names))]
    columns = [sa.column(quoted_name(column_name(name), True), stored_type(spec.field(name)).core) for name in names]
    given = sa.func.unnest(*arrays).table_valued(*columns, name="given").render_derived()
    types = {f"a{place}": stored_type(spec.field(name)).array_oid for place, name in enumerate(names)}
    return given, types


def _of(given: sa.FromClause, name: str) -> sa.ColumnElement[Any]:
    return given.c[column_name(name)]


def _same_key(binding: TableBinding, given: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(*(binding.core.c[name] == _of(given, name) for name in binding.spec.primary_key))


def lookup_many(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that reads some fields of the rows of many keys, in key order."""

    def make() -> Statement:
        key = binding.spec.primary_key
        given, types = _given(binding, key)
        query = (
            sa.select(*_columns(binding, names))
            .select_from(sa.join(binding.core, given, _same_key(binding, given)))
            .where(binding.current)
            .order_by(*(binding.core.c[name] for name in key))
        )
        return compiled(query, types, prepare=False)[0]

    found: Statement = binding.kept(("lookup_many", names), make)
    return found


def _value_types(binding: TableBinding, names: Sequence[str]) -> dict[str, int]:
    """Return the parameters `v0`, `v1` ... for fields in the order of `TableBinding.ordered`; the key is `k0`..."""
    values = [name for name in names if name not in binding.spec.primary_key]
    return {**binding.key_types, **{f"v{place}": binding.oids[name] for place, name in enumerate(values)}}


def _assignments(binding: TableBinding, names: Sequence[str]) -> dict[Any, Any]:
    values = [name for name in names if name not in binding.spec.primary_key]
    return {binding.core.c[name]: TableBinding.parameter(f"v{place}") for place, name in enumerate(values)}


def row_size(binding: TableBinding, new: Mapping[str, sa.ColumnElement[Any]]) -> sa.ColumnElement[int]:
    """Return the size of a row after the fields in `new` have been changed, as an expression."""
    return size_of(binding, [(field, new.get(field.name, binding.core.c[field.name])) for field in binding.spec.fields])


def size_of(binding: TableBinding, values: Sequence[tuple[Field, sa.ColumnElement[Any]]]) -> sa.ColumnElement[int]:
    """Return the size of values in the contract, as an expression."""
    terms: list[sa.ColumnElement[Any]] = []
    for field, value in values:
        if field.type in (FieldType.STRING, FieldType.BYTES):
            terms.append(sa.func.coalesce(sa.func.octet_length(value), _number(0)))
        elif field.name in binding.spec.primary_key:
            terms.append(_number(field.type.width))
        else:
            terms.append(sa.case((value.is_(None), _number(0)), else_=_number(field.type.width)))
    return reduce(operator.add, terms)


def _number(value: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(value), sa.Integer())


def _update(binding: TableBinding, names: tuple[str, ...]) -> sa.Update:
    assignments = _assignments(binding, names)
    if not assignments:
        # The row is written even if nothing changes: an upsert is a write, and must conflict as one.
        first = binding.core.c[binding.spec.primary_key[0]]
        assignments = {first: first}
    return sa.update(binding.core).where(binding.key_matches, binding.current).values(assignments)


class RowStatement(NamedTuple):
    """A statement whose parameters are the values of a row, from `RowEncoder.pieces`."""

    statement: Statement
    places: tuple[int, ...]
    """The positions of the pieces, in the order of the parameters."""

    def call(self, pieces: Pieces) -> Call:
        """Return the call for a row."""
        return Call(self.statement, [pieces[place] for place in self.places])


def _row_statement(binding: TableBinding, names: tuple[str, ...], query: sa.ClauseElement) -> RowStatement:
    types = _value_types(binding, names)
    places = {name: place for place, name in enumerate(types)}
    statement, order = compiled(query, types)
    return RowStatement(statement, tuple(places[name] for name in order))


def change(binding: TableBinding, names: tuple[str, ...]) -> RowStatement:
    """Return the statement that changes some fields of an existing row."""
    found: RowStatement = binding.kept(
        ("change", names), lambda: _row_statement(binding, names, _update(binding, names))
    )
    return found


def put(binding: TableBinding, names: tuple[str, ...]) -> RowStatement:
    """Return the statement that changes some fields of a row, or inserts it with these fields."""

    def make() -> RowStatement:
        changed = _update(binding, names).returning(_number(1)).cte("changed")
        absent = ~sa.exists(sa.select(_number(1)).select_from(changed))
        return _row_statement(binding, names, _insert(binding, names, absent))

    found: RowStatement = binding.kept(("put", names), make)
    return found


def _insert(binding: TableBinding, names: tuple[str, ...], condition: sa.ColumnElement[bool]) -> sa.Insert:
    assignments = _assignments(binding, names)
    key = [TableBinding.parameter(name) for name in binding.key_types]
    query = sa.select(*key, *assignments.values()).where(condition, binding.current)
    return sa.insert(binding.core).from_select([*names], query)


def delete_row(binding: TableBinding) -> Statement:
    """Return the statement that deletes the row of a key."""

    def make() -> Statement:
        return compiled(sa.delete(binding.core).where(binding.key_matches, binding.current), binding.key_types)[0]

    found: Statement = binding.kept("delete_row", make)
    return found


def batch_upsert(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that puts many rows of distinct keys: changes existing rows, inserts the others."""

    def make() -> Statement:
        given, types = _given(binding, names)
        key = binding.spec.primary_key
        values = {binding.core.c[name]: _of(given, name) for name in names if name not in key}
        query = sa.update(binding.core).where(_same_key(binding, given), binding.current)
        query = query.values(values or {binding.core.c[key[0]]: binding.core.c[key[0]]})
        changed = query.returning(*(binding.core.c[name] for name in key)).cte("changed")
        seen = sa.exists(
            sa.select(_number(1)).select_from(changed).where(*(changed.c[name] == _of(given, name) for name in key))
        )
        rows = sa.select(*(_of(given, name) for name in names)).where(~seen, binding.current)
        return compiled(sa.insert(binding.core).from_select([*names], rows), types, prepare=False)[0]

    found: Statement = binding.kept(("batch_upsert", names), make)
    return found


def oversized(binding: TableBinding, names: tuple[str, ...], limit: int) -> Statement:
    """Return the statement that finds a row that would be over a size after `batch_upsert`, and its size."""
    given, types = _given(binding, names)
    size = row_size(binding, {name: _of(given, name) for name in names})
    joined = sa.join(binding.core, given, _same_key(binding, given))
    query = sa.select(size).select_from(joined).where(binding.current, size > _number(limit)).limit(_number(1))
    return compiled(query, types, prepare=False)[0]
