"""Many rows: transactions of 1,000 upserts, and an atomic write job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, Row, batches, make_rows
from structable.spi import Storage, WriteMode

from .database import AREA, COLUMNS, KEY, UPSERT, Connection, Database, arrow_batches, values

_NAMES = ", ".join(COLUMNS)
_PARTITIONS = 2
_BLOCK = 128 << 10  # bytes for one call of psycopg; a larger block gains nothing


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure both."""
    database.make(0)
    with database.connection() as raw, database.storage() as storage:
        yield from _upserts(database, raw, storage, scale)
        yield from _jobs(database, raw, storage, scale)


def _upserts(database: Database, raw: Connection, storage: Storage, scale: Scale) -> Iterator[Measurement]:
    """New rows in key order, and all of them again, changed."""
    rows = list(make_rows(scale.rows // 10))
    new = list(batches(rows))
    changed = list(batches([row | {"attempts": 1, "cost": 0.5} for row in rows]))
    places = ", ".join(["%s"] * len(COLUMNS))
    statement = f"INSERT INTO {TABLE} ({_NAMES}) VALUES ({places}) {UPSERT}".encode()

    def by_executemany(given: list[list[Row]]) -> float:
        tuples = [[values(row) for row in batch] for batch in given]
        begin = perf_counter()
        for batch in tuples:
            with raw.transaction():
                raw.cursor().executemany(statement, batch)
        return (perf_counter() - begin) / len(rows)

    engine = _engine(database)
    table = sa.Table(TABLE, sa.MetaData(), *[sa.Column(name, kind) for name, kind in _TYPES.items()])
    insertion = insert(table)
    upsert = insertion.on_conflict_do_update(
        index_elements=list(KEY), set_={name: insertion.excluded[name] for name in COLUMNS if name not in KEY}
    )

    def by_core(given: list[list[Row]]) -> float:
        begin = perf_counter()
        for batch in given:
            with engine.begin() as connection:
                connection.execute(upsert, batch)
        return (perf_counter() - begin) / len(rows)

    def ours(given: list[list[Row]]) -> float:
        begin = perf_counter()
        for batch in given:
            with storage.transaction() as tx:
                tx.table(TABLE).upsert_many(batch)
        return (perf_counter() - begin) / len(rows)

    empty_raw, empty_ours = partial(database.empty_raw, raw), partial(database.empty_ours, storage)

    def of_new(prepare: Callable[[], None], write: Callable[[list[list[Row]]], float]) -> Round:
        def work() -> float:
            prepare()
            return write(new)

        return work

    def of_changed(prepare: Callable[[], None], write: Callable[[list[list[Row]]], float]) -> Round:
        def work() -> float:
            prepare()
            write(new)
            return write(changed)

        return work

    rounds = max(scale.rounds - 2, 2)
    floors = (
        ("psycopg executemany, pipelined, of the same upserts", by_executemany, 0.5),
        ("SQLAlchemy Core, a list of the same upserts", by_core, 0.25),
    )
    try:
        for against, floor, goal in floors:
            name = "upsert_many of new rows, 1,000 a transaction"
            contenders = [Contender(name, of_new(empty_ours, ours), goal)]
            yield from compare(AREA, against, of_new(empty_raw, floor), contenders, rounds)
            contenders = [Contender("upsert_many of changed rows", of_changed(empty_ours, ours))]
            yield from compare(AREA, against, of_changed(empty_raw, floor), contenders, rounds)
    finally:
        engine.dispose()


_TYPES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "host": sa.Text,
    "started": sa.BigInteger,
    "status": sa.Text,
    "path": sa.Text,
    "bytes": sa.BigInteger,
    "attempts": sa.Integer,
    "cost": sa.Double,
    "done": sa.Boolean,
}


def _engine(database: Database) -> sa.Engine:
    url = sa.make_url(database.raw.conninfo).set(drivername="postgresql+psycopg")
    return sa.create_engine(url, connect_args={"options": f"-c search_path={database.raw.name}"})


def _jobs(database: Database, raw: Connection, storage: Storage, scale: Scale) -> list[Measurement]:
    """Half of the rows already exist, and are replaced. The floor's rows are encoded before it begins."""
    rows = list(make_rows(scale.rows))
    there = [row | {"attempts": 0} for row in rows[::2]]
    size = -(-len(rows) // _PARTITIONS)
    parts = [rows[first : first + size] for first in range(0, len(rows), size)]
    arrow = [arrow_batches(part) for part in parts]
    before = arrow_batches(there)
    encoded = [_encoded(raw, part) for part in parts]

    def floor() -> float:
        database.empty_raw(raw)
        with raw.cursor().copy(f"COPY {TABLE} FROM STDIN".encode()) as copy:
            for row in there:
                copy.write_row(values(row))
        database.vacuum(raw, database.raw)
        begin = perf_counter()
        raw.execute(f"CREATE UNLOGGED TABLE staged (LIKE {TABLE})".encode())
        for blocks in encoded:
            with raw.cursor().copy("COPY staged FROM STDIN (FORMAT BINARY)") as copy:
                for block in blocks:
                    copy.write(block)
        with raw.transaction():
            raw.execute(f"INSERT INTO {TABLE} ({_NAMES}) SELECT {_NAMES} FROM staged {UPSERT}".encode())
            raw.execute("DROP TABLE staged")
        return (perf_counter() - begin) / len(rows)

    def ours() -> float:
        database.empty_ours(storage)
        load = storage.begin_write(TABLE, mode=WriteMode.INSERT, job_id=f"load-{os.urandom(8).hex()}")
        storage.commit_write(load, [storage.stage(load, 0, 0, before)])
        database.vacuum(raw, database.ours)
        begin = perf_counter()
        job = storage.begin_write(TABLE, mode=WriteMode.UPSERT, job_id=f"job-{os.urandom(8).hex()}")
        storage.commit_write(job, [storage.stage(job, number, 0, part) for number, part in enumerate(arrow)])
        return (perf_counter() - begin) / len(rows)

    return compare(
        AREA,
        "the same by hand: COPY into a staging table, INSERT ... SELECT",
        floor,
        [Contender("atomic write job", ours, 1.1)],
        max(scale.rounds - 2, 2),
    )


def _encoded(raw: Connection, rows: list[Row]) -> list[bytes]:
    """Let the server encode rows for a binary COPY, and return them in blocks."""
    with raw.transaction(force_rollback=True):
        raw.execute(f"CREATE TEMPORARY TABLE encoding (LIKE {TABLE}) ON COMMIT DROP".encode())
        with raw.cursor().copy("COPY encoding FROM STDIN") as copy:
            for row in rows:
                copy.write_row(values(row))
        with raw.cursor().copy("COPY encoding TO STDOUT (FORMAT BINARY)") as copy:
            whole = b"".join(bytes(block) for block in copy)
    return [whole[first : first + _BLOCK] for first in range(0, len(whole), _BLOCK)]
