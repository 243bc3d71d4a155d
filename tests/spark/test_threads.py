"""Threads of the driver other than the one that made the session."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from pyspark.sql import SparkSession

from structable.spark_bridge import register
from structable.spi import Storage
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import RUNS, create_runs, runs

Answer = TypeVar("Answer")


@pytest.fixture(autouse=True)
def old_rows(storage: Storage) -> None:
    create_runs(storage, 100)


def elsewhere(body: Callable[[], Answer]) -> Answer:
    with ThreadPoolExecutor(1) as other:
        return other.submit(body).result()


@every_store
def test_another_thread_reads(tables: Tables) -> None:
    assert elsewhere(lambda: tables.read("runs").where("started < 10").count()) == 10


@pytest.mark.parametrize("condition", ["true", "started < 10"])
def test_another_thread_reads_as_an_rdd(tables: Tables, condition: str) -> None:
    expected = 100 if condition == "true" else 10

    def read() -> tuple[int, int]:
        frame = tables.read("runs").where(condition)
        frame.foreachPartition(lambda rows: None)
        return frame.rdd.count(), sum(1 for _ in frame.toLocalIterator())

    assert elsewhere(read) == (expected, expected)


@every_store
def test_another_thread_writes(tables: Tables, storage: Storage) -> None:
    frame = tables.frame(RUNS, runs(5, first=1000))
    elsewhere(lambda: tables.write(frame, "runs"))
    assert storage.table("runs").count() == 105
    elsewhere(lambda: tables.writer(frame, "runs").mode("overwrite").save())
    assert storage.table("runs").count() == 5


def test_another_thread_writes_in_another_session(spark: SparkSession, url: str, storage: Storage) -> None:
    other = spark.newSession()
    register(other)
    tables = Tables(other, url)
    elsewhere(lambda: tables.write(tables.read("runs").limit(3), "runs"))
    assert storage.table("runs").count() == 100


def test_threads_write_at_once(tables: Tables, storage: Storage) -> None:
    frames = [tables.frame(RUNS, runs(50, first=1000 * number)) for number in range(1, 5)]
    with ThreadPoolExecutor(4) as others:
        list(others.map(lambda frame: tables.write(frame, "runs", mode="insert"), frames))
    assert storage.table("runs").count() == 300
