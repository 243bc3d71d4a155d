"""A schema full of traps: PostgreSQL's functions, operators and types, under the same names, first on a search path.

Each trap takes a lock of its session, which shows it even in a read-only transaction and after an error that a caller
catches, and then raises an error.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

_SAFE = "-c search_path=pg_catalog"
_CLASS = 1_196_579
"""Of the advisory locks that traps take."""

_FUNCTIONS = """
select format('create function %1$I.%2$I(%3$s) returns %4$s%5$s language plpgsql '
    'as $f$ begin perform %1$I.trap(); end $f$',
    {schema}, p.proname, pg_get_function_identity_arguments(p.oid), case when p.proretset then 'setof ' else '' end,
    format_type(p.prorettype, null))
from pg_proc p
where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.provariadic = 0
    and not exists (select from unnest(p.proargtypes::oid[] || p.prorettype) t(id) join pg_type y on y.oid = t.id
        where y.typtype = 'p' and y.typname not like 'any_%' and y.typname <> 'void' or y.typname = 'any')
    and coalesce(not p.proargmodes && array['o', 'b', 't']::"char"[], true)
"""
_OPERATORS = """
with signs as (
    select distinct o.oprname::text as sign, o.oprleft as l, o.oprright as r, o.oprresult as result
    from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprleft <> 0
    union
    -- A better match than what the server would cast to.
    select s.sign, l.oid, r.oid, 'boolean'::regtype
    from unnest(array['=', '<>', '<', '>', '<=', '>=']) s(sign), pg_type l, pg_type r
    where l.typname = any({types}) and r.typname = any({types})
        and l.typnamespace = 'pg_catalog'::regnamespace and r.typnamespace = 'pg_catalog'::regnamespace
), kinds as (select distinct l, r, result from signs)
select format('create function %1$I.%2$I(%3$s, %4$s) returns %5$s language plpgsql '
    'as $f$ begin perform %1$I.trap(); end $f$',
    {schema}, 'op_' || result, format_type(l, null), format_type(r, null), format_type(result, null))
from kinds
union all
select format('create operator %1$I.%2$s (leftarg = %3$s, rightarg = %4$s, function = %1$I.%5$I)',
    {schema}, sign, format_type(l, null), format_type(r, null), 'op_' || result)
from signs
"""
_AGGREGATES = [
    "create function {s}.trap_count(bigint) returns bigint language plpgsql as $f$ begin perform {s}.trap(); end $f$",
    "create function {s}.trap_any(bigint, anyelement) returns bigint language plpgsql "
    "as $f$ begin perform {s}.trap(); end $f$",
    "create aggregate {s}.count(*) (sfunc = {s}.trap_count, stype = bigint)",
    "create aggregate {s}.count(anyelement) (sfunc = {s}.trap_any, stype = bigint)",
    *(
        f"create function {{s}}.trap_{kind}({kind}, {kind}, {kind}) returns {kind} language plpgsql "
        "as $f$ begin perform {s}.trap(); end $f$"
        for kind in ("text", "bytea")
    ),
    *(
        f"create aggregate {{s}}.string_agg({kind}, {kind}) (sfunc = {{s}}.trap_{kind}, stype = {kind})"
        for kind in ("text", "bytea")
    ),
    "create function {s}.trap_max(anyelement, anyelement) returns anyelement language plpgsql "
    "as $f$ begin perform {s}.trap(); end $f$",
    *(
        f"create aggregate {{s}}.{name}(anyelement) (sfunc = {{s}}.trap_max, stype = anyelement)"
        for name in ("max", "min", "sum")
    ),
]
_RELATIONS = """
select format('create view %1$I.%2$I as select * from pg_catalog.%2$I where %1$I.trap()', {schema}, relname)
from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v')
"""
_TYPES = """
select format('create domain %1$I.%2$I as pg_catalog.%2$I check (%1$I.trap(value))', {schema}, typname)
from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype = 'b' and typcategory <> 'A' and typelem = 0
"""
_TRAPS = [
    "create function {s}.trap() returns boolean language plpgsql as $f$ begin "
    f"perform pg_catalog.pg_advisory_lock_shared({_CLASS}, pg_catalog.pg_backend_pid()); "
    "raise exception 'a trap was sprung'; end $f$ set search_path = pg_catalog",
    "create function {s}.trap(anyelement) returns boolean language plpgsql as $f$ begin perform {s}.trap(); end $f$",
    'create collation {s}."C" from pg_catalog."ucs_basic"',
]
_ALIKE = ["oid", "regproc", "regclass", "regtype", "int2", "int4", "int8", "text", "name", "varchar", "xid", "xid8"]


def plant(conninfo: str, schema: str) -> int:
    """Make a schema of traps; return their number."""
    with psycopg.connect(conninfo, options=_SAFE) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        quoted = sql.Identifier(schema).as_string(connection)
        commands = [text.format(s=quoted) for text in _TRAPS]
        for query in (_FUNCTIONS, _OPERATORS, _RELATIONS, _TYPES):
            given = {"schema": sql.quote(schema), "types": sql.quote(f"{{{','.join(_ALIKE)}}}")}
            found = connection.execute(query.format(**given).encode())
            commands += [str(command) for (command,) in found]
        commands += [text.format(s=quoted) for text in _AGGREGATES]
        # Some cannot be made: only the server's own functions may have their types.
        connection.execute("create temporary table commands (place serial, command text)")
        with connection.cursor() as cursor, cursor.copy("copy commands (command) from stdin") as copy:
            for command in commands:
                copy.write_row([command])
        row = connection.execute(
            "create function pg_temp.planted() returns integer language plpgsql as $f$ "
            "declare one text; made integer := 0; begin "
            "for one in select command from commands order by place loop "
            "begin execute one; made := made + 1; exception when others then null; end; end loop; "
            "return made; end $f$; select pg_temp.planted()"
        )
        row.nextset()
        made = row.fetchone()
    assert made is not None
    return int(made[0])


def sprung(conninfo: str) -> int:
    """Return the number of sessions of a database that have met a trap."""
    with psycopg.connect(conninfo, options=_SAFE) as connection:
        query = "select count(*) from pg_locks where locktype = 'advisory' and classid = %s"
        row = connection.execute(query, [_CLASS]).fetchone()
    assert row is not None
    return int(row[0])
