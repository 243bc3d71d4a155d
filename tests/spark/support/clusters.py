"""A Spark application on `local-cluster` in a process of its own, in which tests call functions and kill tasks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from structable.spark_bridge import driver_questions, register
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.coordinator.client import CoordinatorClient
from structable.spark_bridge.jvm.format_lookup import format_hidden, session_active
from structable.spark_bridge.read.reader import ChangeReader, StructableReader
from structable.spark_bridge.source import batch_reader, bound_data_source
from structable.spark_bridge.write.writer import StagedMessage, StructableWriter
from tests.quick_java import QUICK_JAVA
from tests.spark.conftest import give_up_snapshots
from tests.spark.support.faulty_tasks import executor

MASTER = "local-cluster[2,1,1024]"
_ROOT = Path(__file__).parents[3]
_P = ParamSpec("_P")
_T = TypeVar("_T")


class CallFailedError(RuntimeError):
    """A function failed in the application; Spark's own errors stay in its process."""


class Cluster:
    """Calls functions of modules in the application's process, where `SparkSession.active()` is its session.

    The folder has a file for each fault to come: the first task that finds it removes it, and kills its executor, or
    its own Python process.
    """

    def __init__(self, faults: Path) -> None:
        self._faults = faults
        self._calls = ProcessPoolExecutor(1, get_context("spawn"), _start, (faults,))
        self._process = self(os.getpid)

    def __call__(self, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._calls.submit(_called, partial(function, *arguments, **named)).result()

    def kill(self, moment: str, victim: str, times: int = 1) -> None:
        """Have tasks killed: in the moment "read" behind the first rows, in "write" when all rows are staged."""
        for number in range(times):
            (self._faults / f"{moment}-{victim}-{number}").touch()

    def faults_to_come(self) -> list[Path]:
        return sorted(self._faults.iterdir())

    def close(self) -> None:
        """End the application, with its executors."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        self._calls.shutdown()


def held() -> tuple[int, int]:
    """Return how many plans, and how many snapshots of queries, are held."""
    coordinator = coordinator_of(SparkSession.active())
    return coordinator.plans(), coordinator.shared_snapshots()


def give_up() -> None:
    give_up_snapshots(SparkSession.active())


def _called(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except Exception as error:  # Spark's do not travel between processes
        raise CallFailedError(f"{type(error).__name__}: {error}") from error


def _start(faults: Path) -> None:
    os.setsid()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", " ".join(QUICK_JAVA))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(faults.with_name("warehouse")))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    plain = bound_data_source(coordinator_of(spark).client)

    def reader(
        coordinator: CoordinatorClient, given: Mapping[str, str], schema: StructType
    ) -> StructableReader | ChangeReader:
        made = batch_reader(coordinator, given, schema)
        return _FaultyReader(made, faults) if isinstance(made, StructableReader) else made

    driver_questions.batch_reader = reader  # type: ignore[attr-defined]

    class Faulty(plain):  # type: ignore[misc, valid-type]
        def writer(self, schema: StructType, overwrite: bool) -> StructableWriter:
            return _FaultyWriter(super().writer(schema, overwrite), faults)

    with session_active(spark), format_hidden(spark):
        spark.dataSource.register(Faulty)


class _FaultyReader(StructableReader):
    def __init__(self, plain: StructableReader, faults: Path) -> None:
        self.__dict__.update(plain.__dict__)
        self._faults = faults

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            _strike(self._faults, "read")


class _FaultyWriter(StructableWriter):
    def __init__(self, plain: StructableWriter, faults: Path) -> None:
        self.__dict__.update(plain.__dict__)
        self._faults = faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:  # type: ignore[override]
        message = super().write(iterator)
        _strike(self._faults, "write")
        return message


def _strike(faults: Path, moment: str) -> None:
    for mark in faults.glob(f"{moment}-*"):
        with contextlib.suppress(FileNotFoundError):  # another task was faster
            mark.unlink()
            os.kill(executor() if "executor" in mark.name else os.getpid(), signal.SIGKILL)
            signal.pause()
