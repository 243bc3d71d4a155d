"""Processes that write two tables with change feeds at random, while others read the feeds; and what was wrong.

The commits are slowed down by pauses in the deferred trigger, and can have planted faults.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from structable.spi import Change, Field, Storage, TableSpecification, connect

from .feed_writer import APPLICATION

TABLES = ("t", "u")
_WRITERS = 8
_PAUSES = (
    "perform pg_sleep(random() * 0.006);",
    "perform pg_sleep(case when random() < 0.1 then random() * 0.04 else random() * 0.006 end);",
)


class Fault:
    """Faults to plant: `no_gate` and `drawn_once` in the draw, `early_snapshot` in how positions are taken."""

    NONE = ""
    NO_GATE = "no_gate"
    DRAWN_ONCE = "drawn_once"
    EARLY_SNAPSHOT = "early_snapshot"


@dataclass(slots=True)
class Findings:
    """What was done, and what was wrong: nothing, if no fault was planted."""

    counts: Counter[str] = field(default_factory=Counter)
    positions: int = 0
    wrong: Counter[str] = field(default_factory=Counter)


def _slowed(conninfo: str, schema: str, fault: str) -> None:
    """Put pauses around the draw of versions, and a fault into it."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        query = "select pg_get_functiondef(to_regproc(%s)::oid)"
        found = connection.execute(query, (f'"{schema}"._structable_draw',)).fetchone()
        assert found is not None
        text: str = found[0]
        draw, end = "    given := nextval(", "    return null;\nend"
        assert text.count(draw) == text.count(end) == 1
        text = text.replace(draw, f"    {_PAUSES[0]}\n{draw}").replace(end, f"    {_PAUSES[1]}\n{end}")
        if fault == Fault.NO_GATE:
            lock = f'lock table "{schema}"."_structable_gate" in row exclusive mode;'
            assert text.count(lock) == 1
            text = text.replace(lock, "")
        elif fault == Fault.DRAWN_ONCE:
            draws = f'given := nextval(\'"{schema}"."_structable_versions"\');'
            assert text.count(draws) == 1
            once = f'(select c.version from "{schema}"._structable_commits c where c.ctid = any(drawn::tid[]) limit 1)'
            text = text.replace(
                draws, f"given := coalesce({once}, {draws[9:-1]});".replace("drawn::", "nullif(drawn, '')::")
            )
        connection.execute(text)


class _Reader:
    """Polls the feeds without pause, and takes positions with the rows of their snapshots."""

    def __init__(self, storage: Storage, conninfo: str, schema: str, fault: str) -> None:
        self._storage = storage
        self._conninfo = conninfo
        self._schema = schema
        self._fault = fault
        self.stop = threading.Event()
        self.since = {name: storage.changes(name).earliest() for name in TABLES}
        self.polled: dict[str, list[Change]] = {name: [] for name in TABLES}
        self.snapshots: list[tuple[int, dict[str, dict[Any, Any]]]] = []
        self.failure: BaseException | None = None

    def poll(self) -> None:
        while not self.stop.is_set():
            for name in TABLES:
                feed = self._storage.changes(name)
                until = feed.latest()
                with feed.read(self.since[name], until) as changes:
                    self.polled[name] += changes
                self.since[name] = until

    def take(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            while not self.stop.is_set():
                if self._fault == Fault.EARLY_SNAPSHOT:
                    self._take_early(connection)
                else:
                    with self._storage.transaction() as tx:
                        version = tx.position("t").version
                        self._note(version, {name: tx.table(name).scan() for name in TABLES})

    def _note(self, version: int, rows: dict[str, Any]) -> None:
        self.snapshots.append((version, {name: {row["k"]: dict(row) for row in found} for name, found in rows.items()}))

    def _take_early(self, connection: psycopg.Connection) -> None:
        run = connection.execute
        run("begin isolation level repeatable read")
        run("select 1")  # the fault: this takes the snapshot
        try:
            run("set local lock_timeout = 200")
            run(f'lock table "{self._schema}"._structable_gate in share mode')
            found = run(f'select max(version) from "{self._schema}"._structable_commits').fetchone()
            assert found is not None
            rows = {}
            for name in TABLES:
                listed = run(f'select k, v, w from "{self._schema}".{name}')
                rows[name] = [{"k": k, "v": v, "w": w} for k, v, w in listed]
            self._note(found[0], rows)
        except psycopg.errors.LockNotAvailable:
            time.sleep(random.random() * 0.01)
        finally:
            run("rollback")

    def run(self, body: str) -> None:
        try:
            getattr(self, body)()
        except BaseException as error:
            self.failure = error


def _apply(state: dict[Any, Any], change: Change) -> bool:
    """Apply a change; tell whether its old row was there."""
    row = dict(change.row)
    key = row["k"]
    if change.kind.retracts:
        return bool(state.pop(key, None) == row)
    fits = key not in state
    state[key] = row
    return fits


def _judge(storage: Storage, reader: _Reader, findings: Findings) -> None:
    whole: dict[str, list[Change]] = {}
    for name in TABLES:
        with storage.changes(name).read() as changes:
            whole[name] = list(changes)
        state: dict[Any, Any] = {}
        for change in whole[name]:
            findings.wrong["a preimage is not the postimage before it"] += not _apply(state, change)
        now = {row["k"]: dict(row) for row in storage.table(name).scan()}
        findings.wrong[f"the changes of {name} do not make its rows"] += now != state
        polled = [_shown(one) for one in reader.polled[name]]
        read = [_shown(one) for one in whole[name] if (one.version or 0) <= reader.since[name].version]
        findings.wrong["what was polled differs from one read"] += sorted(polled) != sorted(read)
        versions = [one.version or 0 for one in reader.polled[name]]
        findings.wrong["versions came out of order"] += versions != sorted(versions)
    for version, tables in reader.snapshots:
        for name, rows in tables.items():
            state = {}
            for change in whole[name]:
                if (change.version or 0) <= version:
                    _apply(state, change)
            findings.wrong["a snapshot is not its version"] += state != rows


def _shown(change: Change) -> tuple[int, str, str]:
    return change.version or 0, change.kind.value, repr(sorted(dict(change.row).items()))


@contextmanager
def _writers(conninfo: str, schema: str, commits: int) -> Iterator[list[subprocess.Popen[str]]]:
    program = [sys.executable, "-m", "tests.postgresql.support.feed_writer", conninfo, schema, str(commits)]
    with ExitStack() as stack:
        processes = []
        for seed in range(_WRITERS):
            one = subprocess.Popen([*program, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(one.wait)
            stack.callback(one.kill)
            processes.append(one)
        for one in processes:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        yield processes


def hammer(conninfo: str, url: str, schema: str, commits: int, fault: str = Fault.NONE) -> Findings:
    """Let each process commit so often, with backends ended now and then, and compare all that was seen."""
    findings = Findings()
    fields = [Field.int("k"), Field.int("v"), Field.string("w")]
    with connect(url) as storage:
        for name in TABLES:
            storage.admin.create(TableSpecification(name, fields, ["k"], options={"changelog-producer": "lookup"}))
        _slowed(conninfo, schema, fault)
        reader = _Reader(storage, conninfo, schema, fault)
        threads = [threading.Thread(target=reader.run, args=(body,)) for body in ("poll", "take")]
        with _writers(conninfo, schema, commits) as writers, psycopg.connect(conninfo, autocommit=True) as connection:
            for thread in threads:
                thread.start()
            for one in writers:
                assert one.stdin is not None
                print(file=one.stdin, flush=True)
            while any(one.poll() is None for one in writers) and reader.failure is None:
                time.sleep(0.25)
                killed = connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s "
                    "order by random() limit 1",
                    (APPLICATION,),
                )
                findings.counts["killed"] += killed.rowcount
            reader.stop.set()
            for thread in threads:
                thread.join()
            for one in writers:
                findings.counts.update(json.loads(one.communicate()[0]))
        if reader.failure is not None:
            raise reader.failure
        findings.positions = len(reader.snapshots)
        _judge(storage, reader, findings)
    findings.wrong = +findings.wrong
    return findings
