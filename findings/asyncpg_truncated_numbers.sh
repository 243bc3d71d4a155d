#!/bin/sh
# asyncpg 0.32.0 cuts a number to an integer where the column is one: `id = $1` with 1.9 finds 1, and 3.7 is stored as 3.
#
# asyncpg sends parameters in PostgreSQL's binary format, each by the type that the server has found for it. For an
# integer it takes the part before the point of a float or a Decimal, for a date the day of a datetime, and for a numeric
# the exact value of a float, which for 0.1 has 55 digits, so that equal amounts are not found. Its table of type
# conversions maps integers to int, numeric to Decimal and date to date, and a text for an integer raises DataError, so
# that one expects the same here.
#
# Expected: an error, or the comparison of the values, as by psycopg.
# Seen, without an error, of the rows (1, 0.1, 1 January) and (2, 2.5, 2 January):
#   id = 1.9                   1          psycopg none
#   id < 1.9                   none       psycopg 1
#   id = Decimal("1.9")        1          psycopg none
#   amount = 0.1               none       psycopg 1
#   day = 1 January, 12:00     1          psycopg none
#   day < 1 January, 12:00     none       psycopg 1
#   (3.7, 0.1) inserted        3, 0.1000000000000000055511151231257827021181583404541015625
#   the same by psycopg        4, 0.1
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check asyncpg==0.32.0 || exit 2
served

"$python" - <<'PYTHON'
import asyncio
import datetime as dt
import os
from decimal import Decimal

import asyncpg
import psycopg

server = os.environ["server"]
NOON = dt.datetime(2026, 1, 1, 12)
SEEN = [
    ("id =", 1.9, [1], []),
    ("id <", 1.9, [], [1]),
    ("id =", Decimal("1.9"), [1], []),
    ("amount =", 0.1, [], [1]),
    ("day =", NOON, [1], []),
    ("day <", NOON, [], [1]),
]
EXACT = "0.1000000000000000055511151231257827021181583404541015625"


async def by_asyncpg():
    connection = await asyncpg.connect(server)
    find = "select id from orders where {} $1 order by id"
    found = [[row[0] for row in await connection.fetch(find.format(part), value)] for part, value, *_ in SEEN]
    returned = await connection.fetchrow("insert into orders values ($1, $2) returning id, amount::text", 3.7, 0.1)
    try:
        await connection.fetch(find.format("id ="), "1")
    except asyncpg.DataError:
        return found, tuple(returned), True
    return found, tuple(returned), False


with psycopg.connect(server, autocommit=True) as direct:
    direct.execute("create table orders (id int primary key, amount numeric, day date)")
    direct.execute("insert into orders values (1, 0.1, '2026-01-01'), (2, 2.5, '2026-01-02')")
    find = "select id from orders where {} %s order by id"
    right = [[row[0] for row in direct.execute(find.format(part), [value])] for part, value, *_ in SEEN]
    found, inserted, rejected = asyncio.run(by_asyncpg())
    insert = "insert into orders values (%s, %s) returning id, amount::text"
    inserted_rightly = direct.execute(insert, [3.7, 0.1]).fetchone()
print("asyncpg", asyncpg.__version__, "psycopg", psycopg.__version__)
for (part, value, *_), ours, theirs in zip(SEEN, found, right, strict=True):
    print(f"  {part} {value!s}: {ours}, psycopg {theirs}")
print(f"  (3.7, 0.1) inserted: {inserted}, psycopg {inserted_rightly}; a text is rejected: {rejected}")
if (
    [(ours, theirs) for *_, ours, theirs in SEEN] != list(zip(found, right, strict=True))
    or (inserted, inserted_rightly) != ((3, EXACT), (4, "0.1"))
    or not rejected
):
    raise SystemExit("the behaviour has changed")
PYTHON
