#!/bin/sh
# Behind PgBouncer 1.18 in transaction mode, psycopg's `execute(..., prepare=True)` runs another program's statement and
# reports success: a prepared statement belongs to a session of the server, which many clients share, and every psycopg
# connection names its first one _pg3_0. The known advice is to turn prepared statements off as they fail with "already
# exists" or "does not exist". Where types and number of the parameters agree nothing fails: the row lands in the other
# program's table.
. "$(dirname "$0")/support/pgbouncer"
pooled "pool_mode = transaction" "default_pool_size = 2"

"$python" - <<'PYTHON'
import os

import psycopg

print(f"psycopg {psycopg.__version__}")
with psycopg.connect(os.environ["server"], autocommit=True) as direct:
    for table in ("ours", "theirs"):
        direct.execute(f"create table {table} (n int)")
    with (
        psycopg.connect(os.environ["pooler"], autocommit=True) as we,
        psycopg.connect(os.environ["pooler"], autocommit=True) as they,
    ):
        with they.transaction():  # in one session of the server
            they.execute("insert into theirs values (%s)", [1], prepare=True)
            we.execute("insert into ours values (%s)", [2], prepare=True)  # in the other
        # The session that was used last is used next.
        answer = we.execute("insert into ours values (%s)", [3], prepare=True).statusmessage
    found = [[row[0] for row in direct.execute(f"select n from {table}")] for table in ("ours", "theirs")]
print("expected: an error, or ours = [2, 3] and theirs = [1]")
print(f"seen: {answer}, ours = {found[0]} and theirs = {found[1]}")
raise SystemExit((answer, found) != ("INSERT 0 1", [[2], [1, 3]]))
PYTHON
