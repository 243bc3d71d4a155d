"""The objects that all feeds of a schema share: tables, and the functions that give a transaction its version.

A statement that changes rows takes a ticket, and the first one of a ticket leaves a row in `_structable_touched`. Its
deferred trigger runs in the commit, when the transaction has all its row locks: the first one takes a lock on
`_structable_gate`, draws a version, and records all tickets of the transaction under it. If the transaction has drawn
before, because of SET CONSTRAINTS or a deferred trigger of another table, its earlier records move up to the newest
version.

A transaction finds its tickets by settings, which anyone can forge: they hold the places of the rows in
`_structable_touched`, which count only if they have the transaction's number. Places of recorded commits count only if
a transaction in progress has put the row there: only its own row is visible. So a forged setting can divide the forging
transaction into several versions, and do nothing else. No function reads by an index or a whole table, so that
SERIALIZABLE finds no false conflicts.
"""

from __future__ import annotations

from structable.backends.postgresql.sql.names import literal, qualified

from .layout import COMMITS, FEEDS, GATE, MARKS, TICKETS, TOUCHED, VERSIONS

TICKET = "_structable_ticket"
"""The function that returns the transaction's ticket in a feed, null if it has none."""
TOUCH = "_structable_touch"
"""The function that records a new ticket in a feed, and whether the feed begins with it."""
DRAW = "_structable_draw"
"""The function of the deferred trigger."""


def function(schema: str, name: str, arguments: str, returns: str, body: str, *, definer: bool = True) -> list[str]:
    """Return the commands that define a PL/pgSQL function, which only its owner may call.

    A function that is not a `definer` is only called by the others: it has their privileges and their settings.
    """
    # Once a vacuum has found a table small, the planner reads all of it even if the place of the row is known. Then
    # SERIALIZABLE transactions conflict, and each commit takes longer than the previous one, until the next vacuum.
    settings = "set search_path = pg_catalog, pg_temp set enable_seqscan = off "
    safety = f"security definer {settings}" if definer else ""
    where = qualified(schema, name)
    return [
        f"create or replace function {where}({arguments}) returns {returns} language plpgsql {safety}"
        f"as {literal(body)}",
        f"revoke all on function {where}({arguments}) from public",
    ]


def shared_definitions(schema: str) -> list[str]:
    """Return the commands that create the objects that all feeds of a schema share."""
    commits, feeds, touched = (qualified(schema, name) for name in (COMMITS, FEEDS, TOUCHED))
    return [
        f"create sequence {qualified(schema, TICKETS)}",
        f"create sequence {qualified(schema, VERSIONS)}",
        f"create table {qualified(schema, GATE)} ()",
        f"create table {feeds} (feed bigint primary key generated always as identity, token text not null, "
        "floor bigint, floor_at timestamptz)",
        f"create table {commits} (feed bigint not null, version bigint not null, ticket bigint not null, "
        "at timestamptz not null, primary key (feed, version, ticket))",
        f"create index on {commits} (version)",
        f"create index on {commits} using brin (at)",
        f"create table {qualified(schema, MARKS)} "
        "(feed bigint not null, version bigint not null, at timestamptz not null, primary key (feed, version))",
        f"create unlogged table {touched} "
        "(ticket bigint not null, feed bigint not null, number xid8 not null, begins boolean not null)",
        *function(schema, TICKET, "feed bigint", "bigint", _ticket(schema), definer=False),
        *function(schema, TOUCH, "feed bigint, ticket bigint, begins boolean", "text", _touch(schema), definer=False),
        *function(schema, DRAW, "", "trigger", _draw(schema)),
        f"create constraint trigger {DRAW} after insert on {touched} deferrable initially deferred "
        f"for each row execute function {qualified(schema, DRAW)}()",
    ]


def _ticket(schema: str) -> str:
    return f"""
declare
    place text := current_setting('structable.feed_' || $1, true);
    found_ticket bigint;
begin
    if place <> '' then
        select t.ticket into found_ticket from {qualified(schema, TOUCHED)} t
        where t.ctid = place::tid and t.feed = $1 and t.number = pg_current_xact_id();
    end if;
    return found_ticket;
end"""


def _touch(schema: str) -> str:
    return f"""
declare
    place tid;
begin
    insert into {qualified(schema, TOUCHED)} as t values ($2, $1, pg_current_xact_id(), $3) returning t.ctid into place;
    return set_config('structable.again_' || $1, '', true) || set_config('structable.feed_' || $1, place::text, true)
        || set_config('structable.touched',
            coalesce(current_setting('structable.touched', true), '') || '"' || place::text || '",', true);
end"""


def _draw(schema: str) -> str:
    commits, feeds, touched = (qualified(schema, name) for name in (COMMITS, FEEDS, TOUCHED))
    # The 32-bit number of the own transaction, or of a subtransaction, is not below the transaction's number.
    own = "(c.xmin::text::bigint - ours % 4294967296 + 4294967296) % 4294967296 + ours"
    return f"""
declare
    drawn text := current_setting('structable.drawn', true);
    places text := coalesce(current_setting('structable.touched', true), '');
    ours bigint;
    given bigint;
    moment timestamptz;
    recorded text;
    done text;
    begun bigint[];
begin
    if places = '' then
        perform from {touched} t where t.ctid = new.ctid;
        if not found then
            return null;
        end if;
    end if;
    lock table {qualified(schema, GATE)} in row exclusive mode;
    given := nextval({literal(qualified(schema, VERSIONS))});
    moment := clock_timestamp();
    if drawn <> '' then
        ours := pg_current_xact_id()::text::bigint;
        with mine as materialized (
            select c.ctid as place, c.feed, c.version from {commits} c
            where c.ctid = any(drawn::tid[]) and pg_xact_status(({own})::text::xid8) = 'in progress'
        ), floors as (
            update {feeds} f set floor = given, floor_at = moment from mine
            where f.feed = mine.feed and f.floor = mine.version
        ), moved as (
            update {commits} c set version = given, at = moment from mine where c.ctid = mine.place returning c.ctid
        )
        select string_agg('"' || ctid::text || '",', '') into drawn from moved;
    end if;
    with gone as (
        delete from {touched} t
        where t.ctid = any(('{{' || places || '"' || new.ctid::text || '"}}')::tid[])
            and t.number = pg_current_xact_id()
        returning t.feed, t.ticket, t.begins
    ), placed as (
        insert into {commits} as c select g.feed, given, g.ticket, moment from gone g returning c.ctid
    )
    select (select string_agg('"' || p.ctid::text || '",', '') from placed p),
        (select array_agg(g.feed) filter (where g.begins) from gone g)
    into recorded, begun;
    drawn := rtrim(coalesce(drawn, '') || coalesce(recorded, ''), ',');
    done := set_config('structable.drawn', '{{' || drawn || '}}', true)
        || set_config('structable.touched', '', true);
    if begun is not null then
        update {feeds} f set floor = given, floor_at = moment where f.feed = any(begun);
    end if;
    return null;
end"""
