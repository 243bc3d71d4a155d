"""`lookup_join`: what Spark's own join gives, by reading the rows of the keys alone."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from structable.spark_bridge import TableRef, lookup_join
from structable.spark_bridge.read.found_rows import Found, Matches, RowCache
from structable.spark_bridge.read.lookup_keys import KeyColumns, KeyValues
from structable.spark_bridge.read.lookup_rows import LookupTask, StoreRows
from structable.spi import (
    Field,
    InvalidFieldError,
    Storage,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    connect,
)
from tests.spark.conftest import Tables, complete, every_store, rows_of
from tests.spark.support.arrivals import Arrivals, ended
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, create_runs

HOW = ("inner", "left", "semi", "anti")


def joined_plainly(tables: Tables, frame: DataFrame, how: str) -> DataFrame:
    """Return Spark's join of a frame with columns `a` and `b` and the table `runs`."""
    runs = tables.read("runs").withColumnsRenamed({"status": "state", "app": "_app", "started": "_started"})
    met = frame.join(runs, (col("a") == col("_app")) & (col("b") == col("_started")), how)
    return met.drop("_app", "_started", "cost")


def sorted_rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def keys(spark: SparkSession) -> DataFrame:
    """Return a frame with keys that are there, are not, come twice, have nulls, or can be those of no row."""
    given: list[tuple[Any, ...]] = [("etl", number % 40, number, [number, None]) for number in range(0, 120, 2)]
    given += [(None, 1, 1, None), ("etl", None, 2, []), (None, None, 3, None), ("none", 1, 4, None)]
    given += [("e\0", 1, 5, None), ("x" * 3000, 1, 6, None), ("etl", -(2**63), 7, None)]
    return spark.createDataFrame(given, "a string, b bigint, n int, list array<int>").repartition(3)


@every_store
def test_the_result_is_that_of_a_plain_join(spark: SparkSession, tables: Tables, storage: Storage, url: str) -> None:
    create_runs(storage, 30)
    frame, ref, on = keys(spark), TableRef(url, "runs"), {"b": "started", "a": "app"}
    for how in HOW:
        plain = joined_plainly(tables, frame, how)
        for batch, cache_rows in ((3, 0), (7, 5), (1_000, 10_000)):
            found = lookup_join(frame, ref, on, {"status": "state"}, how, batch=batch, cache_rows=cache_rows)
            assert found.columns == plain.columns
            assert sorted_rows(found) == sorted_rows(plain)
        assert lookup_join(frame.limit(0), ref, on, {"status": "state"}, how).collect() == []


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_fields_of_every_type_are_added(spark: SparkSession, tables: Tables, storage: Storage, url: str) -> None:
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(ROWS)
    table = tables.read("everything")
    frame = table.select("name", "number", col("instant").alias("own")).cache()
    found = lookup_join(frame, TableRef(url, "everything"), ["number", "name"])
    plain = frame.join(table, ["name", "number"])
    assert found.schema == plain.schema
    assert repr(rows_of(found.drop("own"), EVERYTHING)) == repr(complete(EVERYTHING, ROWS))
    assert found.where("own <=> instant").count() == len(ROWS)
    frame.unpersist()


def test_keys_of_every_type_find_their_row(spark: SparkSession, storage: Storage, url: str) -> None:
    literals: dict[str, tuple[str, Value]] = {
        "boolean": ("true", True),
        "byte": ("-128Y", -128),
        "short": ("7S", 7),
        "int": ("2147483647", 2**31 - 1),
        "long": ("-9223372036854775808", -(2**63)),
        "string": ("'é'", "é"),
        "bytes": ("X'00ff'", b"\x00\xff"),
        "date": ("date'9999-12-31'", dt.date(9999, 12, 31)),
        "timestamp": ("timestamp'2024-07-01 00:00:00'", dt.datetime(2024, 7, 1, 7, tzinfo=dt.UTC)),
        "timestamp_ntz": ("timestamp_ntz'2024-07-01 00:00:00'", dt.datetime(2024, 7, 1)),
    }
    fields = [getattr(Field, kind)(f"k_{kind}") for kind in literals]
    storage.admin.create(TableSpecification("t", [*fields, Field.int("v")], [field.name for field in fields]))
    key: dict[str, Value] = {f"k_{kind}": value for kind, (_, value) in literals.items()}
    storage.table("t").insert({**key, "v": 1})
    far_away = {"k_date": "k_date + 1 k_date", "k_timestamp": "timestamp_seconds(300000000000) k_timestamp"}
    frame = spark.sql("select " + ", ".join(f"{text} as k_{kind}" for kind, (text, _) in literals.items()))
    far = frame.selectExpr(*[far_away.get(name, name) for name in frame.columns])  # none of Python's values
    found = lookup_join(frame.union(far), TableRef(url, "t"), [field.name for field in fields], how="left")
    assert sorted([row.v for row in found.select("v").collect()], key=str) == [1, None]


def test_columns_are_all_outside_the_key_or_those_chosen(spark: SparkSession, storage: Storage, url: str) -> None:
    create_runs(storage, 3)
    frame, ref = spark.sql("select 'etl' app, 1L started, 7 n"), TableRef(url, "runs")
    every = lookup_join(frame, ref, ["app", "started"])
    assert [row.asDict() for row in every.collect()] == [
        {"app": "etl", "started": 1, "n": 7, "status": "OK", "cost": 0.25}
    ]
    assert lookup_join(frame, ref, ["app", "started"], []).columns == frame.columns
    own = lookup_join(frame, ref, ["app", "started"], {"cost": "x", "started": "y"}, "left")
    assert [tuple(row) for row in own.collect()] == [("etl", 1, 7, 0.25, 1)]
    assert lookup_join(frame, ref, ["app", "started"], how="anti").columns == frame.columns


def test_a_stream_is_joined_batch_by_batch(spark: SparkSession, storage: Storage, url: str, tmp_path: Path) -> None:
    storage.admin.create(TableSpecification("t", [Field.long("k"), Field.string("v")], ["k"]))
    storage.table("t").insert_many([{"k": 1, "v": "a"}, {"k": 3, "v": "c"}])
    arrivals = Arrivals(spark, tmp_path / "arrivals", "k bigint, n int")
    arrivals.add({"k": 1, "n": 1}, {"k": 2, "n": 2})
    arrivals.add({"k": 3, "n": 3})
    found: list[tuple[object, ...]] = []
    joined = lookup_join(arrivals.stream(), TableRef(url, "t"), "k", how="left")
    query = joined.writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.collect())))
    checkpoint = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert ended(checkpoint.trigger(availableNow=True).start()) == [0, 1]
    assert sorted(found, key=str) == [(1, 1, "a"), (2, 2, None), (3, 3, "c")]


def test_what_is_wrong_is_said_before_spark_starts(spark: SparkSession, storage: Storage, url: str) -> None:
    create_runs(storage, 1)
    frame, ref = spark.sql("select 'etl' app, 1 started, 7 status"), TableRef(url, "runs")
    with pytest.raises(InvalidFieldError) as caught:
        lookup_join(frame, ref, {"started": "started", "absent": "status", "status": "started"}, ["cost", "Cost"])
    for told in (
        "on names the column 'started' of type int for the field 'started' of type bigint; cast it: .cast('bigint')",
        "on names the column 'absent', and the DataFrame has app, started, status",
        "on names the field 'status', and the primary key is app, started",
        "on names the field 'started' twice",
        "on lacks the key field 'app'; give the whole key, app, started",
        "columns names 'Cost', which is not a field; the fields are app, started, status, cost",
    ):
        assert told in str(caught.value)
    good = frame.withColumn("started", col("started").cast("long"))
    on = ["app", "started"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"how": "outer"}, "how is 'outer'; allowed are inner, left, semi, anti"),
        ({"batch": 0}, "batch is 0; it must be a whole number, 1 to 100,000"),
        ({"batch": 100_001}, "batch is 100001"),
        ({"cache_rows": -1}, "cache_rows is -1; it must be a whole number, at least 0"),
        ({"cache_rows": True}, "cache_rows is True"),
        ({"columns": ["status"]}, "the result would have the column 'status' twice"),
        ({"columns": {"cost": "APP"}}, "the result would have the column 'APP' twice"),
        ({"columns": {"cost": "x", "status": "x"}}, "the result would have the column 'x' twice"),
        ({"columns": "cost"}, "columns is 'cost'; it must be a list of fields"),
        ({"columns": [1]}, r"columns is \[1\]"),
        ({"on": 7}, "on is 7; it must be a column"),
    ]
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            lookup_join(**{"df": good, "ref": ref, "on": on, **given})
    with pytest.raises(TypeError, match="ref is 'runs'; it must be a TableRef"):
        lookup_join(good, "runs", on)  # type: ignore[arg-type]
    with pytest.raises(TableNotFoundError):
        lookup_join(good, TableRef(url, "absent"), on)
    storage.admin.create(TableSpecification("log", [Field.long("k")], options={"write-mode": "append-only"}))
    with pytest.raises(UnsupportedOperationError, match=r"has no primary key .*: it has no look-up joins"):
        lookup_join(good, TableRef(url, "log"), on)


def test_a_table_that_is_dropped_fails_the_query(spark: SparkSession, storage: Storage, url: str) -> None:
    create_runs(storage, 1)
    found = lookup_join(spark.sql("select 'etl' app, 1L started"), TableRef(url, "runs"), ["app", "started"])
    storage.admin.drop("runs")
    with pytest.raises(Exception, match="table 'runs' does not exist"):
        found.collect()


def test_a_batch_is_one_read_of_its_distinct_keys(storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.admin.create(RUNS)
    read: list[int] = []
    own = RowCache.of

    def noted(self: RowCache, keys: KeyColumns, reads: Callable[[list[KeyValues]], Found]) -> Matches:
        read.append(len(set(keys.tuples())))
        return own(self, keys, reads)

    monkeypatch.setattr(RowCache, "of", noted)
    batches = [
        pa.RecordBatch.from_pydict({"a": pa.array(["etl"] * rows, pa.string()), "b": pa.array(range(rows), pa.int64())})
        for rows in (4, 0, 1, 9, 2)
    ]
    ref = TableRef(url, "runs")
    lookup = LookupTask(StoreRows(ref.store, RUNS, (), 10), RUNS, (0, 1), ("a", "b"), "anti", 7)
    assert [batch.num_rows for batch in lookup(batches)] == [4, 1, 2, 7, 2]
    assert read == [4, 7, 2]


PAIRS = TableSpecification("pairs", [Field.long("a"), Field.long("b"), Field.int("n")], ["a", "b"])


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (TableSpecification("pairs", PAIRS.fields, ["b", "a"]), r"the key \(a, b\) to the key \(b, a\)"),
        (TableSpecification("pairs", [*PAIRS.fields[:2], Field.double("n")], ["a", "b"]), "int to double"),
        (TableSpecification("pairs", [*PAIRS.fields[:2], Field.long("n")], ["a", "b"]), "int to long"),
    ],
    ids=["key", "type", "widened"],
)
def test_table_that_changed_since_the_join_was_made(
    spark: SparkSession, tables: Tables, spec: TableSpecification, change: str
) -> None:
    rows = [{"a": 1, "b": 2, "n": 12}, {"a": 2, "b": 1, "n": 21}]
    frame = spark.createDataFrame([(1, 2)], "x long, y long")
    with connect(tables.url) as storage:
        storage.admin.create(PAIRS)
        storage.table("pairs").upsert_many(rows)
        joined = lookup_join(frame, TableRef(tables.url, "pairs"), {"x": "a", "y": "b"}, ["n"])
        assert [row.n for row in joined.collect()] == [12]
        storage.admin.drop("pairs")
        storage.admin.create(spec)
        storage.table("pairs").upsert_many(rows)
        with pytest.raises(Exception, match=f"InvalidFieldError: .*since this look-up join was made, from {change}"):
            joined.collect()
