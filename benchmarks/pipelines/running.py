"""Pipelines on Spark, compared with hand-written code for the same rows."""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Database, jdbc_options
from benchmarks.rows import TABLE, make_rows, row_key, specification
from benchmarks.sessions import JDBC_DRIVER, spark_session
from structable.access import Cache
from structable.spark_bridge import TableRef, register
from structable.spark_bridge.pipelines import Pipeline

AREA = "pipelines"
_MICRO_BATCHES = 8
_ONE_BY_ONE = 20
"""The part of the rows that the slow floor reads."""
_HOT = 50
"""The part of the keys that 19 in 20 rows have, for the cache; a batch reads each key once."""
_NOOP = {"format": "noop", "mode": "overwrite"}
_JOINED = "host string, started bigint, place int, status string, bytes bigint"
_SELECT = f"SELECT status, bytes FROM {TABLE} WHERE host = %s AND started = %s".encode()
_UNNEST = (
    f"SELECT t.host, t.started, t.status, t.bytes FROM {TABLE} t "
    "JOIN unnest(%s::text[], %s::bigint[]) AS u (host, started) ON t.host = u.host AND t.started = u.started"
).encode()


def measure(folder: Path, database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure lookups and sends; the floor of micro-batches needs the JDBC driver."""
    count = scale.many_rows // 2
    database.make(count)
    with spark_session(folder) as spark:
        register(spark)
        work = _Work(spark, folder, database, count)
        rounds = max(scale.rounds - 4, 2)
        yield from _lookups(work, rounds)
        yield from _cached(work, rounds)
        yield from _sends(work, rounds)
        if JDBC_DRIVER.exists():
            yield from _micro_batches(work, rounds)
        else:
            print(f"micro-batches are not measured: their floor needs {JDBC_DRIVER}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Work:
    spark: SparkSession
    folder: Path
    database: Database
    count: int

    def keys(self, name: str, numbers: Sequence[int], files: int) -> str:
        """Write rows with the keys of these rows of the table, in `files` files; return their folder."""
        known = [row_key(row) for row in make_rows(self.count)]
        place = self.folder / name
        place.mkdir()
        part = -(-len(numbers) // files)
        for start in range(0, len(numbers), part):
            some = [known[number] for number in numbers[start : start + part]]
            columns: dict[str, pa.Array[Any]] = {
                "host": pa.array([host for host, _ in some], pa.string()),
                "started": pa.array([started for _, started in some], pa.int64()),
                "place": pa.array(range(start, start + len(some)), pa.int32()),
            }
            pq.write_table(pa.table(columns), place / f"{start:09}.parquet", row_group_size=part)
        return str(place)

    def ref(self, table: str = TABLE) -> TableRef:
        return TableRef(self.database.ours.url, table)

    def pipeline(
        self,
        load: Callable[[SparkSession], DataFrame],
        cache: Cache | None = None,
        sink: Mapping[str, Any] | Callable[[DataFrame, int], None] = _NOOP,
    ) -> Pipeline:
        """Return the lookup join of rows, whose result goes to a sink, or nowhere."""
        pipeline = Pipeline("bench")
        table = pipeline.table("runs", self.ref(), cache=cache)
        joined = pipeline.source("rows", load).join_table(table, ["host", "started"], columns=["status", "bytes"])
        joined.sink("nowhere", sink)
        return pipeline


def _lookups(work: _Work, rounds: int) -> Iterator[Measurement]:
    numbers = list(range(work.count))
    random.Random(3).shuffle(numbers)
    place = work.keys("lookups", numbers, 4)
    few = work.keys("few", numbers[: max(work.count // _ONE_BY_ONE, 1)], 4)
    conninfo, schema = work.database.raw.conninfo, work.database.raw.name

    def one_by_one(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        with psycopg.connect(conninfo, options=f"-c search_path={schema}") as connection, connection.cursor() as cursor:
            for part in parts:
                found = [
                    cursor.execute(_SELECT, key, prepare=True).fetchone() or (None, None)
                    for key in zip(part["host"], part["started"].tolist(), strict=True)
                ]
                part["status"] = [row[0] for row in found]
                part["bytes"] = [row[1] for row in found]
                yield part

    def unnest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with psycopg.connect(conninfo, options=f"-c search_path={schema}") as connection, connection.cursor() as cursor:
            for batch in batches:
                keys = [batch.column(name).to_pylist() for name in ("host", "started")]
                found = {row[:2]: row[2:] for row in cursor.execute(_UNNEST, keys, prepare=True).fetchall()}
                rows = [found.get(key, (None, None)) for key in zip(*keys, strict=True)]
                status, volume = zip(*rows, strict=True)
                columns = [*batch.columns, pa.array(status, pa.string()), pa.array(volume, pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "status", "bytes"])

    def by_hand(folder: str, join: Callable[[DataFrame], DataFrame], rows: int) -> Callable[[], float]:
        def timed() -> float:
            begin = perf_counter()
            join(work.spark.read.parquet(folder)).write.format("noop").mode("overwrite").save()
            return (perf_counter() - begin) / rows

        return timed

    pipeline = work.pipeline(lambda spark: spark.read.parquet(place))

    def ours() -> float:
        begin = perf_counter()
        pipeline.run_batch(work.spark)
        return (perf_counter() - begin) / work.count

    yield from compare(
        AREA,
        "unnest by hand in mapInArrow",
        by_hand(place, lambda frame: frame.mapInArrow(unnest, _JOINED), work.count),
        [Contender("lookup join, as many rows as the table", ours, 1.2)],
        rounds,
    )
    yield from compare(
        AREA,
        "a prepared select a row in mapInPandas",
        by_hand(few, lambda frame: frame.mapInPandas(one_by_one, _JOINED), max(work.count // _ONE_BY_ONE, 1)),
        [Contender("lookup join", ours, 0.15)],
        rounds,
    )


def _cached(work: _Work, rounds: int) -> list[Measurement]:
    chance, hot = random.Random(4), max(work.count // _HOT, 1)
    numbers = [
        chance.randrange(hot) if chance.random() < 0.95 else chance.randrange(work.count) for _ in range(work.count)
    ]
    place = work.keys("cached", numbers, 4)

    def timed(cache: Cache | None) -> Callable[[], float]:
        pipeline = work.pipeline(lambda spark: spark.read.parquet(place), cache)

        def run() -> float:
            begin = perf_counter()
            pipeline.run_batch(work.spark)
            return (perf_counter() - begin) / work.count

        return run

    cache = Cache(max_rows=work.count, ttl=600.0)
    return compare(
        AREA, "the same lookups without a cache", timed(None), [Contender("90 % cache hits", timed(cache), 0.4)], rounds
    )


def _micro_batches(work: _Work, rounds: int) -> list[Measurement]:
    """Measure a micro-batch of a query that runs: from the end of the first one to the end of the last."""
    size = min(10_000, work.count)
    chance = random.Random(5)
    place = work.keys("micro", [chance.randrange(work.count) for _ in range(size * _MICRO_BATCHES)], _MICRO_BATCHES)
    schema = work.spark.read.parquet(place).schema
    jdbc = jdbc_options(work.database)

    def stream(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(place)

    ends: list[float] = []

    def nowhere(rows: DataFrame, _: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        ends.append(perf_counter())

    def static(rows: DataFrame, number: int) -> None:
        table = (
            rows.sparkSession.read.format("jdbc").options(**jdbc).load().select("host", "started", "status", "bytes")
        )
        nowhere(rows.join(table, ["host", "started"]), number)

    def steady(run: Callable[[], object]) -> float:
        ends.clear()
        run()
        assert len(ends) == _MICRO_BATCHES
        return (ends[-1] - ends[0]) / (_MICRO_BATCHES - 1)

    def by_hand() -> float:
        writer = stream(work.spark).writeStream.trigger(availableNow=True).foreachBatch(static)
        writer = writer.option("checkpointLocation", _checkpoint(work))
        return steady(lambda: writer.start().awaitTermination())

    pipeline = work.pipeline(stream, sink=nowhere)

    def ours() -> float:
        return steady(lambda: pipeline.run_available(work.spark, _checkpoint(work)))

    contender = Contender("lookup join, micro-batches of 10,000", ours, 0.1)
    return compare(AREA, "a static join that reads the JDBC table each time", by_hand, [contender], rounds)


def _sends(work: _Work, rounds: int) -> list[Measurement]:
    """Write one micro-batch to a table, and a tenth of it to another."""
    place = work.keys("sends", range(work.count // 4), 2)
    schema = work.spark.read.parquet(place).schema
    count = work.count // 4

    def timed(*tables: str) -> Callable[[], float]:
        pipeline = Pipeline("sends")
        rows = pipeline.source("rows", lambda spark: spark.readStream.schema(schema).parquet(place))
        written = rows.map(lambda df: df.selectExpr("host", "started", "place attempts", "concat('p', place) path"))
        for name in tables:
            part = written if name == "one" else written.filter("attempts % 10 = 0")
            part.send_to(pipeline.table(name, work.ref(name)))

        def run() -> float:
            with work.database.storage() as storage:
                for name in tables:
                    storage.admin.drop(name)
                    storage.admin.create(specification().evolve(name=name))
            begin = perf_counter()
            pipeline.run_available(work.spark, _checkpoint(work))
            return (perf_counter() - begin) / count

        return run

    contender = Contender("two sends of a micro-batch, one of a tenth of its rows", timed("one", "two"), 1.3)
    return compare(AREA, "the larger one alone", timed("one"), [contender], rounds)


def _checkpoint(work: _Work) -> str:
    return str(work.folder / "checkpoints" / uuid.uuid4().hex)
