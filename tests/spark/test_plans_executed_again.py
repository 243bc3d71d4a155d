"""A DataFrame collected again keeps its physical plan: its scans read what is committed by then, all of one state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast
from pyspark.sql.functions import max as max_

from structable.spark_bridge.coordinator import applications
from structable.spi import Field, Storage, TableSpecification, connect
from tests.spark.conftest import Tables, every_store, give_up_snapshots
from tests.spark.support.samples import create_runs, runs
from tests.spark.test_query_snapshots import create, move
from tests.waiting import until

GRACE = 0.1


@pytest.fixture(autouse=True)
def nothing_is_held(spark: SparkSession) -> None:
    """Close the snapshots of earlier tests, which their leases may hold for minutes."""
    give_up_snapshots(spark)


@pytest.fixture
def frame(tables: Tables, storage: Storage) -> DataFrame:
    """Return rows 0 to 2,999."""
    create_runs(storage, 3000)
    return tables.read("runs", splits=4, graceSeconds=GRACE)


def let_snapshots_end(tables: Tables) -> None:
    coordinator = applications.coordinators[tables.session.sparkContext]

    def ended() -> bool:
        coordinator.expire()
        return coordinator.plans() == 0 and coordinator.shared_snapshots() == 0

    until(ended)


@every_store
def test_each_collect_reads_what_was_committed_before_it(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    assert len(frame.collect()) == 3000
    let_snapshots_end(tables)
    storage.table("runs").upsert_many(runs(500, first=9000))
    storage.table("runs").delete(("etl", 0))
    expected = [*range(1, 3000), *range(9000, 9500)]
    assert sorted(row.started for row in frame.collect()) == expected
    storage.table("runs").delete(("etl", 1))
    assert sorted(row.started for row in frame.collect()) == expected[1:]  # whether its snapshot is held or not
    let_snapshots_end(tables)
    assert frame.toArrow().num_rows == len(expected) - 1
    let_snapshots_end(tables)


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filtered": lambda frame: frame.where("started >= 2990"),
    "filtered by Spark": lambda frame: frame.where("started % 1000 = 0").selectExpr("started + 1 as next"),
    "limited": lambda frame: frame.where("started between 2995 and 3005").limit(20),
    "limited to more than a task gives": lambda frame: frame.limit(20_000),
    "the first": lambda frame: frame.orderBy("app", "started").limit(30),
    "the last": lambda frame: frame.orderBy(frame.app.desc(), frame.started.desc()).limit(30),
    "united": lambda frame: frame.where("started < 5").union(frame.where("started > 2990")),
    "multiplied": lambda frame: frame.where("started < 5").crossJoin(
        frame.where("started > 4990").select("cost").hint("shuffle_replicate_nl")
    ),
}


@every_store
def test_whatever_is_pushed_down_is_right_again(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    before = {name: query(frame) for name, query in QUERIES.items()}
    for planned in before.values():
        planned.collect()
    let_snapshots_end(tables)
    storage.table("runs").upsert_many(runs(2000, first=3000))
    storage.table("runs").delete(("etl", 1))
    for name, query in QUERIES.items():
        assert sorted(map(str, before[name].collect())) == sorted(map(str, query(frame).collect())), name
    let_snapshots_end(tables)


@every_store
def test_scans_of_two_tables_see_one_state_again(tables: Tables, storage: Storage) -> None:
    create(storage)
    both = tables.read("left", splits=3, graceSeconds=GRACE).union(tables.read("right", graceSeconds=GRACE))
    for _ in range(4):
        assert len({row.id for row in both.collect()}) == 100
        for _ in range(10):
            move(storage)
        let_snapshots_end(tables)
    assert [len(tables.read(name).collect()) for name in ("left", "right")] == [60, 40]


def test_tables_that_shrink_and_grow_have_other_splits(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    few = tables.read("runs", splits=1, graceSeconds=GRACE)
    for query in (frame, few):
        assert len(query.collect()) == 3000
    storage.table("runs").upsert_many(runs(30_000))
    for query in (frame, few):
        assert sorted(row.started for row in query.collect()) == list(range(30_000))
    storage.table("runs").delete_many(("etl", number) for number in range(1, 30_000))
    for query in (frame, few):
        assert [row.started for row in query.collect()] == [0]
    storage.table("runs").delete(("etl", 0))
    for query in (frame, few):
        assert query.collect() == []


@every_store
def test_a_task_that_fails_reads_the_same_again(
    tables: Tables, storage: Storage, frame: DataFrame, url: str, tmp_path: Path
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        read = list(batches)
        if (tmp_path / "second").exists() and task.attemptNumber() == 0:
            with connect(url) as other:
                other.table("runs").upsert_many(runs(50, first=20_000 + 50 * task.partitionId()))
            raise RuntimeError("this attempt fails after reading")
        yield from read

    query = frame.mapInArrow(fail_once, frame.schema)
    assert len(query.collect()) == 3000
    storage.table("runs").upsert_many(runs(50, first=9000))
    let_snapshots_end(tables)
    (tmp_path / "second").touch()
    assert sorted(row.started for row in query.collect()) == [*range(3000), *range(9000, 9050)]
    assert frame.where("started >= 20000").count() >= 50


KEEPING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a broadcast": lambda frame: frame.join(broadcast(frame.select("started")), "started"),
    "a subquery": lambda frame: frame.where(frame.started <= frame.select(max_("started")).scalar()),
    "a cached frame": lambda frame: frame.union(frame.where("started < 0").cache()),
}


def test_a_plan_that_keeps_a_part_of_an_earlier_run_never_reads_two_states(
    tables: Tables, storage: Storage, frame: DataFrame
) -> None:
    for name, query in KEEPING.items():
        kept = query(frame)
        rows = len(kept.collect())
        let_snapshots_end(tables)
        storage.table("runs").upsert_many(runs(50, first=9000))
        with pytest.raises(PythonException, match=r"only if Spark keeps no part of an earlier run"):
            kept.collect()
        assert len(kept.select("*").collect()) >= rows, name
    tables.session.catalog.clearCache()


def test_spark_gives_a_result_that_it_has_shuffled_again(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    counted = frame.groupBy("app").count()
    assert [row["count"] for row in counted.collect()] == [3000]
    let_snapshots_end(tables)
    storage.table("runs").upsert_many(runs(50, first=9000))
    assert [row["count"] for row in counted.collect()] == [3000]
    assert [row["count"] for row in counted.select("*").collect()] == [3050]


def test_an_rdd_never_reads_two_states(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    assert len(frame.collect()) == 3000
    let_snapshots_end(tables)
    with pytest.raises(PythonException, match="the snapshot of this query is closed"):
        frame.rdd.count()


def test_a_plan_whose_first_run_is_not_over_is_read_by_others(
    tables: Tables, storage: Storage, frame: DataFrame
) -> None:
    rows = frame.toLocalIterator()
    first = next(rows).started
    storage.table("runs").upsert_many(runs(50, first=9000))
    assert len(frame.collect()) == 3050
    assert sorted([first, *(row.started for row in rows)]) == list(range(3000))
    let_snapshots_end(tables)


def test_a_table_that_was_dropped_or_made_anew_in_between(tables: Tables, storage: Storage, frame: DataFrame) -> None:
    assert len(frame.collect()) == 3000
    let_snapshots_end(tables)
    storage.admin.drop("runs")
    with pytest.raises(PythonException, match="'runs' does not exist"):
        frame.collect()
    create_runs(storage, 20)
    assert sorted(row.started for row in frame.collect()) == list(range(20))


def test_a_table_made_anew_whose_key_column_takes_nulls(tables: Tables, storage: Storage) -> None:
    """Spark's plan holds that a key column has no nulls: it cannot read a column of that name that has some."""
    storage.admin.create(TableSpecification("t", [Field.int("k"), Field.int("n")], ["k"]))
    storage.table("t").upsert({"k": 1, "n": 2})
    frame = tables.read("t", graceSeconds=GRACE)
    assert [tuple(row) for row in frame.collect()] == [(1, 2)]
    let_snapshots_end(tables)
    storage.admin.drop("t")
    storage.admin.create(TableSpecification("t", [Field.int("k"), Field.int("n")], ["n"]))
    storage.table("t").upsert({"n": 2})
    with pytest.raises(PythonException, match=r"field 'k': has changed .* from int32 not null to int32"):
        frame.collect()
