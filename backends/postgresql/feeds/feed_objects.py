"""The database objects of one feed: the table of its entries, and the triggers that write them.

The triggers run after each statement of any client, with the rows that it changed. Under `input` the store writes
the records itself, and the triggers record only other statements; the setting `structable.input` distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from structable.backends.postgresql.sql.names import HIDDEN_KEY, column_name, literal, qualified, quoted
from structable.backends.postgresql.sql.types import stored_type, stored_width
from structable.spi import Field, TableSpecification

from .input_objects import input_rules, log_bodies, log_triggers
from .layout import (
    FEEDS,
    TICKETS,
    after_column,
    before_column,
    feed_table,
    feed_trigger,
    hidden_key_column,
    keeps_images,
    key_column,
    takes_input,
)
from .shared_objects import TICKET, TOUCH, function

_VERBS = ("insert", "update", "delete", "truncate")
_TRANSITIONS = {
    "insert": "referencing new table as new_rows ",
    "update": "referencing old table as old_rows new table as new_rows ",
    "delete": "referencing old table as old_rows ",
    "truncate": "",
}
_CHANGED = {"insert": "new_rows", "update": "new_rows", "delete": "old_rows"}
_TICKET_AND_STATEMENT = "recording.t, recording.again"
"""The variables, qualified by the label of their block: rows in the same query may have fields of these names."""
_NUMBER = "row_number() over () - 1"
"""The number of an entry in its statement."""


class _Queries(NamedTuple):
    """The queries that record a statement: one for any number of changed rows, one for a single row.

    `single` has no window and no full join, which makes a durable commit of one row a tenth faster. It records nothing
    if it cannot record the row.
    """

    any: str
    single: str


def feed_definitions(schema: str, spec: TableSpecification, number: int) -> list[str]:
    """Return the commands that begin a table's feed. Run them with writers locked out, after the feed's row exists."""
    entries = qualified(schema, feed_table(number))
    table = qualified(schema, spec.name)
    triggers = [
        f"create trigger {feed_trigger(number, verb)} after {verb} on {table} {_TRANSITIONS[verb]}"
        f"for each statement execute function {qualified(schema, feed_trigger(number, verb))}()"
        for verb in _VERBS
    ]
    if spec.table_options.log:
        triggers = log_triggers(schema, spec, number)
    return [
        f"create table {entries} ({', '.join(_columns(spec))})",
        f"create index on {entries} (ticket, again, n)",
        *(input_rules(schema, number, is_log=spec.table_options.log) if takes_input(spec) else ()),
        *_functions(schema, spec, number),
        *triggers,
        f"select {qualified(schema, TOUCH)}({number}, nextval({literal(qualified(schema, TICKETS))}), true)",
    ]


def feed_changes(
    schema: str, after: TableSpecification, number: int, added: Iterable[Field], widened: Iterable[Field]
) -> list[str]:
    """Return the commands that give the entries of a feed the new fields of its table, and their new types."""
    entries = qualified(schema, feed_table(number))
    parts = [f"add column {name} {stored_type(field).sql}" for field in added for name in _columns_of(after, field)]
    parts += [
        f"alter column {name} type {stored_type(field).sql}" for field in widened for name in _columns_of(after, field)
    ]
    if not parts:
        return []
    return [f"alter table {entries} {', '.join(parts)}", *_functions(schema, after, number)]


def feed_without(schema: str, after: TableSpecification, number: int, field: Field) -> list[str]:
    """Return the commands that remove a field from the entries of a table's feed; the table already lacks it."""
    parts = [f"drop column {name}" for name in _columns_of(after, field)]
    return [
        f"alter table {qualified(schema, feed_table(number))} {', '.join(parts)}",
        *_functions(schema, after, number),
    ]


def feed_end(schema: str, spec: TableSpecification, number: int, *, keeps_table: bool) -> list[str]:
    """Return the commands that end a feed whose writers are locked out; its entries are left to `sweep_feeds`."""
    table = qualified(schema, spec.name)
    # Not dropped: a drop would also lock out readers.
    kept = _VERBS if keeps_table else ()
    disabled = [f"alter table {table} disable trigger {feed_trigger(number, verb)}" for verb in kept]
    return [*disabled, f"delete from {qualified(schema, FEEDS)} where feed = {number}"]


def feed_removal(schema: str, number: int) -> list[str]:
    """Return the commands that drop the objects of a feed, after it ended."""
    functions = [
        f"drop function if exists {qualified(schema, feed_trigger(number, verb))}() cascade"
        for verb in (*_VERBS, "before", "after")
    ]
    return [f"drop table if exists {qualified(schema, feed_table(number))}", *functions]


def feed_triggers(number: int) -> tuple[str, ...]:
    """Return the names of the triggers that a table has for its feed."""
    return tuple(feed_trigger(number, verb) for verb in _VERBS)


def _columns_of(spec: TableSpecification, field: Field) -> list[str]:
    if not keeps_images(spec):
        return [quoted(after_column(field.name))]
    if field.name in spec.primary_key:
        return [quoted(key_column(field.name))]
    return [quoted(before_column(field.name)), quoted(after_column(field.name))]


def _columns(spec: TableSpecification) -> list[str]:
    """Return the columns of a feed's entries with their types, the widest first, as in a table."""
    fields = sorted(spec.fields, key=lambda field: -stored_width(field))
    found = [
        (stored_width(field), f"{name} {stored_type(field).sql}")
        for field in fields
        for name in _columns_of(spec, field)
    ]
    if spec.keyless and not takes_input(spec):
        found.append((0, f"{quoted(hidden_key_column())} bytea"))
    return [
        "ticket bigint not null, again integer not null, n integer not null",
        *(text for width, text in found if width),
        'kind "char" not null',
        *(text for width, text in found if not width),
    ]


def _functions(schema: str, spec: TableSpecification, number: int) -> list[str]:
    """Return the commands that create or replace the functions of the triggers on a table."""
    if spec.table_options.log:
        bodies = log_bodies(schema, spec, number)
    elif takes_input(spec):
        bodies = {verb: _unless_given(query) for verb, query in _inputs(schema, spec, number).items()}
    else:
        queries = _images(schema, spec, number) if keeps_images(spec) else _bag_records(schema, spec, number)
        # Readers cancel equal rows of a commit of several statements; an update of a bag is like two.
        bodies = {
            verb: _recording(schema, number, _CHANGED[verb], query, int(spec.keyless and verb == "update"))
            for verb, query in queries.items()
        }
    bodies.setdefault("truncate", _renewal(schema, number))
    return [
        text
        for verb, body in bodies.items()
        for text in function(schema, feed_trigger(number, verb), "", "trigger", body)
    ]


def _images(schema: str, spec: TableSpecification, number: int) -> dict[str, _Queries]:
    key = [column_name(name) for name in spec.primary_key]
    values = [column_name(field.name) for field in spec.value_fields]
    keys = [quoted(key_column(name)) for name in spec.primary_key]
    befores = [quoted(before_column(field.name)) for field in spec.value_fields]
    afters = [quoted(after_column(field.name)) for field in spec.value_fields]
    into = f"insert into {qualified(schema, feed_table(number))} (ticket, again, n, kind, "
    head = f"select {_TICKET_AND_STATEMENT}"
    old_key, new_key = _each("o", key), _each("n", key)
    old, new = _each("o", values), _each("n", values)
    inserted = f"'I', {_listed(new_key, new)} from new_rows n"
    deleted = f"'D', {_listed(old_key, old)} from old_rows o"
    same = " and ".join(f"{before} = {after}" for before, after in zip(old_key, new_key, strict=True))
    either = [f"coalesce({before}, {after})" for before, after in zip(old_key, new_key, strict=True)]
    kind = f"case when {old_key[0]} is null then 'I' when {new_key[0]} is null then 'D' else 'U' end"
    differ = f"where row({_listed(old_key, old)}) is distinct from row({_listed(new_key, new)})"
    # SQL by hand may change keys.
    any_updated = f"{kind}, {_listed(either, old, new)} from old_rows o full join new_rows n on {same} {differ}"
    updated = f"'U', {_listed(new_key, old, new)} from old_rows o join new_rows n on {same} {differ}"

    def queries(columns: str, several: str, single: str) -> _Queries:
        return _Queries(f"{into}{columns}) {head}, {_NUMBER}, {several}", f"{into}{columns}) {head}, 0, {single}")

    return {
        "insert": queries(_listed(keys, afters), inserted, inserted),
        "delete": queries(_listed(keys, befores), deleted, deleted),
        "update": queries(_listed(keys, befores, afters), any_updated, updated),
    }


def _bag_records(schema: str, spec: TableSpecification, number: int) -> dict[str, _Queries]:
    names = [column_name(field.name) for field in spec.fields]
    columns = _listed([quoted(after_column(field.name)) for field in spec.fields], [quoted(hidden_key_column())])
    into = f"insert into {qualified(schema, feed_table(number))} (ticket, again, n, kind, {columns})"
    row = [*names, HIDDEN_KEY]
    old = f"'D', {_listed(_each('r', row))} from old_rows r"
    new = f"'I', {_listed(_each('r', row))} from new_rows r"
    head = f"{into} select {_TICKET_AND_STATEMENT}"
    updated = f"{head}, {_NUMBER}, r.* from (select {old} union all select {new}) r"
    return {
        "insert": _Queries(f"{head}, {_NUMBER}, {new}", f"{head}, 0, {new}"),
        "delete": _Queries(f"{head}, {_NUMBER}, {old}", f"{head}, 0, {old}"),
        "update": _Queries(updated, updated),
    }


def _inputs(schema: str, spec: TableSpecification, number: int) -> dict[str, str]:
    entries = qualified(schema, feed_table(number))

    def insert(kind: str, names: Sequence[str], rows: str) -> str:
        columns = _listed([quoted(after_column(name)) for name in names])
        values = _listed(_each("r", [column_name(name) for name in names]))
        return f"insert into {entries} (n, kind, {columns}) select {_NUMBER}, {kind}, {values} from {rows} r"

    everything = spec.field_names
    return {
        "insert": insert("'I'", everything, "new_rows"),
        "update": insert("'U'", everything, "new_rows"),
        "delete": insert("'D'", spec.primary_key or everything, "old_rows"),
    }


def _listed(*parts: Sequence[str]) -> str:
    return ", ".join(name for part in parts for name in part)


def _each(rows: str, names: Sequence[str]) -> list[str]:
    return [f"{rows}.{quoted(name)}" for name in names]


def _recording(schema: str, number: int, rows: str, queries: _Queries, first: int) -> str:
    """Return a function that records the changes of a statement, if any, under a ticket.

    The function counts `rows`, the changed rows: INSERT ON CONFLICT ends with the triggers of both verbs. `first` is
    the number of the statement if it is the ticket's first. Without the setting there is no ticket; the setting is
    also tested before the call, because the call takes 3 % of the commit of one row.
    """
    return f"""
<<recording>>
declare
    several boolean;
    t bigint;
    fresh boolean;
    again integer := {first};
    done text;
begin
    perform from {rows} limit 1;
    if not found then
        return null;
    end if;
    perform from {rows} offset 1 limit 1;
    several := found;
    if current_setting('structable.feed_{number}', true) <> '' then
        t := {qualified(schema, TICKET)}({number});
    end if;
    fresh := t is null;
    if fresh then
        t := nextval({literal(qualified(schema, TICKETS))});
    else
        again := coalesce(nullif(current_setting('structable.again_{number}', true), '')::integer, 0) + 1;
    end if;
    if not several then
        {queries.single};
    end if;
    if several or not found then
        {queries.any};
    end if;
    if found then
        if fresh then
            done := {qualified(schema, TOUCH)}({number}, t, false);
        end if;
        if again > 0 then
            done := set_config('structable.again_{number}', again::text, true);
        end if;
    end if;
    return null;
end"""


def _unless_given(query: str) -> str:
    return f"""
begin
    if current_setting('structable.input', true) is distinct from 'given' then
        {query};
    end if;
    return null;
end"""


def _renewal(schema: str, number: int) -> str:
    """Return the function that begins a new feed: TRUNCATE does not report the rows that it deletes."""
    token = "left(replace(gen_random_uuid()::text, '-', ''), 8) || right(gen_random_uuid()::text, 8)"
    return f"""
declare
    done text;
begin
    update {qualified(schema, FEEDS)} set token = {token} where feed = {number};
    done := {qualified(schema, TOUCH)}({number}, nextval({literal(qualified(schema, TICKETS))}), true);
    return null;
end"""
