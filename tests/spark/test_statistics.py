from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator import applications
from structable.spi import Field, Storage, TableSpecification, UnsupportedOperationError
from tests.spark.conftest import Tables, every_store, settings
from tests.spark.support.samples import EVERYTHING, create_runs, runs

APPS = TableSpecification("apps", [Field.string("app"), Field.string("team")], primary_key=["app"])
NOTES = TableSpecification(
    "notes", [Field.long("id"), Field.long("number"), Field.string("text"), Field.bytes("raw")], primary_key=["id"]
)
UNKNOWN = 2**62
"""Spark's size of what reports none, at least."""


@pytest.fixture
def small_threshold(spark: SparkSession) -> Iterator[None]:
    """Let Spark broadcast tables below 20 kB."""
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "20000")
    yield
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(before))


def planned_size(frame: DataFrame) -> tuple[int, int | None]:
    """Return the bytes that Spark expects of a scan, and the rows that it learns."""
    scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    rows = scan.scan().estimateStatistics().numRows()
    return int(str(scan.stats().sizeInBytes())), rows.getAsLong() if rows.isPresent() else None


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@every_store
@pytest.mark.usefixtures("small_threshold")
def test_a_small_table_is_broadcast_without_a_hint(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3000)
    storage.admin.create(APPS)
    storage.table("apps").upsert_many([{"app": "etl", "team": "data"}, {"app": "web", "team": "shop"}])
    joined = tables.read("runs").join(tables.read("apps"), "app")
    assert "BroadcastHashJoin" in plan_of(joined)
    assert joined.where("team = 'data'").count() == 3000
    both = tables.read("runs").join(tables.read("runs").withColumnRenamed("started", "other"), "app")
    assert "BroadcastHashJoin" not in plan_of(both)
    without = tables.read("runs").join(tables.read("apps", statistics="false"), "app")
    assert "BroadcastHashJoin" not in plan_of(without)


@every_store
def test_rows_are_those_of_the_store_and_bytes_of_the_columns_read(tables: Tables, storage: Storage) -> None:
    storage.admin.create(NOTES)
    assert planned_size(tables.read("notes")) == (1, 0)
    storage.table("notes").upsert_many({"id": n, "number": n, "text": "a note", "raw": b"x" * 100} for n in range(1000))
    frame = tables.read("notes")
    whole, count = planned_size(frame)
    assert count == storage.statistics("notes").rows == 1000
    assert 50_000 < whole < 500_000
    narrow, count = planned_size(frame.select("number"))
    assert (count, narrow) == (1000, 8000)
    assert planned_size(tables.read("notes", columns="number"))[0] == narrow
    schema = tables.reader("notes").schema("number bigint").load()
    assert planned_size(schema)[0] == narrow


def test_conditions_on_the_whole_key_are_counted(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs")
    assert planned_size(frame.where("app = 'etl' and started = 7"))[1] == 1
    assert planned_size(frame.where("app in ('etl', 'web') and started in (1, 2, 3)"))[1] == 6
    assert planned_size(frame.where("app = 'etl' and started > 7"))[1] == 1000
    assert planned_size(frame.where("app = status and started = 7"))[1] == 1000
    assert planned_size(frame.where("app = 'etl' and (started = 7 or started = 8 or cost = 1)"))[1] == 1000


def test_the_option_statistics(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    size, rows = planned_size(tables.read("runs", statistics="FALSE"))
    assert (size >= UNKNOWN, rows) == (True, None)
    size, rows = planned_size(tables.read("runs", statistics="1000000"))
    assert (size > 1_000_000, rows) == (True, 1_000_000)
    assert planned_size(tables.read("runs", statistics="true"))[1] == 100
    for wrong in ("0", "-1", "yes", "1.5", ""):
        with pytest.raises(Exception, match=r"the option statistics is .* must be true, false or a whole number"):
            tables.read("runs", statistics=wrong)


def test_a_store_without_statistics_reports_none(
    tables: Tables, storage: Storage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 100)

    def statistics(table: str) -> None:
        raise UnsupportedOperationError("no statistics")

    coordinator = applications.coordinators[spark.sparkContext]
    with coordinator.stores.using(StoreClient(tables.url)) as connected:
        monkeypatch.setattr(type(connected), "statistics", lambda self, table: statistics(table))
        frame = tables.read("runs")
        assert planned_size(frame)[0] >= UNKNOWN
        assert frame.count() == 100


def test_the_store_is_asked_once_for_each_frame(
    tables: Tables, storage: Storage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 100)
    coordinator = applications.coordinators[spark.sparkContext]
    asked: list[str] = []
    measure = coordinator.operations["statistics"]

    def observed(store: StoreClient, table: str) -> object:
        asked.append(table)
        return measure(store, table)

    monkeypatch.setitem(coordinator.operations, "statistics", observed)
    frame = tables.read("runs")
    assert frame.where("started > 7").count() == 92
    assert asked == []  # no plan of one table needs them
    assert frame.join(frame.select("started"), "started").count() == 100
    assert asked == ["runs"]
    storage.table("runs").upsert_many(runs(10, first=100))
    assert planned_size(frame)[1] == 100
    assert planned_size(tables.read("runs"))[1] == 110


def test_the_schema_shows_nothing_of_it(tables: Tables, storage: Storage) -> None:
    storage.admin.create(EVERYTHING)
    frame = tables.read("everything")
    frame.collect()
    assert all(field.metadata == {} for field in frame.schema.fields)


def test_a_feed_has_no_size(tables: Tables, storage: Storage) -> None:
    fed = TableSpecification("fed", APPS.fields, APPS.primary_key, options={"changelog-producer": "lookup"})
    storage.admin.create(fed)
    assert planned_size(tables.read("fed", readChangeFeed="true"))[0] >= UNKNOWN
    assert planned_size(tables.read("fed"))[1] == 0


def test_rows_reach_the_cost_based_optimizer(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    with settings(tables.session, {"spark.sql.cbo.enabled": "true"}):
        statistics = tables.read("runs")._jdf.queryExecution().optimizedPlan().stats()
        assert str(statistics.rowCount().toString()) == "Some(1000)"
