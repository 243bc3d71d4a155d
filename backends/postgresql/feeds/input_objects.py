"""Triggers that place the records of a feed of the producer `input`, and a log's triggers for SQL by hand.

The writer of records only has the privilege to insert them. The triggers on their table give them the ticket of their
transaction, and the number of the statement in it. Records of a log are numbered through the whole ticket: the setting
`structable.count_N` has their number so far, and each finds its place in the commit by its own.
"""

from __future__ import annotations

from structable.backends.postgresql.sql.names import column, literal, qualified, quoted
from structable.spi import TableSpecification

from .layout import TICKETS, after_column, feed_table, feed_trigger
from .shared_objects import TICKET, TOUCH, function


def counted_before(number: int) -> str:
    """Return the SQL of the number of records that the transaction has given to a log before this statement."""
    return f"coalesce(nullif(current_setting('{_count(number)}', true), '')::integer, 0)"


def _count(number: int) -> str:
    return f"structable.count_{number}"


def input_rules(schema: str, number: int, *, is_log: bool) -> list[str]:
    """Return the commands that give records the ticket of the writer's transaction, and the number of the statement."""
    entries = qualified(schema, feed_table(number))
    ticket = f"{qualified(schema, TICKET)}({number})"
    if is_log:
        fresh = f"done := set_config('{_count(number)}', '', true);"
        statement, again = "", "0"
        counting = f"""
    done := set_config('{_count(number)}',
        ({counted_before(number)} + records)::text, true);"""
    else:
        fresh = counting = ""
        again = f"current_setting('structable.again_{number}')::integer"
        statement = f"""
    done := set_config('structable.again_{number}',
        (coalesce(nullif(current_setting('structable.again_{number}', true), '')::integer, -1) + 1)::text, true);"""
    before = f"""
declare
    t bigint;
    done text;
begin
    if current_setting('structable.feed_{number}', true) <> '' then
        t := {ticket};
    end if;
    if t is null then
        t := nextval({literal(qualified(schema, TICKETS))});
        done := {qualified(schema, TOUCH)}({number}, t, false);
        {fresh}
    end if;{statement}
    done := set_config('structable.ticket_{number}', t::text, true);
    return null;
end"""
    after = f"""
declare
    t bigint := {ticket};
    records bigint;
    foreign_ticket boolean;
    done text;
begin
    select count(*), bool_or(r.ticket <> t) into records, foreign_ticket from new_rows r;
    if foreign_ticket then
        raise exception 'the ticket of a record is not that of its transaction' using errcode = '42501';
    end if;{counting}
    return null;
end"""
    names = [feed_trigger(number, "before"), feed_trigger(number, "after")]
    return [
        f"alter table {entries} "
        f"alter column ticket set default current_setting('structable.ticket_{number}')::bigint, "
        f"alter column again set default {again}",
        *function(schema, names[0], "", "trigger", before),
        *function(schema, names[1], "", "trigger", after),
        f"create trigger {names[0]} before insert on {entries} "
        f"for each statement execute function {qualified(schema, names[0])}()",
        f"create trigger {names[1]} after insert on {entries} referencing new table as new_rows "
        f"for each statement execute function {qualified(schema, names[1])}()",
    ]


def log_bodies(schema: str, spec: TableSpecification, number: int) -> dict[str, str]:
    """Return the functions of the triggers on a log: rows are inserted into its feed; changes of rows are errors."""
    columns = ", ".join(quoted(after_column(name)) for name in spec.field_names)
    values = ", ".join(f"new.{column(name)}" for name in spec.field_names)
    insert = f"""
begin
    insert into {qualified(schema, feed_table(number))} (n, kind, {columns})
    values ({counted_before(number)}, 'I', {values});
    return null;
end"""
    refuse = """
begin
    raise exception 'table "%" has no %: a log keeps no rows: read its changes', tg_table_name, lower(tg_op)
        using errcode = '0A000';
end"""
    return {"insert": insert, "update": refuse, "delete": refuse, "truncate": refuse}


def log_triggers(schema: str, spec: TableSpecification, number: int) -> list[str]:
    """Return the commands that make the triggers on a log."""
    return [
        f"create trigger {feed_trigger(number, verb)} before {verb} on {qualified(schema, spec.name)} "
        f"for each {'row' if verb == 'insert' else 'statement'} "
        f"execute function {qualified(schema, feed_trigger(number, verb))}()"
        for verb in ("insert", "update", "delete", "truncate")
    ]
