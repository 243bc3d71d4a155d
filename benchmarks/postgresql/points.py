"""Single rows: a read and writes in the auto-commit view, and a read-modify-write transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.spi import Isolation, Storage, Value

from .database import AREA, COLUMNS, UPSERT, Connection, Database, values

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE host = %s AND started = %s".encode()
_PUT = f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}) {UPSERT}".encode()
_ADD = f"UPDATE {TABLE} SET bytes = bytes + 0 WHERE host = %s AND started = %s".encode()
_DELETE = f"DELETE FROM {TABLE} WHERE host = %s AND started = %s".encode()
_UPDATE = f"UPDATE {TABLE} SET attempts = %s WHERE host = %s AND started = %s".encode()


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure each."""
    database.make(scale.rows)
    picker = _Picker(scale)
    with database.on_separate_cores(), database.connection() as raw, database.storage() as storage:
        yield from _reads(raw, storage, picker, scale)
        yield from _read_modify_writes(raw, storage, picker, scale)
        yield from _single_writes(raw, storage, picker, scale)


class _Picker:
    """Picks the same keys for the floors and for structable, new ones in each turn."""

    def __init__(self, scale: Scale) -> None:
        self._keys = [row_key(row) for row in make_rows(scale.rows)]
        self._samples = max(scale.samples // 10, 20)
        self.keys: list[tuple[Value, ...]] = []

    def pick(self) -> list[tuple[Value, ...]]:
        """Pick keys."""
        self.keys = random.sample(self._keys, self._samples)
        return self.keys


def _reads(raw: Connection, storage: Storage, picker: _Picker, scale: Scale) -> list[Measurement]:
    table = storage.table(TABLE)

    def by_hand(binary: bool) -> float:
        keys, total = picker.keys, 0
        cursor = raw.cursor(binary=binary)
        execute, fetch = cursor.execute, cursor.fetchone
        begin = perf_counter()
        for key in keys:
            execute(_SELECT, key, prepare=True)
            row = fetch()
            if row is not None and row[7]:
                total += row[5]
        return (perf_counter() - begin) / len(keys)

    def floor() -> float:
        picker.pick()
        return min(by_hand(binary=False), by_hand(binary=True))

    def ours() -> float:
        keys, total = picker.keys, 0
        begin = perf_counter()
        for key in keys:
            row = table.read(key)
            if row is not None and row.done:
                total += row.attempts
        return (perf_counter() - begin) / len(keys)

    def in_transaction() -> float:
        keys = picker.keys
        begin = perf_counter()
        for key in keys:
            with storage.transaction() as tx:
                row = tx.table(TABLE).read(key)
            assert row is not None
        return (perf_counter() - begin) / len(keys)

    return compare(
        AREA,
        "psycopg, one cursor, prepared; text or binary, the faster",
        floor,
        [
            Contender("read, auto-commit view", ours, 1.1),
            Contender("read in its own transaction", in_transaction),
        ],
        scale.rounds,
    )


def _read_modify_writes(raw: Connection, storage: Storage, picker: _Picker, scale: Scale) -> list[Measurement]:
    def four_round_trips() -> float:
        keys = picker.pick()
        execute = raw.execute
        begin = perf_counter()
        for host, started in keys:
            execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            row = execute(_SELECT, (host, started)).fetchone()
            assert row is not None
            attempts = row[5]
            assert isinstance(attempts, int)
            execute(_UPDATE, (attempts ^ 1, host, started))
            execute("COMMIT")
        return (perf_counter() - begin) / len(keys)

    def ours(isolation: Isolation) -> Round:
        def work() -> float:
            keys = picker.keys
            begin = perf_counter()
            for key in keys:
                with storage.transaction(isolation) as tx:
                    table = tx.table(TABLE)
                    row = table.read(key)
                    assert row is not None
                    table.upsert({"host": key[0], "started": key[1], "attempts": row.attempts ^ 1})
            return (perf_counter() - begin) / len(keys)

        return work

    return compare(
        AREA,
        "psycopg: begin, select, update, commit, a round trip each",
        four_round_trips,
        [
            Contender("read-modify-write", ours(Isolation.SNAPSHOT), 0.75),
            Contender("read-modify-write, serializable", ours(Isolation.SERIALIZABLE)),
        ],
        scale.rounds,
    )


def _single_writes(raw: Connection, storage: Storage, picker: _Picker, scale: Scale) -> Iterator[Measurement]:
    """Writes of one row in the auto-commit view, against a prepared statement; deleted rows are put back, not timed."""
    rows = {row_key(row): row for row in make_rows(scale.rows)}
    table, execute = storage.table(TABLE), raw.execute

    def timed(write: Callable[[Any], object], works: Iterable[Any]) -> float:
        begin = perf_counter()
        for work in works:
            write(work)
        return (perf_counter() - begin) / len(picker.keys)

    def delete_by_hand(key: tuple[Value, ...]) -> None:
        execute(_DELETE, key, prepare=True)

    def put_by_hand(key: tuple[Value, ...]) -> None:
        execute(_PUT, values(rows[key]), prepare=True)

    def floor(write: Callable[[tuple[Value, ...]], object]) -> Round:
        def work() -> float:
            seconds = timed(write, picker.pick())
            if write is delete_by_hand:
                for key in picker.keys:
                    put_by_hand(key)
            return seconds

        return work

    def delete() -> float:
        seconds = timed(table.delete, picker.keys)
        table.upsert_many([rows[key] for key in picker.keys])
        return seconds

    def upsert() -> float:
        return timed(table.upsert, [rows[key] for key in picker.keys])

    def increment() -> float:
        return timed(lambda key: table.increment(key, "bytes", 0), picker.keys)

    for name, ours, by_hand in (
        ("upsert, auto-commit view", upsert, put_by_hand),
        ("increment, auto-commit view", increment, lambda key: execute(_ADD, key, prepare=True)),
        ("delete, auto-commit view", delete, delete_by_hand),
    ):
        yield from compare(AREA, "psycopg, prepared", floor(by_hand), [Contender(name, ours)], scale.rounds)
