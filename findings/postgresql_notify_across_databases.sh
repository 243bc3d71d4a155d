#!/bin/sh
# PostgreSQL takes the commits of transactions with a NOTIFY one at a time, in all databases of a server together: each
# holds an exclusive lock until it has flushed its log and a synchronous standby has answered. Channels belong to a
# database, says the manual, and names no such lock: one expects that a program that notifies in one database waits for
# nothing that happens in another. Commits without a NOTIFY do not.
#
# To make the wait visible, the server here has a synchronous standby that never answers, and only the first of two
# databases waits for it. Exits with 0 as long as the second one's NOTIFY waits for the first one's.
. "$(dirname "$0")/support/postgresql"
served synchronous_standby_names=absent synchronous_commit=local

"$python" - <<'PYTHON'
import os
import threading
import time

import psycopg

server = os.environ["server"]


def database(name, settings):
    return psycopg.connect(server, dbname=name, autocommit=True, options=settings)


def outcome(connection, statement):
    try:
        connection.execute(statement)
        return "committed"
    except psycopg.Error as error:
        return f"{error.sqlstate} {error}"


with database("postgres", "") as setup:
    for name in ("one", "two"):
        setup.execute(f"create database {name}")

with (
    database("one", "") as one,
    database("two", "-c lock_timeout=1s") as two,
    database("postgres", "") as watch,
):
    for connection, level in ((one, "on"), (two, "local")):
        connection.execute("create table counters (n int)")
        connection.execute(f"set synchronous_commit = {level}")
    before = outcome(two, "notify c")
    waiting = threading.Thread(target=outcome, args=(one, "insert into counters values (1); notify c"))
    waiting.start()
    held = "select mode from pg_locks where classid = 'pg_database'::regclass and objid = 0 and granted"
    while waiting.is_alive() and not (locks := watch.execute(held).fetchall()):
        time.sleep(0.05)
    beside = outcome(two, "insert into counters values (1)"), outcome(two, "notify c")
    watch.execute("select pg_cancel_backend(%s)", [one.info.backend_pid])
    waiting.join()
    after = outcome(two, "notify c")

print("expected in the second database: a NOTIFY and an insert commit, whatever the first one waits for")
print(f"seen: NOTIFY {before}; while a NOTIFY of the first waits, holding {locks[0][0]}:")
print(f"      insert {beside[0]}, NOTIFY {beside[1]}; then: {after}")
lock = "55P03 canceling statement due to lock timeout"
raise SystemExit((before, *beside, after) != ("committed", "committed", lock, "committed"))
PYTHON
