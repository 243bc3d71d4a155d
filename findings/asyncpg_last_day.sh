#!/bin/sh
# asyncpg 0.32.0 stores 9999-12-31 as infinity, and reads infinity as that day.
#
# 9999-12-31 is a common end of a validity, which other programs, SQL scripts and files write as a day. For PostgreSQL
# infinity is another value, later than every day. asyncpg's table of type conversions maps date to `datetime.date` and
# the two timestamps to `datetime.datetime`, without an exception. A program that writes and reads by asyncpg alone finds
# nothing.
#
# Expected: the day that was sent; an error when Python cannot hold a value, as psycopg raises it.
# Seen, without an error:
#   date.max and datetime.max sent      infinity; date.min and datetime.min become -infinity
#   where d = $1, with date.max         finds 'infinity' and not '9999-12-31'; psycopg finds the latter
#   infinity read                       date(9999, 12, 31); psycopg raises DataError
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check asyncpg==0.32.0 || exit 2
served

"$python" - <<'PYTHON'
import asyncio
import datetime as dt
import os

import asyncpg
import psycopg


async def by_asyncpg():
    connection = await asyncpg.connect(os.environ["server"])
    sent = [dt.date.max, dt.datetime.max, dt.date.min, dt.datetime.min]
    texts = "select $1::date::text, $2::timestamp::text, $3::date::text, $4::timestamp::text"
    stored = await connection.fetchrow(texts, *sent)
    found = await connection.fetch("select d::text from days where d = $1", dt.date.max)
    read = await connection.fetchval("select date 'infinity'")
    await connection.close()
    return tuple(stored), [row[0] for row in found], read


def by_psycopg(connection):
    found = connection.execute("select d::text from days where d = %s", [dt.date.max]).fetchall()
    try:
        return [row[0] for row in found], connection.execute("select date 'infinity'").fetchone()
    except psycopg.DataError:
        return [row[0] for row in found], "DataError"


with psycopg.connect(os.environ["server"], autocommit=True) as connection:
    connection.execute("create table days (d date)")
    connection.execute("insert into days values ('9999-12-31'), ('infinity')")
    stored, found, read = asyncio.run(by_asyncpg())
    other = by_psycopg(connection)
print("asyncpg", asyncpg.__version__, "psycopg", psycopg.__version__)
print("  stored of the last and first days and times:", *stored)
print(f"  d = 9999-12-31 finds {found}, by psycopg {other[0]}")
print(f"  infinity is read as {read}, by psycopg {other[1]}")
if (stored, found, read, other) != (
    ("infinity", "infinity", "-infinity", "-infinity"),
    ["infinity"],
    dt.date.max,
    (["9999-12-31"], "DataError"),
):
    raise SystemExit("the behaviour has changed")
PYTHON
