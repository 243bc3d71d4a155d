"""A limit reaches the readers of splits, which end early; Spark takes the first rows of all."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from structable.spi import Storage, TableSpecification
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import RUNS, create_runs


def explained(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain(mode="formatted")
    return capsys.readouterr().out


@every_store
def test_each_split_gives_as_many_rows_as_the_limit(
    tables: Tables, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    create_runs(storage, 5000)
    frame = tables.read("runs", splits=2)
    limited = frame.limit(7)
    assert "PushedLimit: 7" in explained(limited, capsys)
    found = limited.collect()
    assert len(found) == 7
    everything = {row.started: row for row in frame.collect()}
    assert all(everything[row.started] == row for row in found)
    # More than a split has, more than all, and none.
    for count, rows in ((4000, 4000), (9000, 5000), (0, 0)):
        assert frame.limit(count).count() == rows
        assert len(frame.limit(count).collect()) == rows


def test_a_limit_behind_filters_of_the_store_is_pushed(
    tables: Tables, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs").where(f.col("started") >= 900)
    assert "PushedLimit: 20" in explained(frame.limit(20), capsys)
    assert sorted(row.started for row in frame.limit(1000).collect()) == list(range(900, 1000))
    assert len(frame.limit(20).collect()) == 20


@pytest.mark.parametrize("where", ["cost * 2 >= 300", "length(app) = 0 or started > 700"])
def test_a_limit_behind_filters_of_spark_is_not(
    tables: Tables, storage: Storage, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs").where(where)
    assert "PushedLimit" not in explained(frame.limit(5), capsys)
    assert len(frame.limit(5).collect()) == min(5, frame.count())


def test_an_order_is_kept(tables: Tables, storage: Storage) -> None:
    create_runs(storage, 1000)
    frame = tables.read("runs", splits=2)
    last = frame.orderBy(f.col("started").desc()).limit(3).collect()
    assert [row.started for row in last] == [999, 998, 997]
    assert frame.limit(10).orderBy(f.col("started").desc()).count() == 10
    assert frame.limit(10).where("started >= 0").count() == 10
    assert frame.limit(2).union(frame).count() == 1002


def test_a_limit_of_a_feed_is_sparks(tables: Tables, storage: Storage, capsys: pytest.CaptureFixture[str]) -> None:
    spec = TableSpecification("fed", RUNS.fields, RUNS.primary_key, options={"changelog-producer": "lookup"})
    storage.admin.create(spec)
    storage.table("fed").upsert_many([{"app": "a", "started": number} for number in range(50)])
    frame = tables.read("fed", readChangeFeed="true")
    assert "PushedLimit" not in explained(frame.limit(5), capsys)
    assert frame.limit(5).count() == 5
