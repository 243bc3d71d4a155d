"""The steps that change the schema of a table in use.

The steps that may fail or take long come first, and have no visible effect: they add columns that no specification
names yet, and indexes that are not used yet. One transaction then makes the remaining changes of columns and updates
the catalog. The transaction records its number there, and replaces the function that all statements on the table name:
a transaction with an older snapshot gets a conflict; without it, a table rewritten since would read as empty.

An interrupted call leaves unused columns and indexes. The next call takes them over.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from structable.backends.postgresql.driver.errors import PostgreSQLError, StatementRefusedError
from structable.backends.postgresql.driver.statement import TEXT, Call, Statement, command
from structable.backends.postgresql.feeds.feed_objects import feed_without
from structable.backends.postgresql.sql.binding import TableBinding, TableVersion
from structable.backends.postgresql.sql.names import CATALOG, column_name, index_name, qualified, quoted, token_name
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import Field, Progress, StorageUnavailableError, StructableError, TableSpecification
from structable.spi.authors import SchemaChange

from .catalog import encode_specification, format_for
from .ddl_lock import AdminWork, TableLock, WaitBudget
from .feed_changes import change_feed, changes_producer, with_feed
from .indexes import build_index, check_indexed_rows, estimated_rows, index_removal, remove_indexes
from .inspection import FoundTable, require_intact

_log = logging.getLogger("structable.postgresql")

_CLEANING = 3.0  # seconds to wait for the removal of a failed call's remains


def token_definition(schema: str, table: TableVersion) -> str:
    """Return the command that makes the function that exists as long as a version of a table."""
    name = qualified(schema, token_name(table.id, table.version))
    return f"create function {name}() returns boolean language sql immutable parallel safe as 'select true'"


def _version_change(schema: str, before: TableVersion, after: TableVersion) -> list[Call]:
    """Return the calls that replace a version of a table by the next; they must run in one transaction."""
    specification, building = encode_specification(after)
    update = Statement(
        f"update {qualified(schema, CATALOG)} set version = version + 1, specification = $2, building = $3, "
        "changed_by = pg_current_xact_id() where name = $1",
        (TEXT, TEXT, TEXT),
        prepare=False,
    )
    return [
        command(f"drop function if exists {qualified(schema, token_name(before.id, before.version))}()"),
        command(token_definition(schema, after)),
        Call(update, (after.spec.name.encode(), specification.encode(), building.encode())),
        *format_for(schema, after.spec),
    ]


def _next(table: TableVersion, spec: TableSpecification, building: set[str]) -> TableVersion:
    return replace(table, version=table.version + 1, spec=spec, building=tuple(sorted(building)))


def remove_index(work: AdminWork, schema: str, table: TableVersion, field: str) -> None:
    """Remove an index, even if its build was interrupted."""
    spec = table.spec
    left = spec.evolve(indexes=[name for name in spec.indexes if name != field])
    after = _next(table, left, set(table.building) - {field})
    binding = TableBinding(schema, table)
    calls = [command(index_removal(binding, field)), *_version_change(schema, table, after)]
    work.change(lambda: work.connection.pipeline(calls), lock=TableLock(binding.qualified, "access exclusive"))


def change_rules(work: AdminWork, schema: str, table: TableVersion, spec: TableSpecification) -> None:
    """Give a table the rules of a specification once all transactions that wrote under its former rules have ended."""
    binding = TableBinding(schema, table)
    calls = _version_change(schema, table, _next(table, spec, set(table.building)))
    work.change(lambda: work.connection.pipeline(calls), lock=TableLock(binding.qualified, "share row exclusive"))


def begin_signals(work: AdminWork, schema: str, table: TableVersion) -> None:
    """Make commits signal the feed of a table from now on; open transactions continue with the former version."""
    after = replace(_next(table, table.spec, set(table.building)), signals=True)
    work.change(lambda: work.connection.pipeline(_version_change(schema, table, after)))


def remove_field(work: AdminWork, schema: str, table: TableVersion, spec: TableSpecification, field: Field) -> None:
    """Remove a field that a specification lacks, with its values, and from the entries of the table's feed."""
    require_intact(work.ask, schema, table)
    after = _next(table, spec, set(table.building))
    after = replace(after, dropped={**table.dropped, field.name: after.version})
    binding = TableBinding(schema, table)
    feed = [] if table.feed is None else feed_without(schema, spec, table.feed, field)
    calls = [
        command(f"alter table {binding.qualified} drop column {quoted(column_name(field.name))}"),
        *map(command, feed),
        *_version_change(schema, table, after),
    ]
    work.change(lambda: work.connection.pipeline(calls), lock=TableLock(binding.qualified, "access exclusive"))


def change_table(
    work: AdminWork, schema: str, table: TableVersion, change: SchemaChange, progress: Progress | None
) -> None:
    """Apply a change to a table, unless it was altered outside structable or its rows are too large for a new index."""
    found = require_intact(work.ask, schema, table)
    if not change.added_indexes:
        _finish(work, schema, table, change, found)
        return
    work.await_older_transactions()
    prepared = table
    try:
        prepared = _prepare(work, schema, table, change, found)
        _build(work, schema, prepared, change, found, progress, checked=set(table.building))
        _finish(work, schema, prepared, change, require_intact(work.ask, schema, prepared))
    except (StructableError, StatementRefusedError):
        try:
            _undo(work, schema, table, prepared, change)
        except (PostgreSQLError, StorageUnavailableError) as error:
            _log.warning(
                "indexes of table %r that a failed change began are left to the next one: %s", table.spec.name, error
            )
        raise


def _prepare(
    work: AdminWork, schema: str, table: TableVersion, change: SchemaChange, found: FoundTable
) -> TableVersion:
    """Add the new columns that get an index, and require writes to fit the new indexes of existing ones."""
    binding = TableBinding(schema, table)
    columns = _additions(binding, change, found)
    building = set(table.building).union(name for name in change.added_indexes if name in table.spec)
    calls = [command(text) for text in columns]
    after = table
    if building != set(table.building):
        after = _next(table, table.spec, building)
        calls += _version_change(schema, table, after)
    if calls:
        # Transactions that wrote the table have ended; later writers see the change.
        mode = "access exclusive" if columns else "share"
        work.change(lambda: work.connection.pipeline(calls), lock=TableLock(binding.qualified, mode))
    return after


def _additions(binding: TableBinding, change: SchemaChange, found: FoundTable) -> list[str]:
    """Return the commands that add columns; a column left by an interrupted call is reused or replaced."""
    commands = []
    for field in change.added_fields:
        column = column_name(field.name)
        there = found.columns.get(column)
        if there is not None and there.holds(field):
            continue
        if there is not None:
            commands.append(f"alter table {binding.qualified} drop column {quoted(column)}")
        commands.append(f"alter table {binding.qualified} add column {quoted(column)} {stored_type(field).sql}")
    return commands


def _build(
    work: AdminWork,
    schema: str,
    table: TableVersion,
    change: SchemaChange,
    found: FoundTable,
    progress: Progress | None,
    *,
    checked: set[str],
) -> None:
    binding = TableBinding(schema, table)
    old = [name for name in change.added_indexes if name in table.spec]
    valid = {name for name in change.added_indexes if found.indexes.get(index_name(table.id, name), False)}
    check_indexed_rows(work, binding, [name for name in old if name not in valid or name not in checked])
    invalid = [name for name in change.added_indexes if name not in valid]
    remove_indexes(work, binding, invalid, work.budget)
    for name in invalid:
        rows = 0 if progress is None else estimated_rows(work, binding)
        if progress is not None:
            progress(0, rows)
        build_index(work, binding, name)
        if progress is not None:
            progress(rows, rows)


def _finish(work: AdminWork, schema: str, table: TableVersion, change: SchemaChange, found: FoundTable) -> None:
    """Make the remaining changes of columns, and update the catalog."""
    binding = TableBinding(schema, table)
    alterations = _additions(binding, change, found)
    for field in change.widened_fields:
        wide = stored_type(field).name
        if wide != stored_type(table.spec.field(field.name)).name:
            alterations.append(
                f"alter table {binding.qualified} alter column {quoted(column_name(field.name))} type {wide}"
            )
    following = replace(_next(table, change.after, set(table.building) - set(change.added_indexes)), taken=change.taken)

    def finish() -> None:
        after = with_feed(work.connection, schema, table, following, change)
        work.connection.pipeline(
            [
                *map(command, alterations),
                *change_feed(schema, table, after, change),
                *_version_change(schema, table, after),
            ]
        )

    # A transaction may continue with the old version if the columns stay.
    mode = "access exclusive" if alterations else "share row exclusive" if changes_producer(change) else None
    work.change(finish, lock=None if mode is None else TableLock(binding.qualified, mode))


def _undo(work: AdminWork, schema: str, table: TableVersion, now: TableVersion, change: SchemaChange) -> None:
    """Remove the indexes of a failed call, and its demands on writes."""
    if work.connection.closed:
        return
    budget = WaitBudget(_CLEANING)
    remove_indexes(work, TableBinding(schema, now), change.added_indexes, budget)
    building = set(table.building) - set(change.added_indexes)
    if building != set(now.building):
        calls = _version_change(schema, now, _next(now, table.spec, building))
        work.change(lambda: work.connection.pipeline(calls), budget=budget)
