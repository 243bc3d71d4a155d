#!/bin/sh
# pg8000 1.31.6: after a value that it cannot convert, a connection gives each statement the answer to the one before it.
#
# PostgreSQL's time of day goes to 24:00, and its arrays may begin at any index; Python has neither, and pg8000 raises
# ValueError while it reads such a row. What the server sent behind the row stays in the socket, and is read as the answer
# to the next statement. A program that catches the error and goes on, or a pool that hands the connection on, gets rows
# of another query, and an insert that the server rejects reports success. A test whose connection ends with the
# error finds nothing.
#
# Expected: the error, and then right answers, as by psycopg; or errors from then on.
# Seen, of statements one after the other:
#   pg8000.native   select time '24:00'               ValueError
#                   select 'a'                        None
#                   select 'b'                        a
#                   insert of a key that exists       b
#                   select 'c'                        DatabaseError, duplicate key value
#   pg8000.dbapi    select array from index 0         ValueError
#                   select 'a'                        ProgrammingError, "unexecuted cursor"
#                   select 'b'                        a
#   psycopg 3.2.13  select time '24:00', select 'a'   DataError, a
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
import pg8000.native
import psycopg

server = os.environ["server"]
address = {"user": "app", "host": "127.0.0.1", "port": urlsplit(server).port, "database": "postgres"}
LATE = "select time '24:00'"
SHIFTED = "select '[0:1]={1,2}'::int[]"
A, B, C = "select 'a'", "select 'b'", "select 'c'"
AGAIN = "insert into keys values (1)"


def ask(execute, statement):
    """Return the value that a statement is answered with, or the error's class and what it says of keys."""
    try:
        answer = execute(statement)
    except Exception as error:
        return type(error).__name__ + (", duplicate key" if "duplicate key" in str(error) else "")
    return answer[0][0] if answer else answer


def by_cursor(connection):
    cursor = connection.cursor()

    def execute(statement):
        cursor.execute(statement)
        return cursor.fetchall()

    return execute


with psycopg.connect(server, autocommit=True) as direct:
    direct.execute("create table keys (k int primary key)")
    direct.execute("insert into keys values (1)")
    right = [ask(by_cursor(direct), statement) for statement in (LATE, A)]
native = pg8000.native.Connection(**address)
found = [ask(native.run, statement) for statement in (LATE, A, B, AGAIN, C)]
dbapi = by_cursor(pg8000.dbapi.connect(**address))
found_by_dbapi = [ask(dbapi, statement) for statement in (SHIFTED, A, B)]
print("pg8000", importlib.metadata.version("pg8000"))
print("  native:", "; ".join(map(str, found)))
print("  dbapi:", "; ".join(map(str, found_by_dbapi)))
print(f"  psycopg {psycopg.__version__}:", "; ".join(map(str, right)))
if (found, found_by_dbapi, right) != (
    ["ValueError", None, "a", "b", "DatabaseError, duplicate key"],
    ["ValueError", "ProgrammingError", "a"],
    ["DataError", "a"],
):
    raise SystemExit("the behaviour has changed")
PYTHON
