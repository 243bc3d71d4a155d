#!/bin/sh
# libsql 0.1.11 (Python): an integer parameter beyond 32 bits reaches the database as a floating-point number.
#
# The package has the interface of Python's sqlite3, and SQLite's integers have 64 bits. A parameter that does not fit into 32 bits is
# bound as REAL, without an error. A column declared INTEGER takes such a number back as an integer if it is whole, so milliseconds
# since 1970 survive there, and tests pass; in a column without a type, in an expression, in JSON and in text they are "1700000000000.0".
# From 2**53 on, where hashes and most generated identifiers are, the number itself is rounded: another row gets written, and a look-up
# by the identifier finds nothing, or the row of a neighbour. Results of 64 bits are read right, as are numbers in the text of SQL.
#
# Expected, as sqlite3 has it: the same integer back, or an error beyond 64 bits.
# Seen, without an error:
#   SELECT ? of 2**31                          2147483648.0, a float
#   INSERT of the keys 2**53 and 2**53 + 1     the second violates the uniqueness of the first
#   key 2**53 + 1 put by the text of SQL       not found by a parameter; 2**53 is found when its neighbour is asked for
#   json_array(?) of 1700000000000             [1700000000000.0]
#   SELECT ? of 2**70                          1.1805916207174113e+21
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check libsql==0.1.11 || exit 2
"$folder/venv/bin/python" - <<'END'
import sqlite3
import sys
from importlib.metadata import version

import libsql


def answer(work):
    try:
        return work()
    except Exception as error:  # the classes differ; only sqlite3's are those of the interface
        return str(error).partition(":")[0]


def observe(module):
    connection = module.connect(":memory:")

    def ask(sql, *parameters):
        return answer(lambda: connection.execute(sql, parameters).fetchall())

    first, second = 2**53, 2**53 + 1
    ask("CREATE TABLE t (key INTEGER PRIMARY KEY, text)")
    found = {"2**31": ask("SELECT ?", 2**31), "JSON": ask("SELECT json_array(?)", 1_700_000_000_000)}
    found["2**70"] = ask("SELECT ?", 2**70)
    ask("INSERT INTO t VALUES (?, 'first')", first)
    found["second key"] = ask("INSERT INTO t VALUES (?, 'second')", second)
    ask(f"INSERT OR IGNORE INTO t VALUES ({second}, 'second')")
    found["look-up of the second key"] = ask("SELECT text FROM t WHERE key = ?", second)
    found["all"] = ask("SELECT key FROM t ORDER BY key")
    return found


RIGHT = {
    "2**31": [(2147483648,)],
    "JSON": [("[1700000000000]",)],
    "2**70": "Python int too large to convert to SQLite INTEGER",
    "second key": [],
    "look-up of the second key": [("second",)],
    "all": [(2**53,), (2**53 + 1,)],
}
SEEN = {
    "2**31": [(2147483648.0,)],
    "JSON": [("[1700000000000.0]",)],
    "2**70": [(2.0**70,)],
    "second key": "UNIQUE constraint failed",
    "look-up of the second key": [("first",)],
    "all": [(2**53,), (2**53 + 1,)],
}
found = {"sqlite3": observe(sqlite3), "libsql": observe(libsql)}
print(f"libsql {version('libsql')}, sqlite3 of Python {sys.version.split()[0]}")
for name in RIGHT:
    print(f"  {name:26} sqlite3 {found['sqlite3'][name]!s:52} libsql {found['libsql'][name]}")
# 2147483648 == 2147483648.0 in Python: the texts are compared.
if str(found) != str({"sqlite3": RIGHT, "libsql": SEEN}):
    sys.exit("the behaviour has changed")
END
