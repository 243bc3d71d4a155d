"""`delete_all` and `update_all`: one statement for all rows of a range, run with the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql import statements
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.queries import condition_of, count_call
from structable.spi import FieldSizeLimitError, Value
from structable.spi.rules.scans import ScanRequest
from structable.spi.values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, value_size

from .bound_table import BoundTable
from .server_transaction import ServerTransaction

__all__ = ["delete_matching", "update_matching"]


def delete_matching(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> int:
    """Delete the rows of a scan and return their number."""

    def build(binding: TableBinding) -> Call:
        conditions, tests = condition_of(binding, request)
        return conditions.call(sa.delete(binding.core).where(*tests))

    return _counted(tx, table, request, build)


def _counted(
    tx: ServerTransaction,
    table: BoundTable,
    request: ScanRequest,
    build: Callable[[TableBinding], Call],
    row_bytes: int = 0,
) -> int:
    """Count the rows of a scan, and defer the statement that writes them: the snapshot keeps them the same."""
    count = int(str(tx.rows_of(tx.ask(table, lambda binding: count_call(binding, request)))[0][0]))
    if count:
        tx.require_room(count * row_bytes)
        tx.defer(table, build)
        tx.note_written(count * row_bytes)
    return count


def update_matching(
    tx: ServerTransaction, table: BoundTable, request: ScanRequest, changes: Mapping[str, Value]
) -> int:
    """Change fields of the rows of a scan and return their number; changes none if a row would grow over a limit."""
    sizes = {name: value_size(table.binding.write_spec.field(name), value) for name, value in changes.items()}
    _require_sizes(tx, table, request, changes, sizes)

    def build(binding: TableBinding) -> Call:
        conditions, tests = condition_of(binding, request)
        new = _assigned(binding, conditions, changes)
        first = binding.core.c[binding.spec.primary_key[0]]
        assignments = {binding.core.c[name]: value for name, value in new.items()} or {first: first}
        return conditions.call(sa.update(binding.core).where(*tests).values(assignments))

    return _counted(tx, table, request, build, sum(sizes.values()))


def _assigned(
    binding: TableBinding, conditions: Conditions, changes: Mapping[str, Value]
) -> dict[str, sa.ColumnElement[Any]]:
    return {name: conditions.parameter(binding.spec.field(name), value) for name, value in changes.items()}


def _require_sizes(
    tx: ServerTransaction,
    table: BoundTable,
    request: ScanRequest,
    changes: Mapping[str, Value],
    sizes: Mapping[str, int],
) -> None:
    spec = table.binding.write_spec
    indexed = {name: sizes[name] for name in spec.indexes if sizes.get(name, 0) + MAX_KEY_SIZE > MAX_KEY_AND_INDEX_SIZE}
    grows = any(sizes.values()) and table.binding.width_without(()) is None
    if not indexed and not grows:
        return
    fields = spec.key_fields

    def build(binding: TableBinding) -> Call:
        conditions, tests = condition_of(binding, request)
        row = statements.row_size(binding, _assigned(binding, conditions, changes))
        key = statements.size_of(binding, [(field, binding.core.c[field.name]) for field in fields])
        limits = [row > sa.literal_column(str(MAX_ROW_SIZE))]
        limits += [key > sa.literal_column(str(MAX_KEY_AND_INDEX_SIZE - size)) for size in indexed.values()]
        return conditions.call(sa.select(row, key).where(*tests, sa.or_(*limits)).limit(sa.literal_column("1")))

    found = tx.rows_of(tx.ask(table, build))
    if not found:
        return
    row_size, key_size = (int(str(size)) for size in found[0])
    if row_size > MAX_ROW_SIZE:
        raise FieldSizeLimitError(spec.name, "row", row_size, MAX_ROW_SIZE)
    name, size = max(indexed.items(), key=lambda one: one[1])
    raise FieldSizeLimitError(spec.name, f"primary key with {name}", key_size + size, MAX_KEY_AND_INDEX_SIZE)
