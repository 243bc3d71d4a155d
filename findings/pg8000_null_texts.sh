#!/bin/sh
# pg8000 1.31.6 stores the text "null" in an array of texts as NULL, and does not find it by `any`.
#
# pg8000 sends an array as one text. It puts "NULL", which would be NULL without them, in quotes, but not "null", "Null" and
# other spellings, which PostgreSQL takes for NULL, too. A single parameter "null" is stored
# rightly, and a test with "NULL" finds nothing. Such words are names of people, and values in log files.
#
# Expected: the texts that were sent, as by psycopg.
# Seen, without an error:
#   ["NULL", "null", "Null", ""] sent              NULL None None ""      psycopg the four
#   where t = any(["null", "x"])                   no row                 psycopg the row
#   where t <> all(["null", "x"]), of a row "y"    no row                 psycopg the row
#   "null" sent alone                              null
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pg8000==1.31.6 || exit 2
served

"$python" - <<'PYTHON'
import importlib.metadata
import os
from urllib.parse import urlsplit

import pg8000.dbapi
import psycopg

server = os.environ["server"]
WORDS = ["NULL", "null", "Null", ""]


def answers(cursor):
    """Return the words as the server stored them, the rows found in two ways, and a single word."""
    cursor.execute("create temporary table words (t text, list text[])")
    cursor.execute("insert into words values (%s, %s), (%s, %s)", ["null", WORDS, "y", []])
    cursor.execute("select array_to_json(list)::text from words where t <> 'y'")
    stored = cursor.fetchone()[0]
    cursor.execute("select t from words where t = any(%s)", [["null", "x"]])
    found = [row[0] for row in cursor.fetchall()]
    cursor.execute("select t from words where t <> all(%s)", [["null", "x"]])
    others = [row[0] for row in cursor.fetchall()]
    cursor.execute("select count(*) from words where t = 'null'")
    return stored, found, others, cursor.fetchone()[0]


address = {"user": "app", "host": "127.0.0.1", "port": urlsplit(server).port, "database": "postgres"}
ours = answers(pg8000.dbapi.connect(**address).cursor())
with psycopg.connect(server) as connection:
    theirs = answers(connection.cursor())
print("pg8000", importlib.metadata.version("pg8000"), *ours)
print("psycopg", psycopg.__version__, *theirs)
if (ours, theirs) != (
    ('["NULL",null,null,""]', [], [], 1),
    ('["NULL","null","Null",""]', ["null"], ["y"], 1),
):
    raise SystemExit("the behaviour has changed")
PYTHON
