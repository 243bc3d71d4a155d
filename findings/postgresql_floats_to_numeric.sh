#!/bin/sh
# PostgreSQL casts a double to numeric by its first 15 digits, a real by its first 6, and rounds the rest away, though the
# numeric would hold all of them and the server prints all of them as text. psycopg's `execute` sends a Python float as a
# double, so that an INSERT into a numeric column goes through this cast; its `copy` and its ClientCursor send text, and
# store the number as it was. Whole numbers from 10**15 on, which a double holds exactly up to 2**53, change their last
# digit: ids and amounts in cents that went through floats, as pandas makes them of integers with a null among them.
#
# Exits with 0 as long as the ways store different numbers, without an error.
. "$(dirname "$0")/support/postgresql"
served

"$python" - <<'PYTHON'
import os

import psycopg

SENT = 9007199254740991.0  # 2**53 - 1
with psycopg.connect(os.environ["server"]) as connection:
    connection.execute("create temp table amounts (way text, n numeric)")
    connection.execute("insert into amounts values ('execute', %s)", [SENT])
    psycopg.ClientCursor(connection).execute("insert into amounts values ('ClientCursor', %s)", [SENT])
    with connection.cursor().copy("copy amounts from stdin") as copy:
        copy.write_row(("copy", SENT))
    stored = {way: int(n) for way, n in connection.execute("select way, n from amounts")}
    casts = connection.execute(
        "select %s::float8::text, %s::float8::bigint, %s::float8::numeric, 16777215::float4::int, 16777215::float4::numeric",
        [SENT, SENT, SENT],
    ).fetchone()
print(f"psycopg {psycopg.__version__}; sent: {SENT:.0f}; expected: the same in all rows")
for way, n in stored.items():
    print(f"stored by {way}: {n}")
print("the double as text, bigint, numeric:", *casts[:3])
print("the real 16777215 as int, numeric:", *casts[3:])
raise SystemExit(
    stored != {"execute": 9007199254740990, "ClientCursor": 9007199254740991, "copy": 9007199254740991}
    or [int(float(one)) for one in casts] != [9007199254740991, 9007199254740991, 9007199254740990, 16777215, 16777200]
)
PYTHON
