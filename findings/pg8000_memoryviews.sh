#!/bin/sh
# pg8000 1.31.6 stores a memoryview in a bytea column as the text of its repr(): "<memory at 0x...>".
#
# psycopg2, for one, returns a bytea as a memoryview, and a slice of a buffer is one. pg8000 sends an object of a type
# that it does not know as its str(), and PostgreSQL takes such a text as a bytea. pg8000's table of types names `bytes`
# and does not say what happens to others; it sends a bytearray rightly. Columns of numbers or times would reject such a
# text.
#
# Expected: the bytes, as psycopg and sqlite3 store them, or an error.
# Seen, without an error:
#   memoryview(b"payload")     "<memory at", an address and ">"
#   bytearray(b"payload")      payload
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pg8000==1.31.6 || exit 2
served

"$python" - <<'PYTHON'
import importlib.metadata
import os
import re
import sqlite3
import urllib.parse

import pg8000.dbapi
import psycopg

server = urllib.parse.urlsplit(os.environ["server"])
pg8000_connection = pg8000.dbapi.connect(server.username, host=server.hostname, port=server.port, database="postgres")
WAYS = {
    "pg8000": (pg8000_connection, "bytea", "%s"),
    "psycopg": (psycopg.connect(os.environ["server"]), "bytea", "%s"),
    "SQLite": (sqlite3.connect(":memory:"), "blob", "?"),
}


def stored(way, value):
    connection, kind, mark = WAYS[way]
    cursor = connection.cursor()
    cursor.execute(f"create temp table held (v {kind})")
    cursor.execute(f"insert into held values ({mark})", (value,))
    cursor.execute("select v from held")
    found = bytes(cursor.fetchone()[0])
    connection.rollback()
    cursor.execute("drop table if exists held")
    return re.sub(rb"0x[0-9a-f]+", b"0x...", found)


found = {}
for kind in (memoryview, bytearray):
    for way in WAYS:
        found[f"{way}, {kind.__name__}"] = stored(way, kind(b"payload"))
print("pg8000", importlib.metadata.version("pg8000"), "psycopg", psycopg.__version__)
for what, bytes_ in found.items():
    print(f"  {what:20} {bytes_}")
if list(found.values()) != [b"<memory at 0x...>"] + [b"payload"] * 5:
    raise SystemExit("the behaviour has changed")
PYTHON
