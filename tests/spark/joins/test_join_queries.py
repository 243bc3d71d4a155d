"""`start_join` and `join_available`: streaming queries that keep a join up to date, and their checkpoints."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from structable.spark_bridge import TableRef, foreach_batch
from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker, join_available, open_join, start_join
from structable.spark_bridge.joins.progress import PROGRESS
from structable.spi import InvalidSpecificationError, Storage, UnsupportedOperationError, connect
from tests.joins.support.tables import ORDERS, PRODUCTS, join_of, rows_of
from tests.spark.conftest import every_store
from tests.waiting import until

NOW = {"availableNow": True}


@pytest.fixture
def orders(storage: Storage) -> Storage:
    storage.admin.create(ORDERS)
    storage.admin.create(PRODUCTS)
    storage.table("orders").upsert_many({"id": str(n), "product": f"p{n % 3}", "pieces": n} for n in range(9))
    storage.table("products").upsert({"sku": "p1", "name": "one"})
    return storage


@every_store
def test_query_follows_both_tables(spark: SparkSession, url: str, orders: Storage, tmp_path: Path) -> None:
    """It catches up, steps when either table moves, and needs nothing of its checkpoint."""
    join, checkpoint = join_of(url, "left"), tmp_path / "checkpoint"
    with JoinWorker(join) as worker:
        worker.step()
    orders.table("orders").upsert({"id": "9", "product": "p0"})
    query = started(spark, join, checkpoint=str(checkpoint))
    try:
        assert len(rows_of(orders)) == 10
        orders.table("products").upsert({"sku": "p2", "name": "two"})
        until_true(query, lambda: {row["name"] for row in rows_of(orders)} == {None, "one", "two"})
        orders.table("orders").delete(("8",))
        until_true(query, lambda: len(rows_of(orders)) == 9)
    finally:
        query.stop()
    for change in ({"name": "second"}, {"name": "third"}):
        orders.table("products").upsert({"sku": "p2", **change})
        for feed in (orders.changes("orders"), orders.changes("products")):
            feed.expire(feed.latest())  # a checkpoint has no position that would be lost
        again = started(spark, join, trigger=NOW, checkpoint=str(checkpoint), small=0)
        assert again.awaitTermination(300)
        assert {row["name"] for row in rows_of(orders)} == {None, "one", change["name"]}
        shutil.rmtree(checkpoint)
    assert join_available(spark, join).affected == 0


def test_two_queries_and_a_worker_of_one_join(spark: SparkSession, url: str, orders: Storage) -> None:
    join = join_of(url, "left")
    with JoinWorker(join) as worker:
        worker.step()
    queries = [started(spark, join), started(spark, join, small=0)]
    try:
        with JoinWorker(join, poll=0.01) as worker:
            for number in range(10):
                orders.table("products").upsert({"sku": f"p{number % 4}", "name": f"name {number}"})
                orders.table("orders").upsert({"id": f"x{number}", "product": f"p{number % 3}"})
                worker.run_available()
            until_true(queries[0], lambda: worker.verify() == 0)
            assert len(rows_of(orders)) == 19
    finally:
        for query in queries:
            query.stop()
    assert [query.exception() for query in queries] == [None, None]


def test_step_after_the_writes_of_a_micro_batch(spark: SparkSession, url: str, orders: Storage, tmp_path: Path) -> None:
    arriving = tmp_path / "arriving"
    spark.sql("select 'y' sku, 'new' name").write.json(str(arriving))
    write, found = foreach_batch(url, "products"), []
    orders.table("orders").upsert({"id": "of y", "product": "y"})
    with open_join(spark, join_of(url), small=0) as worker:

        def both(frame: DataFrame, batch: int) -> None:
            write(frame, batch)
            found.append(worker.run_available().inserted)

        rows = spark.readStream.schema("sku string, name string").json(str(arriving))
        writer = rows.writeStream.foreachBatch(both).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(300)
    assert found == [4]
    assert len(rows_of(orders)) == 4


def test_faults_are_told_before_anything_is_made(spark: SparkSession, url: str, orders: Storage) -> None:
    calls: list[Callable[..., object]] = [start_join, join_available, open_join]
    for call in calls:
        with pytest.raises(InvalidSpecificationError, match=r"(?s)colour.*nowhere|nowhere.*colour"):
            call(spark, join_of(url, select={"a": "left.colour", "b": "right.nowhere"}))
        with pytest.raises(ValueError, match="small is 2 and large 1"):
            call(spark, join_of(url), small=2, large=1)
    other_url = f"memory://{uuid.uuid4().hex}"
    with connect(other_url) as other:
        other.admin.create(PRODUCTS)
        with pytest.raises(UnsupportedOperationError, match=r"'products' is in memory://.*Spark's tasks cannot read"):
            start_join(spark, join_of(url, right=TableRef(other_url, "products")))
    for wrong in ({"trigger": "now"}, {"checkpoint": ""}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            start_join(spark, join_of(url), **wrong)  # type: ignore[arg-type]
    assert orders.admin.list() == ["orders", "products"]
    join_available(spark, join_of(url))
    assert PROGRESS.name in orders.admin.list()
    query = started(spark, join_of(url, "left"))
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination(300)
    assert "PlanChangedError" in str(ended.value)
    assert "how was inner and is left" in str(ended.value)


def started(
    spark: SparkSession,
    join: ForeignKeyJoin,
    *,
    trigger: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    small: int = 10_000,
) -> StreamingQuery:
    """Start a query, and wait until it has made progress or ended."""
    query = start_join(spark, join, trigger=trigger, checkpoint=checkpoint, small=small)
    while query.isActive and not query.recentProgress:
        time.sleep(0.02)
    assert "failed to connect back" not in str(query.exception())  # else pytest runs the test again
    return query


def until_true(query: StreamingQuery, done: Callable[[], bool]) -> None:
    until(lambda: done() or query.exception() is not None)
    assert query.exception() is None
