"""The keys of a join's small side reach the store as a filter on the large table, and change no result."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from structable.spi import Storage
from tests.spark.conftest import Tables, every_store, settings
from tests.spark.support.plans import planned_scans
from tests.spark.support.samples import EVERYTHING, ROWS, create_runs
from tests.spark.test_query_snapshots import create, move

LARGE = 10_000_000
"""The option `statistics` of a table that Spark takes for a large one."""


def no_runtime_filters(session: SparkSession) -> AbstractContextManager[None]:
    return settings(session, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"})


def check(frame: DataFrame, *wanted: str) -> list[Any]:
    """Collect a query, of which a plan has each of the wanted conditions; without them the rows are the same."""
    with planned_scans(frame.sparkSession) as noted:
        rows = sorted(map(str, frame.collect()))
    found = [str(one.where) for one in noted]
    for condition in wanted:
        assert any(condition in one for one in found), found
    with no_runtime_filters(frame.sparkSession), planned_scans(frame.sparkSession) as plain:
        assert sorted(map(str, frame.select("*").collect())) == rows
    assert not any(condition in str(one.where) for one in plain for condition in wanted)
    return rows


def large(tables: Tables, name: str = "runs", **options: object) -> DataFrame:
    return tables.read(name, **{"statistics": LARGE, **options})


def few(tables: Tables, *started: int) -> DataFrame:
    """Return a small frame of keys, of which Spark knows the size."""
    values = ", ".join(f"('etl', {one}L)" for one in started)
    return tables.session.sql(f"select * from values {values} as few(app, started)")


@every_store
def test_a_small_frame_is_looked_up_in_a_large_table(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3000)
    with storage.table("runs").scan(limit=1) as first:
        name = next(first)["app"]
    small = few(tables, 0, 7, 2_999, 5_000).withColumn("app", f.lit(name))
    rows = check(large(tables).join(small, ["app", "started"]), "started in [0, 7, 2999, 5000]")
    assert len(rows) <= 3
    check(small.join(large(tables), "started"), "started in [")
    check(large(tables).join(small, "started", "left_semi"), "started in [")


@every_store
def test_the_rows_that_a_small_table_filters(tables: Tables, storage: Storage) -> None:
    create(storage)
    small = tables.read("left").where("id < 5")
    rows = check(large(tables, "left").alias("other").join(small, "id").select("other.id"), "id in [0, 1, 2, 3, 4]")
    assert len(rows) == 5


@pytest.mark.parametrize("name", [field.name for field in EVERYTHING.fields])
def test_keys_of_each_type(tables: Tables, storage: Storage, name: str) -> None:
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(ROWS)
    keys = f.broadcast(tables.frame(EVERYTHING, ROWS[:2]).select(name))
    left_out = name in ("single", "wide", "price", "huge")
    hashed = large(tables, "everything").join(keys, name).select(f.xxhash64(name))  # Python lacks some of the times
    rows = check(hashed, *([] if left_out else [f"{name} in ["]))
    assert rows


def test_nulls_and_no_keys(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    keys = tables.session.sql("select * from values ('OK'), (null), ('lost') as few(status)")
    check(large(tables).join(keys, "status"), "status in ['")
    none = f.broadcast(tables.read("runs").where("concat(status, 'x') = 'y'").select("status"))
    with settings(tables.session, {"spark.sql.adaptive.enabled": "false"}):  # it would leave the scan out
        assert check(large(tables).join(none, "status"), "status in []") == []


def test_too_many_keys_are_left_to_the_join(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    for count, taken in ((10_000, True), (10_001, False)):
        keys = f.broadcast(tables.session.range(count).withColumnRenamed("id", "started"))
        with planned_scans(tables.session) as noted:
            assert large(tables).join(keys, "started").count() == 100
        assert any(" in [" in str(one.where) for one in noted) is taken


def test_filters_of_both_kinds(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    small = few(tables, *range(0, 100, 10))
    frame = large(tables).where("started >= 50 and cost + 1 > 0").join(small.select("started"), "started")
    check(frame, "started >= 50 and started in [50, 60, 70, 80, 90]")
    check(frame.groupBy("status").count(), "started >= 50 and started in [50, 60, 70, 80, 90]")


def test_a_limit_sees_all_rows(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    keys = tables.session.range(99, 100).withColumnRenamed("id", "started")
    for limited in (large(tables).limit(10), large(tables).orderBy("app", "started").limit(10)):
        with planned_scans(tables.session) as noted:
            assert limited.join(keys, "started").count() <= 1
        assert not any(" in [" in str(one.where) for one in noted)
    first = large(tables).orderBy("app", "started").limit(10)
    assert first.join(keys, "started").count() == 0


def test_what_is_not_marked(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    # Not `few`: of such rows Spark takes the keys of any table.
    small = tables.session.range(1, 3).withColumnRenamed("id", "started")
    check(large(tables).join(small, "started"), "started in [1, 2]")
    for frame in (
        large(tables, pushdown="none").join(small, "started"),
        tables.read("runs").join(small, "started"),  # a small table
        large(tables).join(small, "started", "left"),
        large(tables).join(small, "started", "left_anti"),
        large(tables).join(small, "started", "full"),
    ):
        with planned_scans(tables.session) as noted:
            frame.collect()
        assert [" in [" in str(one.where) for one in noted] == [False]


@every_store
def test_the_looked_up_rows_are_of_the_querys_state(tables: Tables, storage: Storage) -> None:
    create(storage)
    small = tables.read("left").where("id < 50")
    query = large(tables, "left").join(small.select("id"), "id").select("id")
    with planned_scans(tables.session, lambda: move(storage)) as planned:
        assert {row.id for row in query.collect()} == set(range(50))
        assert len(planned) >= 2
        assert len({one.execution for one in planned}) == 1


def test_frames_of_one_table_with_keys_of_their_own(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 200)
    frame = large(tables)
    parts = [frame.join(few(tables, *started).select("started"), "started") for started in ((1, 2), (3,), (4, 5, 6))]
    union = parts[0].union(parts[1]).union(parts[2])
    rows = check(union, "started in [1, 2]", "started in [3]", "started in [4, 5, 6]")
    assert len(rows) == 6
    one = frame.join(few(tables, 1, 2).select("started"), "started").select("started", f.lit(1).alias("x"))
    other = frame.join(few(tables, 2, 3).select("started"), "started").select("started", f.lit(2).alias("y"))
    check(one.join(other, "started"), "started in [1, 2]", "started in [2, 3]")


def test_a_frame_is_collected_twice(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 200)
    frame = large(tables).join(few(tables, 1, 2, 3).select("started"), "started")
    assert frame.collect() == frame.collect()
    assert frame.count() == 3


def test_a_cached_and_a_written_join(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 200)
    frame = large(tables).join(few(tables, 1, 2, 3).select("started"), "started")
    cached = frame.cache()
    try:
        with planned_scans(tables.session) as noted:
            assert cached.count() == cached.where("started < 100").count() == 3
        assert len([one for one in noted if " in [" in str(one.where)]) == 1
    finally:
        cached.unpersist()
    tables.write(frame.select("app", "started", f.lit("joined").alias("status")), "runs")
    assert storage.table("runs").count(where=None) == 200
    assert len(tables.read("runs").where("status = 'joined'").collect()) == 3


def test_joins_that_hold_more_than_keys(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    large(tables).createOrReplaceTempView("large")
    session = tables.session
    session.sql("select * from values (map('a', 1), 5L), (map(), 6L) as few(m, started)").createOrReplaceTempView("few")
    frame = session.sql("select started, m from large join (select /*+ broadcast */ * from few) using (started)")
    assert len(frame.collect()) == 2
    maps = session.sql("select map('a', started) as m, started from few").hint("broadcast")
    frame = large(tables).join(maps, "started").select("started")
    check(frame, "started in [5, 6]")
    query = """
        select started, (select max(b.id) from range(100) b where b.id = few.started
            and (b.id > 100 or exists (select 1 from few other where other.started = b.id))) as most from few
    """
    assert sorted(map(tuple, session.sql(query).collect())) == [(5, 5), (6, 6)]
