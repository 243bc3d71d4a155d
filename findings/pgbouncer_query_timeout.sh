#!/bin/sh
# PgBouncer's query_timeout does not cancel the query, though the manual says "Queries running longer than that are
# canceled": the client gets an error, while the query goes on in the server and commits. To a client that reads SQLSTATEs
# the error is not a lost connection but 08P01, protocol_violation, after which a server has certainly not committed. One
# that therefore repeats the write does it twice.
. "$(dirname "$0")/support/pgbouncer"
pooled "pool_mode = session" "query_timeout = 1"

"$python" - <<'PYTHON'
import os
import time

import psycopg

with psycopg.connect(os.environ["server"], autocommit=True) as direct:
    direct.execute("create table counters (n int)")
    direct.execute("insert into counters values (0)")
    try:
        with psycopg.connect(os.environ["pooler"], autocommit=True) as client:
            client.execute("update counters set n = n + 1 from pg_sleep(3)")
            seen = "no error"
    except psycopg.Error as error:
        seen = f"{error.sqlstate} {str(error).splitlines()[0]}"
    running = "select count(*) from pg_stat_activity where query like 'update counters%' and state = 'active'"
    active = direct.execute(running).fetchone()[0]
    while direct.execute(running).fetchone()[0]:
        time.sleep(0.1)
    found = direct.execute("select n from counters").fetchone()[0]
print(f"expected: an error, and n = 0\nseen: {seen}; {active} update still running, and then n = {found}")
raise SystemExit((seen, active, found) != ("08P01 query timeout", 1, 1))
PYTHON
