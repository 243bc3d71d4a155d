"""PostgreSQL, durable commits: writes with a feed, compared with writes without one and with a hand-written trigger."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Connection, Database, arrow_batches
from benchmarks.rows import Row, batches, make_rows
from structable.spi import Storage, TableSpecification, WriteMode

from .tables import AREA, FED, PLAIN, fill, reading, upsert_batches

_OUTBOX = PLAIN.evolve(name="by_hand")
_TABLES = (PLAIN, _OUTBOX, FED)
_KEY = 'host text COLLATE "C", started bigint'
_SIDE = (
    '{0}_status text COLLATE "C", {0}_path text COLLATE "C", {0}_bytes bigint, {0}_attempts integer, '
    "{0}_cost double precision, {0}_done boolean"
)
_VALUES = ("status", "path", "bytes", "attempts", "cost", "done")


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure transactions, write jobs and reading."""
    with database.storage() as storage, database.connection() as raw:
        _make(database, raw, storage, list(make_rows(scale.rows // 10)))
        with database.on_separate_cores(), database.storage() as near:
            yield from _transactions(near, scale)
        yield from _jobs(database, raw, storage, scale)
        yield from reading(storage, "PostgreSQL", scale, 1.6)


def _make(database: Database, raw: Connection, storage: Storage, rows: list[Row]) -> None:
    """Recreate the three tables with the same rows, vacuumed."""
    for spec in _TABLES:
        storage.admin.drop(spec.name)
        storage.admin.create(spec)
    _add_outbox(database, raw)
    for spec in _TABLES:
        fill(storage, spec.name, rows)
    database.vacuum(raw, database.ours)


def _add_outbox(database: Database, raw: Connection) -> None:
    """Add a row trigger as people write it: each change with both images into a table with an identity column.

    Its readers lose changes: the identity is drawn long before the commit.
    """
    schema = database.ours.name

    def images(side: str) -> str:
        return ", ".join(f"{side}.{name}" if side else "null" for name in _VALUES)

    verbs = (("INSERT", "new", "", "new"), ("DELETE", "old", "old", ""), ("UPDATE", "old", "old", "new"))
    branches = "".join(
        f"IF tg_op = '{verb}' THEN INSERT INTO {schema}.outbox VALUES (default, default, '{verb[0]}', "
        f"{key}.host, {key}.started, {images(before)}, {images(after)}); END IF;"
        for verb, key, before, after in verbs
    )
    for statement in (
        f"DROP TABLE IF EXISTS {schema}.outbox",
        f"CREATE TABLE {schema}.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL "
        f"DEFAULT clock_timestamp(), op text NOT NULL, {_KEY}, {_SIDE.format('b')}, {_SIDE.format('a')})",
        f"CREATE OR REPLACE FUNCTION {schema}.outbox() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {branches} RETURN null; END $$",
        f"CREATE TRIGGER outbox AFTER INSERT OR UPDATE OR DELETE ON {schema}.{_OUTBOX.name} FOR EACH ROW "
        f"EXECUTE FUNCTION {schema}.outbox()",
    ):
        raw.execute(statement.encode())


def _beside_both(
    name: str, work: Callable[[TableSpecification], float], goals: tuple[float, float], rounds: int
) -> Iterator[Measurement]:
    for floor, against, goal in zip(
        (PLAIN, _OUTBOX),
        ("the same without a feed, PostgreSQL", "a row trigger by hand, PostgreSQL"),
        goals,
        strict=True,
    ):
        contender = Contender(f"{name}, lookup", lambda: work(FED), goal)
        yield from compare(AREA, against, lambda floor=floor: work(floor), [contender], rounds)  # type: ignore[misc]


def _transactions(storage: Storage, scale: Scale) -> Iterator[Measurement]:
    rows = list(make_rows(scale.rows // 10))
    chosen = random.Random(7)

    def single(spec: TableSpecification) -> float:
        picked, salt = chosen.sample(rows, max(scale.samples // 100, 20)), random.getrandbits(40)
        begin = perf_counter()
        for row in picked:
            with storage.transaction() as tx:
                tx.table(spec.name).upsert({**row, "bytes": salt})
        return (perf_counter() - begin) / len(picked)

    def many(spec: TableSpecification) -> float:
        salt = random.getrandbits(40)
        some = rows[: max(len(rows) // 4, 1_000)]
        return upsert_batches(storage, spec.name, list(batches({**row, "bytes": salt} for row in some)))

    yield from _beside_both("transaction of one row", single, (1.5, 1.4), scale.rounds)
    yield from _beside_both("upsert_many of 1,000 rows", many, (1.6, 0.8), scale.rounds)


def _jobs(database: Database, raw: Connection, storage: Storage, scale: Scale) -> Iterator[Measurement]:
    rows = list(make_rows(scale.rows // 2))
    keys = [{"host": row["host"], "started": row["started"]} for row in rows]

    def job(mode: WriteMode) -> Callable[[TableSpecification], float]:
        def work(spec: TableSpecification) -> float:
            _refill(database, raw, storage, spec, [] if mode is WriteMode.INSERT else rows)
            salt = random.getrandbits(40)
            given = keys if mode is WriteMode.DELETE else [{**row, "bytes": salt} for row in rows]
            parts = [
                [batch.select(list(given[0])) for batch in arrow_batches(part)]
                for part in (given[: len(given) // 2], given[len(given) // 2 :])
            ]
            begin = perf_counter()
            made = storage.begin_write(spec.name, mode=mode, job_id=f"job-{os.urandom(8).hex()}")
            storage.commit_write(made, [storage.stage(made, number, 0, part) for number, part in enumerate(parts)])
            return (perf_counter() - begin) / len(given)

        return work

    rounds = max(scale.rounds - 4, 2)
    for mode, goals in (
        (WriteMode.INSERT, (2.0, 0.75)),
        (WriteMode.UPSERT, (2.0, 0.75)),
        (WriteMode.UPDATE, (3.2, 0.75)),
        (WriteMode.DELETE, (3.2, 0.75)),
    ):
        yield from _beside_both(f"write job, {mode}", job(mode), goals, rounds)


def _refill(database: Database, raw: Connection, storage: Storage, spec: TableSpecification, rows: list[Row]) -> None:
    storage.admin.drop(spec.name)
    storage.admin.create(spec)
    if spec is _OUTBOX:
        _add_outbox(database, raw)
    if rows:
        load = storage.begin_write(spec.name, mode=WriteMode.INSERT, job_id=f"load-{os.urandom(8).hex()}")
        storage.commit_write(load, [storage.stage(load, 0, 0, arrow_batches(rows))])
    database.vacuum(raw, database.ours)
