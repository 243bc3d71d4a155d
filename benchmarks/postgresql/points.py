"""Single rows: a read in the auto-commit view, and a read-modify-write transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.spi import Isolation, Storage, Value

from .database import AREA, COLUMNS, Connection, Database

__all__ = ["measure"]

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE host = %s AND started = %s".encode()
_UPDATE = f"UPDATE {TABLE} SET attempts = %s WHERE host = %s AND started = %s".encode()


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure both."""
    database.make(scale.rows)
    picker = _Picker(scale)
    with database.on_separate_cores(), database.connection() as raw, database.storage() as storage:
        yield from _reads(raw, storage, picker, scale)
        yield from _read_modify_writes(raw, storage, picker, scale)


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
