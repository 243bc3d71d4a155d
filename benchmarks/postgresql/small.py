"""Small operations in an open transaction, each against a statement that psycopg has prepared.

A write is sent with the next statement that sees its rows: after each write one of them is read, and by hand, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, Row, make_rows, row_key
from structable.spi import Range, StructuredTable, col

from .database import AREA, COLUMNS, UPSERT, Connection, Database, values

_NAMES = ", ".join(COLUMNS)
_SELECT = f"SELECT {_NAMES} FROM {TABLE} WHERE host = %s AND started = %s".encode()
_FIRST = f"SELECT {_NAMES} FROM {TABLE} WHERE host = %s ORDER BY host, started LIMIT 1".encode()
_GIVEN = "unnest(%s::text[], %s::bigint[]"
_COUNT = (
    f"SELECT count(*) FROM {_GIVEN}) AS given(host, started) JOIN {TABLE} USING (host, started) WHERE bytes > 0"
).encode()
_DELETE = (
    f"DELETE FROM {TABLE} AS t USING {_GIVEN}) AS given(host, started) "
    "WHERE t.host = given.host AND t.started = given.started"
).encode()
_CHANGE = (
    f"UPDATE {TABLE} AS t SET attempts = given.attempts FROM {_GIVEN}, %s::int[]) AS given(host, started, attempts) "
    "WHERE t.host = given.host AND t.started = given.started"
).encode()
_MANY = f"SELECT {_NAMES} FROM {TABLE} JOIN {_GIVEN}) AS given(host, started) USING (host, started)".encode()
_TYPES = ("text", "bigint", "text", "text", "bigint", "int", "float8", "bool")
_PUT = (
    f"INSERT INTO {TABLE} ({_NAMES}) SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in _TYPES)}) {UPSERT}"
).encode()
_ADD = f"UPDATE {TABLE} SET attempts = attempts + 1 WHERE host = %s AND started = %s".encode()
_ROWS = 10
_KEYS = 200

Work = Callable[[Sequence[Row]], object]


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure each operation."""
    database.make(scale.rows)
    rows = [{**row, "attempts": 1} for row in islice(make_rows(scale.rows), 20_000)]
    count = max(scale.samples // 40, 20)
    with database.on_separate_cores(), database.connection() as raw, database.storage() as storage:
        execute = raw.execute

        def read(row: Row) -> None:
            assert execute(_SELECT, row_key(row), prepare=True).fetchone() is not None

        def columns(given: Sequence[Row]) -> list[list[object]]:
            return [list(column) for column in zip(*map(row_key, given), strict=True)]

        def put(given: Sequence[Row]) -> None:
            execute(_PUT, [list(column) for column in zip(*map(values, given), strict=True)], prepare=True)
            read(given[0])

        def change_by_hand(given: Sequence[Row]) -> None:
            keys = columns(given)
            assert len(execute(_MANY, keys, prepare=True).fetchall()) == len(given)
            execute(_CHANGE, [*keys, [2] * len(given)], prepare=True)
            read(given[0])

        def delete(given: Sequence[Row]) -> None:
            execute(_DELETE, columns(given), prepare=True)
            execute(_SELECT, row_key(given[0]), prepare=True).fetchone()

        def add(given: Sequence[Row]) -> None:
            execute(_ADD, row_key(given[0]), prepare=True)
            read(given[0])

        def ours(table: StructuredTable) -> dict[str, tuple[int, float | None, Work, Work]]:
            def sent(write: Callable[[Sequence[Row]], None]) -> Work:
                def work(given: Sequence[Row]) -> None:
                    write(given)
                    table.read(row_key(given[0]))

                return work

            def change(given: Sequence[Row]) -> None:
                found = table.multi_read([row_key(row) for row in given])
                table.upsert_many([{"host": row.host, "started": row.started, "attempts": 2} for row in found])

            return {
                "scan of a prefix, limit=1": (
                    1,
                    1.3,
                    lambda given: execute(_FIRST, [given[0]["host"]], prepare=True).fetchone(),
                    lambda given: list(table.scan(Range.prefix((given[0]["host"],)), limit=1)),
                ),
                "increment": (
                    1,
                    1.0,
                    add,
                    sent(lambda given: table.increment(row_key(given[0]), "attempts")),
                ),
                f"upsert_many of {_ROWS} rows": (
                    _ROWS,
                    1.0,
                    put,
                    sent(table.upsert_many),
                ),
                f"multi_read of {_ROWS} rows, and upsert_many of one field of them": (
                    _ROWS,
                    1.0,
                    change_by_hand,
                    sent(change),
                ),
                f"delete_many of {_ROWS} rows": (
                    _ROWS,
                    1.0,
                    delete,
                    sent(lambda given: table.delete_many([row_key(row) for row in given])),
                ),
                f"count of {_KEYS} whole keys, with a filter": (
                    _KEYS,
                    1.3,
                    lambda given: execute(_COUNT, columns(given), prepare=True).fetchone(),
                    lambda given: table.count([Range.prefix(row_key(row)) for row in given], col("bytes") > 0),
                ),
            }

        for name in ours(storage.table(TABLE)):
            with storage.transaction() as transaction:
                found = ours(transaction.table(TABLE))
                size, goal, by_hand, work = found[name]
                yield from _compared(raw, name, rows, size, count, goal, by_hand, work, scale)
                transaction.rollback()


def _compared(
    raw: Connection,
    name: str,
    rows: Sequence[Row],
    size: int,
    count: int,
    goal: float | None,
    by_hand: Work,
    ours: Work,
    scale: Scale,
) -> list[Measurement]:
    picked: list[list[Row]] = []

    def timed(work: Work) -> float:
        begin = perf_counter()
        for given in picked:
            work(given)
        return (perf_counter() - begin) / len(picked)

    def floor() -> float:
        chosen = random.sample(rows, min(count * size, len(rows) // size * size))
        picked[:] = [chosen[begin : begin + size] for begin in range(0, len(chosen), size)]
        return timed(by_hand)

    raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        against = "psycopg, prepared, and a read if it writes"
        return compare(AREA, against, floor, [Contender(name, lambda: timed(ours), goal)], scale.rounds)
    finally:
        raw.execute("ROLLBACK")
