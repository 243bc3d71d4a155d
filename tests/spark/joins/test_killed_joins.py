"""A killed driver leaves a result that the next step continues, wherever in a large step it dies."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import ForeignKeyJoin, JoinWorker, open_join, progress
from structable.spark_bridge.joins.failpoints import FAILPOINTS
from structable.spi import Storage, connect
from tests.joins.support.clocks import LeaseClock
from tests.joins.support.tables import ORDERS, PRODUCTS, join_of, rows_of, told
from tests.servers.processes import kill_when_reached

ROWS = 30
MOVED = 12

# A JVM starts slowly: one driver steps all joins, each in a thread that stops at its own point.
DRIVER = """
import sys, threading
from pyspark.sql import SparkSession
from structable.spark_bridge import register
from structable.spark_bridge.joins import distributed, open_join
from structable.spark_bridge.joins.failpoints import FAILPOINTS, failpoints
from tests.spark.joins.test_killed_joins import joined

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)

def stop_at(point):
    def stop():
        if threading.current_thread().name.startswith(point):
            print(threading.current_thread().name, flush=True)
            threading.Event().wait()
    return stop

distributed.DIRECT = 0  # the steps run as jobs
failpoints.update({point: stop_at(point) for point in FAILPOINTS})
for place, url in enumerate(sys.argv[1:]):
    for point in FAILPOINTS:
        step = open_join(spark, joined(url, point), small=0).step
        threading.Thread(target=step, name=f"{point} {place}", daemon=True).start()
threading.Event().wait()
"""


def joined(url: str, point: str) -> ForeignKeyJoin:
    return join_of(url, "left", name=point, result=TableRef(url, f"at_{point}"))


def test_killed_driver_at_every_point(
    spark: SparkSession, tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"leveldb://{tmp_path}/store", postgresql_url]
    for url in urls:
        with connect(url) as storage:
            storage.admin.create(ORDERS)
            storage.admin.create(PRODUCTS)
            storage.table("orders").upsert_many(
                {"id": f"{n:03}", "product": f"p{n % 5}", "pieces": n} for n in range(ROWS)
            )
            for point in FAILPOINTS:
                with JoinWorker(joined(url, point)) as worker:
                    worker.step()
            storage.table("products").upsert_many({"sku": f"p{n}", "name": f"name {n}"} for n in range(2))
    points = (f"{point} {place}" for point in FAILPOINTS for place in range(len(urls)))
    kill_when_reached([sys.executable, "-c", DRIVER, *urls], points)
    clock = LeaseClock()
    monkeypatch.setattr(progress, "time", clock)
    clock.pass_lease()
    for url in urls:
        with connect(url) as storage:
            for point in FAILPOINTS:
                joined_rows = MOVED if point in ("committed", "positions_recorded") else 0
                assert named(storage, point) == joined_rows
                with open_join(spark, joined(url, point), small=0) as worker:
                    step = worker.run_available()
                    assert (step.updated, step.rebuilt) == (MOVED - joined_rows, False)
                    assert worker.verify() == 0
                assert named(storage, point) == MOVED
                changes = told(storage, f"at_{point}")
                assert len(changes) == ROWS + 2 * MOVED
                assert all(one != other for (_, one), (_, other) in pairwise(changes))


def named(storage: Storage, point: str) -> int:
    return sum(row["name"] is not None for row in rows_of(storage, f"at_{point}"))
