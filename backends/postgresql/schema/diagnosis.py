"""Findings about a schema's tables: columns that run out, and sessions that hold tables for long."""

from __future__ import annotations

from collections.abc import Iterator

from structable.backends.postgresql.driver.statement import Ask, command
from structable.backends.postgresql.sql.names import literal
from structable.spi import Finding, FindingLevel

__all__ = ["diagnose"]

_MOST_COLUMNS = 1_600
_MANY_COLUMNS = 1_200
_SECONDS = 10


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
            f"where now() - s.xact_start >= interval '{_SECONDS} seconds' group by 1, 2, 3, 4 order by 1"
        )
    ):
        text = f"{state}, has held {held} for {seconds} s; changes of these tables wait for it"
        yield Finding(FindingLevel.NOTE, f"session {pid} {application}".rstrip(), text)
