"""The indexes of a table in use: built while others read and write, and removed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column, index_name, literal, qualified, quoted
from structable.backends.postgresql.sql.row_limit import size_of
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, check_index_sizes

from .ddl_lock import AdminWork, TableLock, WaitBudget
from .inspection import inspect

_log = logging.getLogger("structable.postgresql")


def index_definition(
    schema: str, table: str, table_id: int, field: str, primary_key: Iterable[str], *, concurrently: bool = False
) -> str:
    """Return the command that makes the index of a field; entries of one value are in key order."""
    name = quoted(index_name(table_id, field))
    key = ", ".join(map(column, primary_key))
    how = "concurrently " if concurrently else ""
    return f"create index {how}{name} on {qualified(schema, table)} ({column(field)} nulls first, {key})"


def index_removal(binding: TableBinding, field: str) -> str:
    """Return the command that drops the index of a field."""
    return f"drop index if exists {qualified(binding.schema, index_name(binding.version.id, field))}"


def remove_indexes(work: AdminWork, binding: TableBinding, fields: Iterable[str], budget: WaitBudget) -> None:
    """Remove unused indexes that a failed build has left."""
    found = inspect(work.ask, binding.schema, binding.version)
    there = [name for name in fields if index_name(binding.version.id, name) in found.indexes]
    if there:
        _log.info("removing unused indexes of table %r, on %s", binding.spec.name, ", ".join(there))
        work.change(
            lambda: work.connection.pipeline([command(index_removal(binding, name)) for name in there]),
            lock=TableLock(binding.qualified, "access exclusive"),
            budget=budget,
        )


def check_indexed_rows(work: AdminWork, binding: TableBinding, fields: Iterable[str]) -> None:
    """Reject a field with a value, in any row, that is too large for an index."""
    spec = binding.write_spec
    key = size_of(spec, ((one, column(one.name)) for one in spec.key_fields)) or "0"
    for name in fields:
        if spec.field(name).type.width:
            continue  # within the limit even with the largest key
        value = size_of(spec, [(spec.field(name), column(name))])
        rows = work.ask(
            command(
                f"select ({key})::bigint, {value}::bigint from {binding.qualified} "
                f"where {value} > {MAX_KEY_SIZE} or {value} + {key} > {MAX_KEY_AND_INDEX_SIZE} limit 1"
            )
        )
        for key_size, size in rows:
            check_index_sizes(spec, int(str(key_size)), {name: int(str(size))})


def estimated_rows(work: AdminWork, binding: TableBinding) -> int:
    """Return the server's last estimate of a table's rows."""
    estimate = f"select greatest(reltuples, 0)::bigint from pg_class where oid = {literal(binding.qualified)}::regclass"
    return int(str(work.ask(command(estimate))[0][0]))


def build_index(work: AdminWork, binding: TableBinding, field: str) -> None:
    """Build the index of a field while the table is in use, again after deadlocks; the values must fit it.

    An invalid index may remain if open transactions block the build for too long.
    """
    spec, table = binding.spec, binding.version
    definition = index_definition(binding.schema, spec.name, table.id, field, table.stored_key, concurrently=True)
    while not work.outside(definition):
        _log.info("building the index of table %r on %r again after a deadlock", spec.name, field)
        remove_indexes(work, binding, [field], work.budget)
