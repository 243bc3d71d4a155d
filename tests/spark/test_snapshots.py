import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast
from pyspark.sql.functions import max as max_

from structable.spark_bridge.coordinator import applications
from structable.spi import Field, Storage, TableSpecification, connect
from tests.spark.conftest import Tables, every_store, give_up_snapshots
from tests.spark.support.plans import planned_scans
from tests.spark.support.samples import RUNS, create_runs, runs
from tests.waiting import until

LEASE = 8.0  # seconds: longer than a busy machine takes from planning to reading


@pytest.fixture(autouse=True)
def old_rows(storage: Storage) -> None:
    create_runs(storage, 3000)


@every_store
def test_a_planned_query_sees_nothing_written_later(tables: Tables, storage: Storage) -> None:
    frame = tables.read("runs", splits=4)
    assert frame.rdd.getNumPartitions() >= 1  # which plans it
    storage.table("runs").upsert_many(runs(500, first=9000))
    storage.table("runs").delete(("etl", 0))
    assert sorted(row.started for row in frame.collect()) == list(range(3000))
    assert sorted(row.started for row in frame.collect()) == list(range(3000))


def test_a_new_query_sees_what_was_written(tables: Tables, storage: Storage) -> None:
    frame = tables.read("runs")
    assert frame.count() == 3000
    storage.table("runs").upsert_many(runs(5, first=9000))
    assert frame.count() == 3005


@every_store
def test_rows_written_while_a_query_runs_are_not_seen(tables: Tables, storage: Storage) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.3)
            yield batch

    frame = tables.read("runs", splits=2).mapInArrow(slow, tables.read("runs").schema)
    assert frame.rdd.getNumPartitions() >= 1
    storage.table("runs").upsert_many([{"app": "etl", "started": n, "status": "LATE"} for n in range(0, 6000, 7)])
    assert [row for row in frame.collect() if row.status == "LATE"] == []


@every_store
def test_a_lease_that_ends_before_its_query_reads_is_a_clear_error(tables: Tables) -> None:
    frame = tables.read("runs")
    with (
        planned_scans(tables.session, lambda: give_up_snapshots(tables.session)),
        pytest.raises(PythonException, match=r"table 'runs': the snapshot of this query is closed"),
    ):
        frame.collect()
    assert frame.select("*").count() == 3000


def test_a_lease_lasts_while_a_task_reads(tables: Tables) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(2 * LEASE)
        yield from batches

    # Of three tasks on two cores the last begins when the first ends, long after the lease.
    frame = tables.read("runs", leaseSeconds=LEASE, splits=3)
    assert frame.mapInArrow(slow, frame.schema).count() == 3000


@every_store
def test_many_queries_in_a_row_do_not_use_up_the_store(tables: Tables) -> None:
    frame = tables.read("runs", pool_timeout=1)
    for number in range(35):
        assert frame.where(f"started = {number}").count() == 1


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "filtered": lambda frame: frame.where("started < 10").count(),
    "the first rows": lambda frame: frame.limit(3).collect(),
    "failing": lambda frame: frame.selectExpr("if(started = 2000, raise_error('this query fails'), 1)").collect(),
    "joined": lambda frame: frame.join(broadcast(frame.select("started")), "started").count(),
    "with a subquery": lambda frame: frame.where(
        frame.started < frame.select(max_("started")).scalar()  # runs as an execution's part of its own
    ).count(),
    "an RDD": lambda frame: frame.rdd.count(),
    "each partition": lambda frame: frame.foreachPartition(lambda rows: None),
    "cached": lambda frame: frame.cache().count(),
    "only explained": lambda frame: frame.where("started < 10").explain(),
}


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_nothing_stays_open_after_queries(
    tables: Tables, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = applications.coordinators[tables.session.sparkContext]
    for name, query in QUERIES.items():
        frame = tables.read("runs", splits=2, graceSeconds=2)
        with contextlib.suppress(SparkRuntimeException):
            query(frame)
        assert coordinator.plans() or name == "only explained", name
    until(lambda: coordinator.plans() == 0)
    tables.session.catalog.clearCache()
    # No connection is in a transaction either, for which this would wait.
    with connect(url, ddl_timeout=5) as other:
        other.admin.create_or_update(
            TableSpecification("runs", [*RUNS.fields, Field.int("more")], RUNS.primary_key, RUNS.indexes)
        )


def test_a_cancelled_query_leaves_nothing_open(tables: Tables) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(60)
            yield batch

    coordinator = applications.coordinators[tables.session.sparkContext]
    frame = tables.read("runs", graceSeconds=1)
    context = tables.session.sparkContext
    with ThreadPoolExecutor(1) as other:
        query = other.submit(frame.mapInArrow(slow, frame.schema).count)
        until(lambda: any(held.readers for held in list(coordinator.held.values())))
        context.cancelAllJobs()
        with pytest.raises(Exception, match="cancelled"):
            query.result()
    until(lambda: coordinator.plans() == 0)


def test_a_query_that_is_read_slowly_keeps_its_snapshot(tables: Tables, storage: Storage) -> None:
    storage.table("runs").upsert_many(runs(20_000))
    frame = tables.read("runs", splits=4, graceSeconds=3)
    rows = frame.toLocalIterator()
    started = [next(rows).started]
    storage.table("runs").upsert_many(runs(50, first=90_000))
    time.sleep(5)
    started += [row.started for row in rows]
    assert sorted(started) == list(range(20_000))
    assert frame.rdd.getNumPartitions() > 1  # each read by a job of its own


def test_an_rdd_may_be_read_long_after_it_was_planned(tables: Tables, storage: Storage) -> None:
    rows = tables.read("runs", splits=2, graceSeconds=0.5).rdd
    assert rows.getNumPartitions() >= 1  # which plans it
    storage.table("runs").upsert_many(runs(50, first=9000))
    time.sleep(2)
    assert rows.count() == 3000


def test_a_part_of_a_cached_frame_that_is_lost_too_late_is_a_clear_error(tables: Tables) -> None:
    coordinator = applications.coordinators[tables.session.sparkContext]
    frame = tables.read("runs", splits=2, graceSeconds=1).cache()
    assert frame.count() == 3000
    until(lambda: coordinator.plans() == 0)
    assert frame.count() == 3000
    lose(tables, cached(tables))
    with pytest.raises(PythonException, match=r"more than 1 seconds ago \(option graceSeconds\)"):
        frame.count()
    frame.unpersist()


def test_a_lost_part_of_a_cached_frame_is_read_again(tables: Tables, storage: Storage) -> None:
    frame = tables.read("runs", splits=2, graceSeconds=20).cache()
    assert frame.count() == 3000
    storage.table("runs").upsert_many(runs(50, first=9000))
    lose(tables, cached(tables))
    assert frame.count() == 3000
    frame.unpersist()


def cached(tables: Tables) -> list[int]:
    """Return the RDDs of cached frames."""
    return list(tables.session.sparkContext._jsc.getPersistentRDDs().keySet().toArray())


def lose(tables: Tables, cached: list[int]) -> None:
    """Lose the blocks of RDDs, as happens when an executor dies: Spark still takes their frames for cached."""
    for number in cached:
        tables.session.sparkContext._jsc.sc().unpersistRDD(number, True)
