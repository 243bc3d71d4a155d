#!/bin/sh
# connectorx 0.4.6, the default engine of Polars' `read_database_uri`, leaves ten digits after the point of a numeric of
# PostgreSQL, and makes doubles of the numbers within JSON.
#
# connectorx reads each numeric as decimal(38, 10) and rounds it, whatever the scale of the column is: small amounts become
# zero, and an average does not equal itself in the database. Its page on PostgreSQL maps numeric to pandas' float64,
# which "cannot support precision larger than 28", and names no type of Arrow. A numeric that is too large for the type
# raises an error, so that one expects the same here. A json or jsonb arrives as a text that is not the server's: integers
# beyond 64 bits and numbers of more than 17 digits are rounded, and a key that a json has twice occurs once.
#
# Expected: the values, or an error.
# Seen, without an error, by Polars; psycopg reads the three numerics as they are:
#   numeric(30, 18) 0.000000000000000001    0
#   numeric 0.123456789012345678            0.1234567890
#   avg of 1, 1 and 2                       1.3333333333 of 1.3333333333333333
#   jsonb {"id": 123456789012345678901}     {"id":1.2345678901234567e20}
#   json {"a": 1, "a": 2}                   {"a":2}
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    connectorx==0.4.6 polars==2.1.0 pyarrow==26.0.1 || exit 2
served

"$python" - <<'PYTHON'
import importlib.metadata
import os

import polars as pl
import psycopg

SEEN = {
    "0.000000000000000001::numeric(30, 18)": "0.0000000000",
    "0.123456789012345678": "0.1234567890",
    "(select avg(n) from (values (1), (1), (2)) as numbers(n))": "1.3333333333",
    """'{"id": 123456789012345678901}'::jsonb""": '{"id":1.2345678901234567e20}',
    """'{"a": 1, "a": 2}'::json""": '{"a":2}',
}


def text(value):
    return value if isinstance(value, str) else format(value, "f")


query = "select " + ", ".join(f"{expression} as c{number}" for number, expression in enumerate(SEEN))
found = [text(value) for value in pl.read_database_uri(query, os.environ["server"]).row(0)]
with psycopg.connect(os.environ["server"]) as connection:
    right = [connection.execute(f"select ({expression})::text").fetchone()[0] for expression in SEEN]
    read = connection.execute(query).fetchone()[:3]
print("connectorx", importlib.metadata.version("connectorx"), "Polars", pl.__version__, "psycopg", psycopg.__version__)
for expression, value, expected in zip(SEEN, found, right):
    print(f"  {expression}: {value}, in the server {expected}")
if found != list(SEEN.values()) or any(value == expected for value, expected in zip(found, right)):
    raise SystemExit("the behaviour has changed")
if [text(value) for value in read] != right[:3]:
    raise SystemExit("psycopg reads other numbers")
PYTHON
