"""`python -m tests.postgresql.support.feed_writer CONNINFO SCHEMA COMMITS SEED`: a writer of `feed_hammer`."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter

import psycopg
from psycopg import sql

APPLICATION = "structable hammer"
_KEYS = 10
_LEVELS = ("read committed", "read committed", "repeatable read", "serializable")


def _write(conninfo: str, schema: str, commits: int, seed: int) -> Counter[str]:
    """Run random transactions until so many are committed; backends may be ended meanwhile."""
    rnd, done = random.Random(seed), Counter[str]()
    connection: psycopg.Connection | None = None
    number = 0
    while done["commit"] < commits:
        try:
            if connection is None:
                connection = psycopg.connect(conninfo, autocommit=True, application_name=APPLICATION)
                connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(schema)))
            _transaction(connection, rnd, f"{seed}-{number}", done)
            number += 1
        except psycopg.Error as error:
            done[error.sqlstate or "cut"] += 1
            try:
                assert connection is not None
                connection.execute("rollback")
            except (psycopg.Error, AssertionError):
                connection = None
        if rnd.random() < 0.5:
            time.sleep(rnd.random() * 0.1)
    return done


def _transaction(connection: psycopg.Connection, rnd: random.Random, tag: str, done: Counter[str]) -> None:
    run = connection.execute
    run(f"begin isolation level {rnd.choice(_LEVELS)}")
    for _ in range(rnd.choice([1, 1, 1, 2, 3])):
        table, key = rnd.choice("ttu"), rnd.randrange(_KEYS)
        nested = rnd.random() < 0.2
        if nested:
            run("savepoint s")
        run(
            rnd.choice(
                [
                    f"delete from {table} where k = {key}",
                    f"insert into {table} values ({key}, 1, '{tag}') "
                    f"on conflict (k) do update set v = {table}.v + 1, w = excluded.w",
                    f"insert into {table} select k, 2, '{tag}' from generate_series({key}, {key + 2}) k order by k "
                    "on conflict (k) do update set w = excluded.w",
                    f"with d as (delete from {table} where k = {key} returning k, v) "
                    f"insert into {table} select k, v, '{tag}' from d",
                    f"update {table} set v = v + 1, w = '{tag}' where k = {key}",
                    f"update {table} set v = v + 1, w = '{tag}' where k = {key}",
                ]
            )
        )
        if nested and rnd.random() < 0.5:
            run("rollback to s")
        if rnd.random() < 0.2:
            run("set constraints all immediate")  # draws now, and at the end of each later statement
        if rnd.random() < 0.1:
            time.sleep(rnd.random() * 0.02)
    if rnd.random() < 0.1:
        run("rollback")
        done["rollback"] += 1
    else:
        run("commit")
        done["commit"] += 1


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(_write(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))))
