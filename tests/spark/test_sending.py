"""`send_to` and `send_update_to`: rows in the order within their keys, defaults, deletes, and what misses."""

import datetime as dt
import pickle
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from structable.spark_bridge import TableRef, WriteSummary, send_to, send_update_to
from structable.spark_bridge.write import jobs
from structable.spi import (
    Field,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
)
from tests.access.support.measured import Measured
from tests.spark.conftest import every_store
from tests.spark.support.arrivals import Arrivals, ended, forget_commits

NOW = {"availableNow": True}
PROFILES = TableSpecification(
    "profiles",
    [Field.string("k"), Field.int("n"), Field.long("a"), Field.string("b"), Field.timestamp("at")],
    primary_key=["k", "n"],
)
SCHEMA = (
    "k string, n int, a bigint, b string, gone boolean, at_first struct<a: bigint, b: string, at: timestamp>, place int"
)
Row = dict[str, Value]
AT = dt.datetime(2024, 2, 29, 12, 30, 0, 7, dt.UTC)


@pytest.fixture
def table(storage: Storage, url: str) -> TableRef:
    storage.admin.create(PROFILES)
    return TableRef(url, "profiles")


def contents(storage: Storage) -> dict[tuple[Value, ...], Row]:
    return {row.key: dict(row) for row in storage.table("profiles").scan()}


def values(storage: Storage) -> dict[object, tuple[object, object]]:
    return {row["k"]: (row["a"], row["b"]) for row in storage.table("profiles").scan()}


def steps(seed: int, keys: int) -> list[dict[str, Any]]:
    """Return rows of many keys, in an order of their own by `place`."""
    chance, rows = random.Random(seed), list[dict[str, Any]]()
    for key in range(keys):
        for _ in range(chance.choice([1, 1, 2, 4])):
            rows.append(
                {
                    "k": f"k{key // 2}",
                    "n": key % 2,
                    "a": chance.choice([None, chance.randrange(100)]),
                    "b": chance.choice([None, "x", "y"]),
                    "gone": chance.choice([None, False, False, True]),
                    "at_first": chance.choice([None, {"a": -1, "b": "first", "at": AT}, {"a": None, "b": "second"}]),
                }
            )
    chance.shuffle(rows)
    return [{**row, "place": place} for place, row in enumerate(rows)]


def loop(storage: Storage, rows: list[dict[str, Any]], nulls: str) -> set[tuple[str, int]]:
    """Apply the rows to the table one by one; return the keys of which an update was skipped."""
    changed, missing = storage.table("profiles"), set()
    for row in sorted(rows, key=lambda row: row["place"]):
        key = (row["k"], row["n"])
        given = {name: row[name] for name in ("a", "b") if nulls == "set" or row[name] is not None}
        if row["gone"]:
            changed.delete(key)
            continue
        try:
            changed.update({"k": row["k"], "n": row["n"], **given}, row["at_first"])
        except RecordNotFoundError:
            missing.add(key)
    return missing


@pytest.mark.parametrize(
    ("url", "nulls"),
    [("leveldb", "set"), ("leveldb", "keep"), ("postgresql", "keep"), ("hbase", "set")],
    indirect=["url"],
)
def test_updates_are_a_loop_of_updates(spark: SparkSession, storage: Storage, table: TableRef, nulls: str) -> None:
    rows = steps(7, keys=100)
    old: list[Row] = [{"k": f"k{key}", "n": 0, "a": key, "b": "old"} for key in range(0, 50, 2)]
    storage.table("profiles").upsert_many(old)
    missing = loop(storage, rows, nulls)
    expected = contents(storage)
    storage.table("profiles").delete_many(list(expected))
    storage.table("profiles").upsert_many(old)
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).repartition(3)
    summary = send_update_to(
        frame, table, default="at_first", nulls=nulls, on_missing="drop", order_by="place", deletes="gone"
    )
    assert contents(storage) == expected
    assert summary == WriteSummary(len(rows), 100, len(missing))


@every_store
def test_updates_that_miss_fail_the_job(spark: SparkSession, storage: Storage, table: TableRef) -> None:
    storage.table("profiles").insert({"k": "here", "n": 1, "a": 1})
    rows = spark.range(12).selectExpr("concat('k', id) k", "1 n", "id a").union(spark.sql("select 'here', 1, 2L"))
    with pytest.raises(
        RecordNotFoundError, match=r"has no rows with 12 of the keys: \('k0', 1\), \('k1', 1\)"
    ) as caught:
        send_update_to(rows, table)
    assert (caught.value.count, len(caught.value.keys)) == (12, 10)
    after_delete = spark.createDataFrame(
        [("here", 1, 1, True), ("here", 1, 2, False)], "k string, n int, a long, g boolean"
    )
    with pytest.raises(RecordNotFoundError, match=r"has no row with the key \('here', 1\)"):
        send_update_to(after_delete.coalesce(1), table, deletes="g")
    assert values(storage) == {"here": (1, None)}
    assert send_update_to(rows, table, default={"b": "new"}) == WriteSummary(13, 13, 0)
    assert values(storage)["here"] == (2, None)
    assert values(storage)["k3"] == (3, "new")


def test_rows_of_a_key_take_effect_in_their_order(spark: SparkSession, storage: Storage, table: TableRef) -> None:
    def stored() -> tuple[object, object]:
        return values(storage)["x"]

    frame = spark.range(40).selectExpr("'x' k", "1 n", "id a", "concat('b', id) b", "(id * 7) % 40 o", "id = 39 gone")
    assert send_to(frame.drop("o", "gone"), table) == WriteSummary(40, 1)
    assert stored() == (39, "b39")
    send_to(frame.drop("gone"), table, order_by=["o", "a"])
    assert stored() == (17, "b17")
    send_to(frame.drop("gone").select("o", "k", "n", "a"), table, order_by="o", mode="replace")
    assert stored() == (17, None)
    assert send_to(frame.drop("o", "gone", "b"), table, unordered=True) == WriteSummary(40, 1)
    assert send_to(frame.drop("b"), table, order_by="o", deletes="gone", mode="replace") == WriteSummary(40, 1)
    assert stored() == (17, None)
    send_to(frame.where("a < 2").select("k", "n", "b", (col("a") < 1).alias("gone")), table, deletes="gone")
    assert stored() == (None, "b1")
    send_to(frame.drop("o"), table, deletes="gone", mode="replace")
    assert contents(storage) == {}
    with pytest.raises(RecordExistsError):
        send_to(frame.drop("o", "gone"), table, mode="insert")
    assert send_to(spark.range(5).selectExpr("'y' k", "int(id) n"), table, mode="insert") == WriteSummary(5, 5)


def test_changes_are_in_the_order_of_their_versions(spark: SparkSession, storage: Storage, table: TableRef) -> None:
    changes = [
        ("x", 1, 3, "update_postimage", 3),
        ("x", 1, 2, "update_preimage", 3),
        ("x", 1, 2, "insert", 2),
        ("x", 1, 1, "delete", 1),
        ("y", 1, 1, "delete", 9),
        ("y", 1, 1, "insert", 8),
    ]
    frame = spark.createDataFrame(changes, "k string, n int, a long, _change_type string, _commit_version long")
    assert send_to(frame, table, mode="changes") == WriteSummary(6, 2)
    assert values(storage) == {"x": (3, None)}


def test_a_job_id_makes_a_batch_write_one(spark: SparkSession, storage: Storage, table: TableRef) -> None:
    frame = spark.range(3).selectExpr("concat('k', id) k", "1 n", "id a")
    assert send_to(frame, table, job_id="nightly") == WriteSummary(3, 3)
    storage.table("profiles").delete(("k0", 1))
    assert send_to(frame, table, job_id="nightly") == WriteSummary(0, 0)
    assert sorted(map(str, values(storage))) == ["k1", "k2"]


@every_store
def test_a_stream_of_updates_takes_effect_once(
    spark: SparkSession, storage: Storage, table: TableRef, tmp_path: Path
) -> None:
    arrivals, checkpoint = Arrivals(spark, tmp_path / "arrivals", SCHEMA), tmp_path / "checkpoint"

    def run() -> list[int]:
        return ended(
            send_update_to(
                arrivals.stream().drop("place"),
                table,
                default="at_first",
                nulls="keep",
                deletes="gone",
                name="updates",
                checkpoint=str(checkpoint),
                trigger=NOW,
            )
        )

    first = {"a": 1, "b": "first"}
    arrivals.add({"k": "x", "n": 1, "a": 5, "at_first": first}, {"k": "y", "n": 1, "at_first": first})
    arrivals.add({"k": "x", "n": 1, "b": "updated"}, {"k": "y", "n": 1, "gone": True})
    assert run() == [0, 1]
    forget_commits([checkpoint], last=1)  # its updates would find y deleted
    assert run() == [1]
    assert values(storage) == {"x": (5, "updated")}
    arrivals.add({"k": "x", "n": 1, "a": 6}, {"k": "z", "n": 1, "a": 6})
    with pytest.raises(StreamingQueryException, match=r"has no row with the key \('z', 1\)"):
        run()
    assert values(storage) == {"x": (5, "updated")}


STREAM: dict[str, Any] = {"name": "n", "checkpoint": "/tmp/c"}


@pytest.mark.parametrize(
    ("streaming", "given", "message"),
    [
        (False, {"mode": "patch"}, "mode is 'patch'; allowed are upsert, changes, replace, insert"),
        (False, {"mode": ["upsert"]}, r"mode is \['upsert'\]; allowed are"),
        (False, {"unordered": True, "order_by": "a"}, "unordered is True, and order_by is 'a'"),
        (False, {"order_by": []}, r"order_by is \[\]"),
        (False, {"mode": "insert", "deletes": "gone"}, "deletes is 'gone', and mode is 'insert'"),
        (False, {"mode": "changes", "deletes": "gone"}, "deletes is 'gone', and mode is 'changes'"),
        (False, {"name": "x"}, "name is 'x', and the DataFrame is not a streaming one"),
        (False, {"checkpoint": "x"}, "checkpoint is 'x', and the DataFrame is not a streaming one"),
        (False, {"trigger": NOW}, "trigger is .* and the DataFrame is not a streaming one"),
        (False, {"job_id": "batch 1 of stream x"}, "job_id is 'batch 1 of stream x'"),
        (True, {}, "name is None; a streaming DataFrame needs a name"),
        (True, {"name": "n"}, "checkpoint is None; a streaming DataFrame needs the folder"),
        (True, {**STREAM, "name": "n" * 164}, "name must be a string of at most 163 characters"),
        (True, {**STREAM, "job_id": "x"}, "job_id is 'x', and the DataFrame is a streaming one"),
        (True, {**STREAM, "trigger": "1 minute"}, "trigger is '1 minute'; it must be a dict"),
    ],
)
def test_arguments_that_do_not_go_together(
    spark: SparkSession, streaming: bool, given: Mapping[str, Any], message: str
) -> None:
    frame = spark.readStream.format("rate").load() if streaming else spark.range(1)
    with pytest.raises(ValueError, match=message):
        send_to(frame, TableRef("leveldb:///nowhere", "profiles"), **given)


def test_arguments_of_updates(spark: SparkSession, table: TableRef) -> None:
    frame = spark.range(1).selectExpr(
        "'x' k", "1 n", "1L a", "struct(1L as a, 'y' as k, 2 as c) d", "struct(1D a) e", "map(1, 1) m"
    )
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"nulls": "drop"}, ValueError, "nulls is 'drop'; allowed are set, keep"),
        ({"on_missing": "skip"}, ValueError, "on_missing is 'skip'; allowed are fail, drop"),
        ({"default": 7}, ValueError, "default is 7"),
        ({"default": {"k": "x"}}, InvalidFieldError, r"'default\.k'"),
        ({"default": {"c": 1}}, InvalidFieldError, r"'default\.c'"),
        ({"default": {"a": "x", "z": 1}, "order_by": "o"}, InvalidFieldError, r"'default\.a, default\.z, order_by'"),
        ({"order_by": "m"}, InvalidFieldError, "names 'm' of type map<int,int>, which has no order"),
        ({"default": "a", "deletes": "a"}, InvalidFieldError, "names 'a', which must be one struct column .*; deletes"),
        ({"default": "e"}, InvalidFieldError, r"'e\.a': is double in the DataFrame"),
        ({"default": "d", "order_by": "z"}, InvalidFieldError, r"d\.c is not a field.*order_by names 'z'"),
    ]
    for given, error, message in cases:
        own = [name for name in given.values() if name in ("d", "e", "m")]
        with pytest.raises(error, match=message):
            send_update_to(frame.select("k", "n", "a", *own), table, **given)
    with pytest.raises(InvalidFieldError, match="the default is for 'y', the row for 'x'; leave the key out"):
        send_update_to(frame.select("k", "n", "a", frame.d.dropFields("c").alias("d")), table, default="d")


def test_a_frame_that_does_not_fit_is_refused_with_every_difference(
    spark: SparkSession, storage: Storage, table: TableRef, url: str
) -> None:
    frame = spark.range(1).selectExpr("'x' k", "id n", "1.5D a", "2 c")
    with pytest.raises(InvalidFieldError) as caught:
        send_to(frame, table)
    for told in (
        "n is bigint in the DataFrame; cast it: .cast('int')",
        "a is double in the DataFrame",
        "c is not a field",
    ):
        assert told in str(caught.value)
    with pytest.raises(TableNotFoundError):
        send_to(frame, TableRef(url, "absent"))
    with pytest.raises(InvalidFieldError, match="must not be null"):
        send_to(spark.range(2).select(lit("x").alias("k"), lit(None).cast("int").alias("n")), table)
    storage.admin.create(TableSpecification("events", [Field.long("n")], options={"write-mode": "append-only"}))
    events = TableRef(url, "events")
    with pytest.raises(UnsupportedOperationError, match="no write jobs of mode upsert"):
        send_to(spark.range(2).selectExpr("id n"), events)
    assert send_to(spark.range(2).selectExpr("id n"), events, mode="insert") == WriteSummary(2, 2)
    assert contents(storage) == {}


def test_a_reference_shows_no_password() -> None:
    ref = TableRef("postgresql://app:secret@db.example/x", "runs", password="secret", schema="s")
    assert "secret" not in repr(ref)
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert hash(ref) == hash(TableRef(ref.url, "runs", schema="s", password="secret"))
    for url, name, wrong in (("", "runs", "url"), ("leveldb:///x", 7, "name")):
        with pytest.raises(ValueError, match=f"{wrong} is"):
            TableRef(url, name)  # type: ignore[arg-type]


def test_missing_keys_are_counted_once_in_the_metrics_of_the_driver(
    spark: SparkSession, storage: Storage, table: TableRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured()
    monkeypatch.setattr(jobs, "recording_meter", lambda: measured.meter)
    arrivals, checkpoint = Arrivals(spark, tmp_path / "arrivals", "k string, n int, a bigint, gone boolean"), tmp_path

    def run() -> list[int]:
        return ended(
            send_update_to(
                arrivals.stream(),
                table,
                on_missing="drop",
                deletes="gone",
                name="updates",
                checkpoint=str(checkpoint / "checkpoint"),
                trigger=NOW,
            )
        )

    name, profiles = "structable.updates.missing", (("table", "profiles"),)
    storage.table("profiles").insert_many({"k": "here", "n": n, "a": 1} for n in range(3))
    arrivals.add({"k": "here", "n": 0, "a": 2})
    assert run() == [0]
    assert name not in measured.read()
    arrivals.add({"k": "x", "n": 1, "a": 2}, {"k": "y", "n": 1, "a": 2}, {"k": "x", "n": 1, "a": 3})
    arrivals.add({"k": "here", "n": 1, "gone": True}, {"k": "here", "n": 1, "a": 2}, {"k": "here", "n": 2, "a": 2})
    assert run() == [1, 2]
    assert measured.read()[name] == {profiles: 3}
    assert measured.units()[name] == "{key}"
    forget_commits([checkpoint / "checkpoint"], last=2)
    assert run() == [2]  # found committed
    assert measured.read()[name] == {profiles: 3}
    summary = send_update_to(
        spark.createDataFrame([("z", 1, 1)], "k string, n int, a bigint"), table, on_missing="drop"
    )
    assert isinstance(summary, WriteSummary)
    assert summary.missing == 1
    assert measured.read()[name] == {profiles: 4}


def test_options_of_a_reference_are_those_of_connect(storage: Storage, url: str) -> None:
    storage.admin.create(PROFILES)
    given: list[dict[str, object]] = [{"pool_timeout": 5, "create": False}, {"pool_timeout": 5.5, "block_cache": "8"}]
    for options in given:
        with TableRef(url, "profiles", **options).store.connect() as connected:
            assert connected.table("profiles").count() == 0
    for wrong in ([1], None, {"a": 1}, object):
        with pytest.raises(
            ValueError, match=r"option 'pool_timeout' is of type .*; it must be a string, a number or a bool"
        ):
            TableRef(url, "profiles", pool_timeout=wrong)
