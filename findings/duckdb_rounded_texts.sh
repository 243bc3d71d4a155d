#!/bin/sh
# DuckDB 2.0.1 rounds texts to the type of the column: `id = '1.6'` finds 2, and `price < '2.704'` does not find 2.70.
#
# DuckDB casts a text that is compared with a number to the type of the number, and that cast rounds, of literals,
# parameters and columns. By its manual (Typecasting) casts that can fail are explicit, as a rule. Keys and prices often
# come as texts, out of addresses and JSON. A join of an integer with a column of
# texts joins 2 with "1.6", "2.4" and "02". PostgreSQL raises an error for an integer, and compares a price by all its
# digits. The same numbers without quotes are compared exactly.
#
# Expected: no row, or an error; for the price the rows that 2.704 without quotes finds.
# Seen, without an error, of the ids 1, 2, 3 with the prices 2.70, 2.71, 3.00 of decimal(18, 2):
#   id = '1.6', also by a parameter    2           id = 1.6         none      PostgreSQL 16.2 an error
#   price < '2.704'                    none        price < 2.704    1         PostgreSQL 1
#   price = '2.704'                    1           price = 2.704    none      PostgreSQL none
#   delete where id = '2.5'            3 is gone
#   join on id = text                  2 with 02, 1.6, 2 and 2.4
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 || exit 2
served

"$python" - <<'PYTHON'
import os

import duckdb
import psycopg

CREATE = "create table items (id int, price decimal(18, 2))"
INSERT = "insert into items values (1, 2.70), (2, 2.71), (3, 3.00)"
SEEN = [
    ("id = '1.6'", [2], "error"),
    ("id = 1.6", [], []),
    ("price < '2.704'", [], [1]),
    ("price < 2.704", [1], [1]),
    ("price = '2.704'", [1], []),
    ("price = 2.704", [], []),
]


def ids(connection, condition, *values):
    return [row[0] for row in connection.execute(f"select id from items where {condition}", *values).fetchall()]


def checked_ids(connection, condition):
    try:
        return ids(connection, condition)
    except psycopg.DataError:
        return "error"


ours = duckdb.connect()
with psycopg.connect(os.environ["server"], autocommit=True) as theirs:
    for connection in (ours, theirs):
        connection.execute(CREATE)
        connection.execute(INSERT)
    found = [(condition, ids(ours, condition), checked_ids(theirs, condition)) for condition, *_ in SEEN]
    version = theirs.info.server_version
by_parameter = ids(ours, "id = ?", ["1.6"])
ours.execute("create table texts (t varchar)")
ours.execute("insert into texts values ('02'), ('1.6'), ('2'), ('2.4'), ('7')")
joined = ours.execute("select id, t from items join texts on id = t order by all").fetchall()
ours.execute("delete from items where id = '2.5'")
left = ids(ours, "true")
print("DuckDB", duckdb.__version__, "PostgreSQL", version)
for condition, rows, right in found:
    print(f"  {condition}: {rows}, PostgreSQL {right}")
print("  id = ? with '1.6':", by_parameter)
print("  joined:", *joined)
print("  after delete where id = '2.5':", left)
if (found, by_parameter, joined, left) != (
    SEEN,
    [2],
    [(2, "02"), (2, "1.6"), (2, "2"), (2, "2.4")],
    [1, 2],
):
    raise SystemExit("the behaviour has changed")
PYTHON
