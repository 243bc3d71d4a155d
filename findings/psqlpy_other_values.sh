#!/bin/sh
# psqlpy 0.13.1 (PostgreSQL, by Rust): numbers of more than 28 digits are rounded, and four types come back as other values.
#
# A `Decimal` is sent by a type of 96 bits. Digits after the 29th are rounded away before the server sees them; where the digits before the
# point are too many, that is an error. A numeric is read in the same way, so that a small one is zero. An amount of `money` is returned
# without its decimal point, as an int; an `oid` from 2^31 on as a negative number; the time 24:00, which is the end of a day, as midnight
# at its beginning; an address without its prefix, which is lost in sending, too.
#
# Expected: the value, as by psycopg, or an error, as psqlpy raises for numeric NaN and a timestamp that is infinite.
# Seen, without an error:
#   Decimal 1.23456789012345678901234567890123 sent   1.2345678901234567890123456789 stored
#   IPv4Interface 10.1.2.3/24 sent                    10.1.2.3/32 stored
#   numeric 1e-30 read                                Decimal('0E-28')
#   money 12.34 read                                  1234
#   oid 3000000000 read                               -1294967296
#   time 24:00 read                                   00:00:00
#   inet 10.1.2.3/24 read                             IPv4Address('10.1.2.3')
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check psqlpy==0.13.1 || exit 2
served

"$python" - <<'PYTHON'
import asyncio
import datetime
import importlib.metadata
import ipaddress
import os
from decimal import Decimal

import psqlpy
import psycopg

server = os.environ["server"]
SENT = [
    ("numeric", Decimal("1.23456789012345678901234567890123"), "1.2345678901234567890123456789"),
    ("inet", ipaddress.ip_interface("10.1.2.3/24"), "10.1.2.3/32"),
]
READ = [
    ("numeric", "1e-30", Decimal(0)),
    ("money", "12.34", 1234),
    ("oid", "3000000000", -1294967296),
    ("time", "24:00", datetime.time(0)),
    ("inet", "10.1.2.3/24", ipaddress.ip_address("10.1.2.3")),
]


async def psqlpy_value(pool, query, parameters):
    connection = await pool.connection()
    try:
        return (await connection.execute(query, parameters)).result()[0]["value"]
    finally:
        connection.close()


async def changed():
    pool = psqlpy.ConnectionPool(dsn=server, max_db_pool_size=2)
    found = []
    with psycopg.connect(server) as connection:
        for name, value, stored in SENT:
            ours = await psqlpy_value(pool, f"select ($1::{name})::text as value", [value])
            theirs = connection.execute(f"select (%s::{name})::text", [value]).fetchone()[0]
            print(f"  {name} {value} sent: {ours} stored; by psycopg {theirs}")
            found.append(ours == stored and theirs == str(value))
    for name, text, value in READ:
        ours = await psqlpy_value(pool, f"select '{text}'::{name} as value", [])
        print(f"  {name} {text} read: {ours!r}")
        found.append(ours == value and type(ours) is type(value))
    pool.close()
    return not all(found)


print("psqlpy", importlib.metadata.version("psqlpy"), "psycopg", psycopg.__version__)
if asyncio.run(changed()):
    raise SystemExit("the behaviour has changed")
PYTHON
