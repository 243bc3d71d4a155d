"""The statements of many rows, which are given as arrays.

Each finds a row by the index of the key, and then by its place, whatever the sizes of table and arrays: the server can
keep their plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.selectable import LateralFromClause

from structable.backends.postgresql.driver.statement import Statement
from structable.spi.values import MAX_ROW_SIZE

from .binding import TableBinding, compiled
from .given_rows import column_of, given_rows
from .names import column_name
from .row_sizes import guarded, number, raised, row_size
from .types import stored_type

__all__ = ["delete_many", "increment_many", "lookup_many", "oversized", "upsert_many"]

Changes = dict[str, sa.ColumnElement[Any]]

_PLACE = "_place"
"""Where a row is stored; no field's column has the name."""


def _place(binding: TableBinding) -> sa.ColumnElement[Any]:
    return sa.literal_column(f"{binding.qualified}.ctid", sa.types.NullType()).label(_PLACE)


def _given(binding: TableBinding, names: Sequence[str]) -> tuple[sa.TableValuedAlias, dict[str, int]]:
    """Return rows given as arrays, one parameter `a0`, `a1` and so on for each column."""
    arrays = [TableBinding.parameter(f"a{place}") for place in range(len(names))]
    fields = [binding.spec.field(name) for name in names]
    types = {f"a{place}": stored_type(field).array_oid for place, field in enumerate(fields)}
    return given_rows(fields, arrays), types


def _same_key(binding: TableBinding, given: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(*(binding.core.c[name] == column_of(given, name) for name in binding.spec.primary_key))


def _located(
    binding: TableBinding,
    names: Sequence[str],
    found: Callable[[sa.TableValuedAlias], Sequence[sa.ColumnElement[Any]]],
) -> tuple[sa.TableValuedAlias, LateralFromClause, dict[str, int]]:
    """Return given rows, and for each of them some expressions on the row of its key, which its index finds.

    LIMIT keeps the server from joining in another order, which in a small table would read all of it, ever after, and
    from looking at versions of the row that the index lists behind it.
    """
    given, types = _given(binding, names)
    rows = sa.select(*found(given)).select_from(binding.core).where(_same_key(binding, given), binding.current)
    return given, rows.limit(number(1)).lateral("_found"), types


def lookup_many(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that reads some fields of the rows of many keys, in key order."""

    def make() -> Statement:
        core, key = binding.core, binding.spec.primary_key
        if len(key) == 1:
            # One scan of the index, in two thirds of the time. With more fields the server may prefer to read all rows
            # that have the first ones, as long as these are few, and keep to that.
            column = core.c[key[0]]
            is_one = column == sa.func.any(TableBinding.parameter("a0"))
            query = sa.select(*(core.c[name] for name in names)).where(is_one, binding.current).order_by(column)
            return compiled(query, {"a0": stored_type(binding.key_fields[0]).array_oid}, is_small=False)[0]
        wanted = [core.c[name] for name in dict.fromkeys([*names, *key])]
        given, rows, types = _located(binding, key, lambda _: wanted)
        query = sa.select(*(rows.c[name] for name in names)).select_from(sa.join(given, rows, sa.true()))
        return compiled(query.order_by(*(rows.c[name] for name in key)), types, is_small=False)[0]

    found: Statement = binding.kept(("lookup_many", names), make)
    return found


def delete_many(binding: TableBinding) -> Statement:
    """Return the statement that deletes the rows of many keys."""

    def make() -> Statement:
        given, rows, types = _located(binding, binding.spec.primary_key, lambda _: [_place(binding)])
        doomed = sa.select(rows.c[_PLACE]).select_from(sa.join(given, rows, sa.true())).subquery("_doomed")
        query = sa.delete(binding.core).where(_is_at(binding, doomed), binding.current)
        return compiled(query, types, is_small=False)[0]

    found: Statement = binding.kept("delete_many", make)
    return found


def _is_at(binding: TableBinding, rows: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.literal_column(f"{binding.qualified}.ctid", sa.types.NullType()) == rows.c[_PLACE]


def upsert_many(binding: TableBinding, names: tuple[str, ...], *, checked: bool, there: bool = False) -> Statement:
    """Return the statement that puts rows of distinct keys; if `checked`, it fails if one would be too large.

    If all are `there`, it inserts none, which takes a third less time.
    """

    def make() -> Statement:
        return _batch(binding, names, (lambda new: guarded(binding, new)) if checked else lambda new: new, there=there)

    found: Statement = binding.kept(("upsert_many", names, checked, there), make)
    return found


def increment_many(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that adds to fields of rows of distinct keys, as `statements.increment` does."""

    def make() -> Statement:
        return _batch(binding, names, lambda new: {name: raised(binding, name, one) for name, one in new.items()})

    found: Statement = binding.kept(("increment_many", names), make)
    return found


def _batch(
    binding: TableBinding, names: tuple[str, ...], changed: Callable[[Changes], Changes], *, there: bool = False
) -> Statement:
    """Return the statement that changes existing rows, and inserts the others unless all are `there`."""
    key = binding.spec.primary_key
    given, rows, types = _located(binding, names, lambda _: [_place(binding)])
    located = sa.select(*(column_of(given, name).label(column_name(name)) for name in names), rows.c[_PLACE])
    joined = located.select_from(sa.join(given, rows, sa.true(), isouter=not there))
    found = joined.subquery("_given") if there else joined.cte("_given")
    new = {name: found.c[column_name(name)] for name in names}
    changes = changed({name: value for name, value in new.items() if name not in key})
    values = {binding.core.c[name]: value for name, value in changes.items()}
    # The row is written even if nothing changes: an upsert is a write, and must conflict as one.
    update = sa.update(binding.core).where(_is_at(binding, found), binding.current)
    update = update.values(values or {binding.core.c[key[0]]: binding.core.c[key[0]]})
    if there:
        return compiled(update, types, is_small=False)[0]
    absent = sa.select(*new.values()).where(found.c[_PLACE].is_(None), binding.current)
    query = sa.insert(binding.core).from_select([*names], absent).add_cte(update.cte("_changed"))
    return compiled(query, types, is_small=False)[0]


def oversized(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that finds a row that would be too large after `upsert_many`, and its size."""

    def make() -> Statement:
        def size(given: sa.TableValuedAlias) -> list[sa.ColumnElement[Any]]:
            return [row_size(binding, {name: column_of(given, name) for name in names}).label("_size")]

        given, rows, types = _located(binding, names, size)
        query = sa.select(rows.c["_size"]).select_from(sa.join(given, rows, sa.true()))
        return compiled(query.where(rows.c["_size"] > number(MAX_ROW_SIZE)).limit(number(1)), types, is_small=False)[0]

    found: Statement = binding.kept(("oversized", names), make)
    return found
