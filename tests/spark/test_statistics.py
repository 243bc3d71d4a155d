"""Spark's planner is told how large tables are, so that it broadcasts small ones without a hint."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from structable.spark_bridge import table_sizes
from structable.spi import Field, Range, Storage, TableSpecification
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import create_runs

APPS = TableSpecification("apps", [Field.string("app"), Field.string("team")], primary_key=["app"])
UNKNOWN = 1 << 60
"""Spark takes a table whose size it does not know for larger."""


def size(frame: DataFrame) -> int:
    """Return the bytes that Spark plans with."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().sparkPlan().toString())


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test see the sizes that another one asked for."""
    monkeypatch.setattr(table_sizes, "KEPT_SECONDS", 0.0)


def create_apps(storage: Storage) -> None:
    storage.admin.create(APPS)
    storage.table("apps").upsert_many([{"app": name, "team": name * 2} for name in ("etl", "web", "mail")])


@every_store
def test_a_small_table_is_broadcast_without_a_hint(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 3000)
    create_apps(storage)
    joined = tables.read("runs", statistics=10_000_000).join(tables.read("apps"), "app")
    assert "BroadcastHashJoin" in plan(joined)
    assert joined.count() == 3000
    blind = tables.read("runs", statistics="false").join(tables.read("apps", statistics="false"), "app")
    assert "SortMergeJoin" in plan(blind)
    assert sorted(blind.collect()) == sorted(joined.collect())


def test_bytes_are_those_of_the_columns_that_are_read(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs")
    assert 0 < size(frame.select("cost")) < size(frame) < 1_000 * 200


def rows(frame: DataFrame) -> str:
    """Return the rows that Spark's cost-based optimizer plans with, as an option of Scala's."""
    return str(frame._jdf.queryExecution().optimizedPlan().stats().rowCount().toString())


def test_rows_are_told_without_filters_only(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    tables.session.conf.set("spark.sql.cbo.enabled", "true")
    try:
        assert rows(tables.read("runs")) == "Some(1000)"
        filtered = tables.read("runs").where(f.col("started") > 990)
        assert rows(filtered) == "None"
        assert size(filtered) < 1_000 * 200
    finally:
        tables.session.conf.unset("spark.sql.cbo.enabled")


def test_the_option_names_a_number_of_rows_or_none(tables: Tables, storage: Storage) -> None:
    create_apps(storage)
    assert size(tables.read("apps", statistics=1_000_000_000)) > 1_000_000_000
    assert size(tables.read("apps", statistics=" FALSE ")) > UNKNOWN
    assert size(tables.read("apps", statistics="true")) < 1_000
    for wrong in ("yes", "0", "-1", "1.5", ""):
        with pytest.raises(AnalysisException, match="statistics"):
            tables.read("apps", statistics=wrong)


def test_sizes_follow_the_table(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 100)
    frame = tables.read("runs")
    before = size(frame)
    storage.table("runs").delete_all(Range.all())
    assert size(tables.read("runs")) < before


def test_a_feed_has_no_size(tables: Tables, storage: Storage) -> None:
    spec = TableSpecification("fed", APPS.fields, APPS.primary_key, options={"changelog-producer": "lookup"})
    storage.admin.create(spec)
    assert size(tables.read("fed", readChangeFeed="true")) > UNKNOWN
    assert size(tables.read("fed")) < 1_000


def test_a_table_that_is_gone_fails_as_it_did(tables: Tables, storage: Storage) -> None:
    create_apps(storage)
    frame = tables.read("apps")
    storage.admin.drop("apps")
    assert size(frame) > UNKNOWN
    with pytest.raises(Exception, match="apps"):
        frame.collect()
