"""Parquet files that Spark writes by its own settings, imported by the command."""

import datetime as dt
from pathlib import Path

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from structable.cli.app import app
from structable.spi import Field, Storage, TableSpecification

SPEC = TableSpecification(
    "times",
    [
        Field.long("id"),
        Field.timestamp("at"),
        Field.timestamp_ntz("local"),
        Field.date("day"),
        Field.decimal("cost", 10, 2),
    ],
    primary_key=["id"],
)
YEARS = (1, 1600, 1700, 1969, 2024, 2263, 9999)


def test_timestamps_of_all_years(spark: SparkSession, url: str, storage: Storage, tmp_path: Path) -> None:
    """By default they are INT96, beside dates, local times and decimals that are not."""
    times = [dt.datetime(year, 12, 31, 23, 59, 59, 999_999, dt.UTC) for year in YEARS]
    rows = [
        f"select {number}L id, timestamp'{time.isoformat()}' at, timestamp_ntz'{time.isoformat()[:-6]}' local, "
        f"date'{time.date()}' day, cast(1.25 as decimal(10,2)) cost"
        for number, time in enumerate(times)
    ]
    storage.admin.create(SPEC)
    frame = spark.sql(" union all ".join(rows))
    frame.coalesce(1).write.parquet(str(tmp_path / "files"))
    (file,) = (tmp_path / "files").glob("*.parquet")
    outcome = CliRunner().invoke(app, ["import", url, "times", str(file)])
    assert outcome.exit_code == 0, outcome.stderr
    with storage.table("times").scan() as found:
        assert [(row.at, row.local, row.day) for row in found] == [
            (time, time.replace(tzinfo=None), time.date()) for time in times
        ]
