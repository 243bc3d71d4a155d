#!/bin/sh
# psycopg 3.2.13: a connection that is open during an ALTER TABLE goes on to send texts by the old type of the column: the
# time of day is lost where a date has become a timestamp, and "007" becomes "7" where an integer has become a text.
#
# psycopg sends a str without a type, so that the server infers it from the column, and prepares a statement that ran more
# than five times. The parameter of a prepared statement keeps its type; after the migration the server casts from the old
# type to the new one. psycopg's page "Prepared statements" warns of no such case, and PostgreSQL's page on PREPARE says
# that a statement is analysed anew when the objects that it uses have changed. An error appears only if there is no such
# cast, or if the old type rejects the text. A test that connects after the migration finds nothing.
#
# Expected: what a new connection stores by the same statement, or an error.
# Seen, without an error:
#   date to timestamp               "2026-07-01 12:30"      2026-07-01 00:00:00
#   timestamp to timestamptz        "2026-07-01 12:00+05"   2026-07-01 12:00:00+00
#   real to double precision        "16777217"              16777216
#   integer to text                 "007"                   7
#   boolean to text                 "yes"                   true
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
served timezone=UTC

"$python" - <<'PYTHON'
import os

import psycopg

CASES = {
    ("date", "timestamp"): ("2026-07-01", "2026-07-01 12:30", "2026-07-01 00:00:00", "2026-07-01 12:30:00"),
    ("timestamp", "timestamptz"): ("2026-07-01", "2026-07-01 12:00+05", "2026-07-01 12:00:00+00", "2026-07-01 07:00:00+00"),
    ("real", "double precision"): ("1", "16777217", "16777216", "16777217"),
    ("integer", "text"): ("1", "007", "7", "007"),
    ("boolean", "text"): ("no", "yes", "true", "yes"),
}


def connect():
    return psycopg.connect(os.environ["server"], autocommit=True)


def stored(connection, text):
    connection.execute("delete from migrated")
    connection.execute("insert into migrated values (%s)", [text])
    return connection.execute("select v::text from migrated").fetchone()[0]


print("psycopg", psycopg.__version__)
changed = False
with connect() as admin:
    for (old, new), (before, after, seen, right) in CASES.items():
        admin.execute(f"create table migrated (v {old})")
        with connect() as living:
            for _ in range(7):
                stored(living, before)
            admin.execute(f"alter table migrated alter v type {new}")
            answer = stored(living, after)
            with connect() as fresh:
                other = stored(fresh, after)
        print(f"  {old} to {new}: {after!r} is stored as {answer!r}, by a new connection as {other!r}")
        changed |= (answer, other) != (seen, right)
        admin.execute("drop table migrated")
if changed:
    raise SystemExit("the behaviour has changed")
PYTHON
