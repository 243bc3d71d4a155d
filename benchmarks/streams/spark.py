"""Spark's streams, compared with the batch read of the same feed and with hand-written `foreachBatch` functions.

None of the floors is exactly once: a micro-batch that is repeated writes its rows again.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.leveldb.stores import url_of
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import UPSERT, Database, arrow_batches, jdbc_options
from benchmarks.rows import TABLE, batches, make_rows, specification
from benchmarks.sessions import JDBC_DRIVER, spark_session
from structable.spark_bridge import TableRef, register, send_to, send_update_to
from structable.spi import Value, connect

from .updates import AREA

_PARTS = 5
_PARTITIONS = 2
_BY_HAND = 1_000


def measure(folder: Path, database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure streams, if the JDBC driver is installed."""
    if not JDBC_DRIVER.exists():
        print(f"Spark's streams are not measured: their floor needs {JDBC_DRIVER}", file=sys.stderr)
        return
    with spark_session(folder) as spark:
        register(spark)
        yield from _feeds(spark, folder, scale)
        made = _Micro(spark, folder, scale.many_rows // 4)
        yield from _writes(made, database, scale)
        yield from _updates(made, database, scale)


def _feeds(spark: SparkSession, folder: Path, scale: Scale) -> list[Measurement]:
    """Read a feed of new rows, all at once.

    Spark starts a Python process for each streaming source, which takes it a second or two: the ratio is of what comes
    after, and the whole time is shown with it.
    """
    count, url, spec = scale.many_rows // 2, url_of(folder / "fed"), specification()
    with connect(url) as storage:
        for name in (TABLE, "empty"):
            storage.admin.create(spec.evolve(name=name, options={"changelog-producer": "lookup"}))
        for batch in batches(make_rows(count)):
            storage.table(TABLE).upsert_many(batch)

    def options(table: str) -> dict[str, str]:
        return {"url": url, "table": table, "readChangeFeed": "true", "startingVersion": "earliest"}

    def batch_read() -> float:
        begin = perf_counter()
        spark.read.format("structable").options(**options(TABLE)).load().write.format("noop").mode("append").save()
        return (perf_counter() - begin) / count

    def stream(table: str, rows: int) -> float:
        begin = perf_counter()
        changes = spark.readStream.format("structable").options(**options(table)).load()
        query = _until_now(changes, folder).format("noop").start()
        query.awaitTermination()
        seconds = perf_counter() - begin
        assert sum(one["numInputRows"] for one in query.recentProgress) == rows
        return seconds / count

    contenders = [
        Contender(
            "stream of a feed, availableNow, but for its start",
            lambda: max(stream(TABLE, count) - stream("empty", 0), 0.01 / count),
            1.3,
        ),
        Contender("stream of a feed, availableNow", lambda: stream(TABLE, count)),
    ]
    return compare(AREA, "batch read of the same feed", batch_read, contenders, max(scale.rounds - 2, 2))


class _Micro:
    """A stream of five files, a micro-batch each, over and over."""

    def __init__(self, spark: SparkSession, folder: Path, count: int) -> None:
        self.spark, self.folder, self.count = spark, folder, count
        self.files = folder / "files"
        self.files.mkdir()
        rows = list(make_rows(count))
        part = -(-count // _PARTS)
        for start in range(0, count, part):
            some = arrow_batches(rows[start : start + part])
            pq.write_table(pa.Table.from_batches(some), self.files / f"{start}.parquet")
        self.schema = spark.read.parquet(str(self.files)).schema

    def stream(self) -> DataFrame:
        source = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return source.parquet(str(self.files)).repartition(_PARTITIONS)

    def timed(self, start: Callable[[], StreamingQuery]) -> float:
        begin = perf_counter()
        query = start()
        query.awaitTermination()
        seconds = perf_counter() - begin
        assert len([one for one in query.recentProgress if one["numInputRows"]]) == _PARTS
        return seconds / self.count

    def by_hand(self, work: Callable[[DataFrame, int], None]) -> float:
        return self.timed(lambda: _until_now(self.stream(), self.folder).foreachBatch(work).start())


def _until_now(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(_checkpoint(folder)))


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoints" / uuid.uuid4().hex


def _writes(made: _Micro, database: Database, scale: Scale) -> Iterator[Measurement]:
    """Write new rows into an empty table."""
    jdbc, conninfo, schema = jdbc_options(database), database.raw.conninfo, database.raw.name
    ours = TableRef(database.ours.url, TABLE)

    def emptied(start: Callable[[], float]) -> Callable[[], float]:
        def work() -> float:
            with database.connection() as raw, database.storage() as storage:
                database.empty_raw(raw)
                database.empty_ours(storage)
            return start()

        return work

    def append(rows: DataFrame, _: int) -> None:
        rows.write.format("jdbc").options(**jdbc).option("batchsize", 10_000).mode("append").save()

    def upsert(rows: DataFrame, _: int) -> None:
        rows.foreachPartition(lambda part: _upsert_by_hand(conninfo, schema, part))

    def sink() -> StreamingQuery:
        writer = _until_now(made.stream(), made.folder).format("structable").option("mode", "upsert")
        query: StreamingQuery = writer.option("url", database.ours.url).option("table", TABLE).start()
        return query

    def sent() -> StreamingQuery:
        name, checkpoint = f"sent-{uuid.uuid4().hex}", str(_checkpoint(made.folder))
        rows = made.stream()
        query = send_to(rows, ours, unordered=True, name=name, checkpoint=checkpoint, trigger={"availableNow": True})
        assert isinstance(query, StreamingQuery)
        return query

    rounds = max(scale.rounds - 2, 2)
    yield from compare(
        AREA,
        "foreachBatch and JDBC append, not exactly once",
        emptied(lambda: made.by_hand(append)),
        [Contender("streaming upsert in 5 batches, PostgreSQL", emptied(lambda: made.timed(sink)), 1.0)],
        rounds,
    )
    yield from compare(
        AREA,
        "foreachBatch and psycopg's batches by hand, not exactly once",
        emptied(lambda: made.by_hand(upsert)),
        [Contender("send_to in 5 batches, PostgreSQL", emptied(lambda: made.timed(sent)), 0.7)],
        rounds,
    )


def _updates(made: _Micro, database: Database, scale: Scale) -> list[Measurement]:
    """Update a table that has every other row; the others get a default."""
    conninfo, schema, ours = database.raw.conninfo, database.raw.name, TableRef(database.ours.url, TABLE)
    half = [row for number, row in enumerate(make_rows(made.count)) if number % 2]

    def refilled(start: Callable[[], float]) -> Callable[[], float]:
        def work() -> float:
            with database.connection() as raw, database.storage() as storage:
                database.empty_raw(raw)
                database.empty_ours(storage)
                with raw.cursor().copy(f"COPY {TABLE} FROM STDIN".encode()) as copy:
                    for row in half:
                        copy.write_row(tuple(row.values()))
                for batch in batches(half):
                    storage.table(TABLE).upsert_many(batch)
                for one in (database.raw, database.ours):
                    database.vacuum(raw, one)
            return start()

        return work

    def update(rows: DataFrame, _: int) -> None:
        rows.select(*_UPDATED).foreachPartition(lambda part: _update_by_hand(conninfo, schema, part))

    def sent() -> StreamingQuery:
        name, checkpoint = f"sent-{uuid.uuid4().hex}", str(_checkpoint(made.folder))
        query = send_update_to(
            made.stream().select(*_UPDATED),
            ours,
            default=_DEFAULT,
            unordered=True,
            name=name,
            checkpoint=checkpoint,
            trigger={"availableNow": True},
        )
        assert isinstance(query, StreamingQuery)
        return query

    return compare(
        AREA,
        "select, insert and update by hand, not exactly once",
        refilled(lambda: made.by_hand(update)),
        [Contender("send_update_to, half of the keys missing, PostgreSQL", refilled(lambda: made.timed(sent)), 0.7)],
        max(scale.rounds - 2, 2),
    )


def _batched(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := list(islice(rows, _BY_HAND)):
        yield some


_UPDATED = ("host", "started", "bytes", "attempts")
_DEFAULT: dict[str, Value] = {"status": "new", "path": "/", "cost": 0.0, "done": False}


def _upsert_by_hand(conninfo: str, schema: str, part: Iterator[Row]) -> None:
    names = specification().field_names
    text = f"INSERT INTO {TABLE} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))}) {UPSERT}".encode()
    with psycopg.connect(conninfo, options=f"-c search_path={schema}") as connection, connection.cursor() as cursor:
        for some in _batched(part):
            cursor.executemany(text, [tuple(row) for row in some])
            connection.commit()


def _update_by_hand(conninfo: str, schema: str, part: Iterator[Row]) -> None:
    names = (*_UPDATED, *_DEFAULT)
    insert = f"INSERT INTO {TABLE} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})".encode()
    update = f"UPDATE {TABLE} SET bytes = %s, attempts = %s WHERE host = %s AND started = %s".encode()
    present = (
        f"SELECT host, started FROM {TABLE} WHERE (host, started) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))"
    ).encode()
    with psycopg.connect(conninfo, options=f"-c search_path={schema}") as connection, connection.cursor() as cursor:
        for some in _batched(part):
            cursor.execute(present, [[row["host"] for row in some], [row["started"] for row in some]])
            there = set(cursor.fetchall())
            missing = [row for row in some if (row["host"], row["started"]) not in there]
            known = [row for row in some if (row["host"], row["started"]) in there]
            cursor.executemany(insert, [(*row, *_DEFAULT.values()) for row in missing])
            cursor.executemany(update, [(row["bytes"], row["attempts"], row["host"], row["started"]) for row in known])
            connection.commit()
