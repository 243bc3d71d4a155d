"""The statements of single rows, built by SQLAlchemy and kept by the table's binding.

An upsert changes the row if the transaction's snapshot has it, and inserts it otherwise. ON CONFLICT is unsuitable: if
another transaction deleted the row meanwhile, it would insert the row without the conflict that the contract demands.
The server reports a conflict if the row has changed since the snapshot; the unique key reports a row inserted
meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Statement

from .binding import PlacedStatement, TableBinding, compiled
from .row_sizes import guarded, number, raised

__all__ = ["change", "current", "delete_row", "increment", "insert", "lookup", "put"]


def _columns(binding: TableBinding, names: Sequence[str]) -> list[sa.ColumnElement[Any]]:
    return [binding.core.c[name] for name in names] or [number(1)]


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


def _value_types(binding: TableBinding, names: Sequence[str]) -> dict[str, int]:
    """Return the parameters `v0`, `v1` ... for fields in the order of `TableBinding.ordered`; the key is `k0`..."""
    values = [name for name in names if name not in binding.spec.primary_key]
    return {**binding.key_types, **{f"v{place}": binding.oids[name] for place, name in enumerate(values)}}


def _new_values(binding: TableBinding, names: Sequence[str]) -> dict[str, sa.ColumnElement[Any]]:
    values = [name for name in names if name not in binding.spec.primary_key]
    return {name: TableBinding.parameter(f"v{place}") for place, name in enumerate(values)}


def _update(binding: TableBinding, new: Mapping[str, sa.ColumnElement[Any]]) -> sa.Update:
    # The row is written even if nothing changes: an upsert is a write, and must conflict as one.
    first = binding.core.c[binding.spec.primary_key[0]]
    values = {binding.core.c[name]: value for name, value in new.items()} or {first: first}
    return sa.update(binding.core).where(binding.key_matches, binding.current).values(values)


def _changes(binding: TableBinding, names: tuple[str, ...], checked: bool) -> Mapping[str, sa.ColumnElement[Any]]:
    new = _new_values(binding, names)
    return guarded(binding, new) if checked else new


def _row_statement(binding: TableBinding, names: tuple[str, ...], query: sa.ClauseElement) -> PlacedStatement:
    types = _value_types(binding, names)
    places = {name: place for place, name in enumerate(types)}
    statement, order = compiled(query, types)
    return PlacedStatement(statement, tuple(places[name] for name in order))


def change(binding: TableBinding, names: tuple[str, ...], *, checked: bool = False) -> PlacedStatement:
    """Return the statement that changes some fields of an existing row; if `checked`, it fails if it gets too large."""

    def make() -> PlacedStatement:
        return _row_statement(binding, names, _update(binding, _changes(binding, names, checked)))

    found: PlacedStatement = binding.kept(("change", names, checked), make)
    return found


def put(binding: TableBinding, names: tuple[str, ...], *, checked: bool = False) -> PlacedStatement:
    """Return the statement that changes some fields of a row, as `change` does, or inserts it with these fields."""

    def make() -> PlacedStatement:
        return _put(binding, names, _changes(binding, names, checked))

    found: PlacedStatement = binding.kept(("put", names, checked), make)
    return found


def insert(binding: TableBinding, names: tuple[str, ...]) -> PlacedStatement:
    """Return the statement that inserts a row with some fields, which the server refuses if its key exists."""

    def make() -> PlacedStatement:
        values = [TableBinding.parameter(name) for name in _value_types(binding, names)]
        query = sa.select(*values).where(binding.current)
        return _row_statement(binding, names, sa.insert(binding.core).from_select([*names], query))

    found: PlacedStatement = binding.kept(("insert", names), make)
    return found


def increment(binding: TableBinding, names: tuple[str, ...]) -> PlacedStatement:
    """Return the statement that adds to some fields of a row, or inserts it; it fails as `raised` does."""

    def make() -> PlacedStatement:
        new = _new_values(binding, names)
        return _put(binding, names, {name: raised(binding, name, amount) for name, amount in new.items()})

    found: PlacedStatement = binding.kept(("increment", names), make)
    return found


def _put(
    binding: TableBinding, names: tuple[str, ...], changes: Mapping[str, sa.ColumnElement[Any]]
) -> PlacedStatement:
    changed = _update(binding, changes).returning(number(1)).cte("changed")
    absent = ~sa.exists(sa.select(number(1)).select_from(changed))
    key = [TableBinding.parameter(name) for name in binding.key_types]
    query = sa.select(*key, *_new_values(binding, names).values()).where(absent, binding.current)
    return _row_statement(binding, names, sa.insert(binding.core).from_select([*names], query))


def delete_row(binding: TableBinding) -> Statement:
    """Return the statement that deletes the row of a key."""

    def make() -> Statement:
        return compiled(sa.delete(binding.core).where(binding.key_matches, binding.current), binding.key_types)[0]

    found: Statement = binding.kept("delete_row", make)
    return found
