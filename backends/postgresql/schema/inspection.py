"""The columns and indexes of a table in the database, and their differences from its record in the catalog.

`diagnose` finds columns that run out, and sessions that hold tables for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from structable.backends.postgresql.driver.statement import Ask, command
from structable.backends.postgresql.feeds.feed_objects import feed_triggers
from structable.backends.postgresql.sql.binding import TableVersion
from structable.backends.postgresql.sql.names import column_name, index_name, literal, qualified, token_name
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import DataCorruptionError, Field, FieldType, Finding, FindingLevel

_C_COLLATION = 950
_MOST_COLUMNS = 1_600
_MANY_COLUMNS = 1_200
_LONG_HELD = 10
"""Seconds for which a session may hold tables without being reported."""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column found in the database."""

    type_name: str  # as the server spells it
    collation: int  # 0 for types without one

    def holds(self, field: Field) -> bool:
        """Return whether the column can hold a field: its type and collation are right."""
        collated = field.type is not FieldType.STRING or self.collation == _C_COLLATION
        return self.type_name == stored_type(field).name and collated


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as found in the database."""

    exists: bool
    columns: Mapping[str, FoundColumn]
    indexes: Mapping[str, bool]  # whether each is valid
    token: bool  # whether the function of the version exists
    triggers: frozenset[str]  # the triggers that run for every writer


def inspect(ask: Ask, schema: str, table: TableVersion) -> FoundTable:
    """Inspect a table in the database."""
    where = literal(qualified(schema, table.spec.name)) + "::text"
    token = literal(f"{qualified(schema, token_name(table.id, table.version))}()")
    there, has_token = ask(
        command(f"select exists(select from pg_class where oid = to_regclass({where}) and relkind in ('r', 'p')), "
                f"to_regprocedure({token}) is not null")
    )[0]  # fmt: skip
    columns = ask(
        command(
            "select attname::text, format_type(atttypid, atttypmod), attcollation::bigint from pg_attribute "
            f"where attrelid = to_regclass({where}) and attnum > 0 and not attisdropped"
        )
    )
    indexes = ask(
        command(
            "select c.relname::text, i.indisvalid and i.indisready from pg_index i "
            f"join pg_class c on c.oid = i.indexrelid where i.indrelid = to_regclass({where})"
        )
    )
    triggers = ask(
        command(
            f"select tgname::text from pg_trigger where tgrelid = to_regclass({where}) and tgenabled in ('O', 'A') "
            "and not tgisinternal"
        )
    )
    return FoundTable(
        bool(there),
        {str(name): FoundColumn(str(kind), int(str(collation))) for name, kind, collation in columns},
        {str(name): bool(valid) for name, valid in indexes},
        bool(has_token),
        frozenset(str(name) for (name,) in triggers),
    )


def differences(found: FoundTable, table: TableVersion) -> list[str]:
    """Return the differences of a table from its record, one clause each."""
    if not found.exists:
        return ["the table itself is gone"]
    wrong = []
    for field in table.spec.fields:
        column = found.columns.get(column_name(field.name))
        wanted = stored_type(field).name
        if column is None:
            wrong.append(f"the column of field {field.name!r} is gone")
        elif column.type_name != wanted:
            wrong.append(f"the column of field {field.name!r} is of type {column.type_name}, not {wanted}")
        elif not column.holds(field):
            wrong.append(f'the column of field {field.name!r} does not have the collation "C"')
    if f"_k{table.id:x}" not in found.indexes:
        wrong.append("the primary key is gone")
    for name in table.spec.indexes:
        if not found.indexes.get(index_name(table.id, name), False):
            wrong.append(f"the index of field {name!r} is gone or not valid")
    if not found.token:
        wrong.append(f"the function {token_name(table.id, table.version)} is gone")
    for name in () if table.feed is None else feed_triggers(table.feed):
        if name not in found.triggers:
            wrong.append(f"the trigger {name} of the change feed is gone or disabled")
    return wrong


def require_intact(ask: Ask, schema: str, table: TableVersion) -> FoundTable:
    """Inspect a table in the database, and reject one that was altered outside structable."""
    found = inspect(ask, schema, table)
    found_wrong = differences(found, table)
    if found_wrong:
        raise DataCorruptionError(
            f"table {table.spec.name!r} in the schema {schema!r} was altered outside structable: "
            f"{'; '.join(found_wrong)}"
        )
    return found


def diagnose(ask: Ask, schema: str) -> Iterator[Finding]:
    """Yield tables that have nearly all columns that the server allows, and sessions that block changes of tables."""
    tables = (
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        f"and n.nspname = {literal(schema)} and c.relkind in ('r', 'p') and left(c.relname, 11) <> '_structable' "
    )
    for name, count, dropped in ask(
        command(
            "select c.relname::text, count(*), count(*) filter (where a.attisdropped) "
            f"{tables} join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 "
            f"group by 1 having count(*) > {_MANY_COLUMNS} order by 1"
        )
    ):
        text = (
            f"{count} of the {_MOST_COLUMNS:,} columns that a table may ever have, {dropped} of them dropped; before "
            "they run out, copy the table to a new one"
        )
        yield Finding(FindingLevel.NOTE, f"table {name}", text)
    for pid, application, state, seconds, held in ask(
        command(
            "select s.pid::bigint, coalesce(s.application_name, ''), coalesce(s.state, ''), "
            "extract(epoch from now() - s.xact_start)::bigint, string_agg(distinct c.relname::text, ', ') "
            f"{tables} join pg_locks l on l.relation = c.oid and l.granted "
            "join pg_stat_activity s on s.pid = l.pid and s.pid <> pg_backend_pid() "
            f"where now() - s.xact_start >= interval '{_LONG_HELD} seconds' group by 1, 2, 3, 4 order by 1"
        )
    ):
        text = f"{state}, has held {held} for {seconds} s; changes of these tables wait for it"
        yield Finding(FindingLevel.NOTE, f"session {pid} {application}".rstrip(), text)
