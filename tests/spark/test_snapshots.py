import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from structable.spark_bridge import registration
from structable.spi import Storage
from tests.spark.conftest import Tables, every_store
from tests.spark.samples import RUNS, runs

LEASE = 8.0  # seconds: longer than a busy machine takes from planning to reading


@pytest.fixture(autouse=True)
def old_rows(storage: Storage) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(3000))


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
def test_a_query_run_again_after_its_lease_is_a_clear_error(tables: Tables) -> None:
    keeper = registration._keepers[tables.session.sparkContext]
    frame = tables.read("runs")
    assert len(frame.collect()) == 3000
    for held in keeper._plans.values():
        held.lease = 0.1
    time.sleep(1)
    with pytest.raises(
        PythonException, match=r"table 'runs': the snapshot that this query was planned on is no longer kept"
    ):
        frame.collect()
    assert frame.select("*").count() == 3000


def test_a_lease_lasts_while_anybody_reads(tables: Tables) -> None:
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
