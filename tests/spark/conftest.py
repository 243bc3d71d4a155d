"""One Spark application for all tests of the bridge, and a fresh store with tables for each."""

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from structable.spark_bridge import register
from structable.spark_bridge.base.types import spark_schema
from structable.spark_bridge.coordinator import applications
from structable.spark_bridge.jvm.format_lookup import session_active
from structable.spi import Storage, TableSpecification, Value, connect
from structable.spi.arrow import arrow_schema
from tests.spark.support.catalogs import catalog_of

every_store = pytest.mark.parametrize("url", ["leveldb", "postgresql", "hbase"], indirect=True)
"""For tests of what the bridge asks a store for; a query of Spark takes a second, so that not all of them are."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what needs the session in one worker: a JVM is large, and a machine's cores are few.

    Tests that start applications of their own are the group `spark-applications`, of another worker.
    """
    for item in items:
        if item.nodeid.startswith("tests/spark/") and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session with two cores, where each task may fail once, far from UTC."""
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("structable tests")
        .config("spark.ui.enabled", "false")
        .config("spark.python.daemon.module", "tests.spark.support.daemon")
        .config("spark.sql.session.timeZone", "America/Los_Angeles")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        # Else all sessions of this folder share one, those of other test processes too.
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a new, empty store for several processes: LevelDB, or that of `every_store`."""
    store = getattr(request, "param", "leveldb")
    if store == "leveldb":
        yield f"leveldb://{tmp_path}/store"
    else:
        session = request.getfixturevalue("spark")
        yield request.getfixturevalue(f"{store}_url")
        give_up_snapshots(session)


def give_up_snapshots(session: SparkSession) -> None:
    """Let the coordinator close the snapshots of queries: on a server a snapshot keeps tables from being dropped."""
    coordinator = applications.coordinators[session.sparkContext]
    deadline = time.monotonic() + 20
    while coordinator.plans() and time.monotonic() < deadline:
        for held in list(coordinator.held.values()):
            held.options = replace(held.options, lease=0.0)
        coordinator.expire()
        time.sleep(0.01)  # a finished reader may not have reported it yet
    assert coordinator.plans() == 0


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    """Connect this process, the driver's, to the store."""
    with connect(url) as storage:
        yield storage


class Tables:
    """Tables of one store as DataFrames."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self.session = session
        self.url = url

    def reader(self, table: str, **options: object) -> DataFrameReader:
        reader = self.session.read.format("structable").option("url", self.url).option("table", table)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader

    def read(self, table: str, **options: object) -> DataFrame:
        return self.reader(table, **options).load()

    def stream(self, table: str, **options: object) -> DataFrame:
        reader = self.session.readStream.format("structable").option("url", self.url).option("table", table)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def writer(self, frame: DataFrame, table: str, **options: object) -> DataFrameWriter:
        """Return a writer with the options set, in Spark's save mode "append"."""
        writer = frame.write.format("structable").option("url", self.url).option("table", table).mode("append")
        for name, value in options.items():
            writer = writer.option(name, str(value))
        return writer

    def write(self, frame: DataFrame, table: str, **options: object) -> None:
        self.writer(frame, table, **options).save()

    def frame(
        self, spec: TableSpecification, rows: list[dict[str, Value]], columns: list[str] | None = None
    ) -> DataFrame:
        """Return rows as a DataFrame with the table's types."""
        table = pa.Table.from_pylist(rows, schema=arrow_schema(spec, columns))
        return self.session.createDataFrame(table, schema=spark_schema(spec, columns))


@pytest.fixture
def tables(spark: SparkSession, url: str) -> Iterator[Tables]:
    with session_active(spark):  # `newSession()` of another test leaves its own active
        yield Tables(spark, url)


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session that it has not set, for as long as this lasts."""
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            session.conf.unset(name)


def complete(spec: TableSpecification, rows: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """Return rows with all fields, in key order."""
    ordered = sorted(rows, key=lambda row: [_ordered(row[name]) for name in spec.primary_key])
    return [{name: row.get(name) for name in spec.field_names} for row in ordered]


def _ordered(value: Value) -> object:
    return value.encode() if isinstance(value, str) else value


def rows_of(frame: DataFrame, spec: TableSpecification) -> list[dict[str, Value]]:
    """Return a whole table's rows from a DataFrame, with Python's values, in key order."""
    rows = frame.toArrow().cast(arrow_schema(spec)).to_pylist()
    return complete(spec, [{name: _in_utc(value) for name, value in row.items()} for row in rows])


def _in_utc(value: Value) -> Value:
    # Arrow's own spelling of UTC is not equal as text.
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@pytest.fixture
def catalog(spark: SparkSession, url: str, storage: Storage) -> Iterator[str]:
    """Yield the name of a catalog over the store."""
    with catalog_of(spark, url) as name:
        yield name
