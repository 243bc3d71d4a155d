#!/bin/sh
# psycopg 3.3.9 and asyncpg 0.32.0 read a year of PostgreSQL's intervals as 365 days, which for the server it is not.
#
# PostgreSQL keeps months, days and microseconds apart, and compares them with 30 days a month: '1 year' equals '360 days',
# in a unique index, too. Both drivers make 365 days of twelve months and 30 of each further month. So a row is not found
# by the value that was read from it, intervals have another order than in the database, and what is written back is
# another interval. DuckDB, which compares as PostgreSQL does, makes 360 days. Intervals of days and hours are right.
#
# Expected: a value by which its row is found, or an error, as psycopg raises for other values that Python cannot hold.
# Seen, without an error, of a primary key of '1 year' and '362 days':
#   order by the key            365 and 362 days       DuckDB 2.0.1: 360 and 362 days
#   where key = '1 year' read   no row, by both        DuckDB the row
#   '360 days' inserted         UniqueViolation, though 360 days are neither of the two
#   '1 year' read and written   365 days: from 1 March 2023 to 29 February 2024, not to 1 March
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    'psycopg[binary]==3.3.9' asyncpg==0.32.0 duckdb==2.0.1 || exit 2
served

"$python" - <<'PYTHON'
import asyncio
import datetime as dt
import os

import asyncpg
import duckdb
import psycopg

server = os.environ["server"]
CREATE = "create table terms (term interval)"
INSERT = "insert into terms values ('1 year'), ('362 days')"
READ = "select term from terms order by term"


async def by_asyncpg():
    connection = await asyncpg.connect(server)
    read = [row[0].days for row in await connection.fetch(READ)]
    return read, len(await connection.fetch("select from terms where term = $1", dt.timedelta(days=read[0])))


def by_psycopg(connection):
    read = [row[0] for row in connection.execute(READ)]
    return [one.days for one in read], len(connection.execute("select from terms where term = %s", read[:1]).fetchall())


def by_duckdb():
    connection = duckdb.connect()
    connection.execute(CREATE)
    connection.execute(INSERT)
    read = [row[0] for row in connection.execute(READ).fetchall()]
    found = connection.execute("select term from terms where term = ?", read[:1]).fetchall()
    return [one.days for one in read], len(found)


with psycopg.connect(server, autocommit=True) as connection:
    connection.execute(CREATE)
    connection.execute("alter table terms add primary key (term)")
    connection.execute(INSERT)
    answers = [by_psycopg(connection), asyncio.run(by_asyncpg()), by_duckdb()]
    try:
        connection.execute("insert into terms values ('360 days')")
        inserted = "inserted"
    except psycopg.errors.UniqueViolation:
        inserted = "UniqueViolation"
    read = connection.execute("select term from terms where term = '1 year'").fetchone()[0]
    later = "select (date '2023-03-01' + %s::interval)::date::text"
    ends = [connection.execute(later, [term]).fetchone()[0] for term in ("1 year", read)]
names = [f"psycopg {psycopg.__version__}", f"asyncpg {asyncpg.__version__}", f"DuckDB {duckdb.__version__}"]
for name, (days, rows) in zip(names, answers, strict=True):
    print(f"{name}: read {days}, rows found by the first of these: {rows}")
print(f"360 days: {inserted}; a year after 1 March 2023: {ends[0]}, with the value that was read: {ends[1]}")
if (answers, inserted, ends) != (
    [([365, 362], 0), ([365, 362], 0), ([360, 362], 1)],
    "UniqueViolation",
    ["2024-03-01", "2024-02-29"],
):
    raise SystemExit("the behaviour has changed")
PYTHON
