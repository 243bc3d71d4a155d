"""A Spark scan of two million rows on two cores, all columns of which an aggregate consumes.

The floor is a Python data source that iterates over a raw LevelDB database in the one task that LevelDB allows, decodes
nothing, and passes a single row with the count to Spark. It therefore omits the transfer of the rows to the JVM, which
structable pays for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from structable.spark_bridge import register

from .leveldb.stores import load, open_raw, url_of
from .measuring import Contender, Measurement, Scale, compare
from .rows import TABLE
from .sessions import consume, spark_session

AREA = "spark"


def measure(folder: Path, scale: Scale) -> list[Measurement]:
    """Measure Spark."""
    load(folder, scale.many_rows)
    with spark_session(folder) as spark:
        register(spark)
        spark.dataSource.register(IterateOnly)

        def floor() -> float:
            source = spark.read.format("iterate_only").option("folder", str(folder / "raw"))
            begin = perf_counter()
            (found,) = source.load().collect()
            seconds = perf_counter() - begin
            assert found["rows"] == scale.many_rows
            return seconds / scale.many_rows

        def table() -> DataFrame:
            source = spark.read.format("structable").option("url", url_of(folder / "ours")).option("table", TABLE)
            return source.load()

        def scan() -> float:
            begin = perf_counter()
            (found,) = consume(table()).collect()
            seconds = perf_counter() - begin
            assert found["rows"] == scale.many_rows
            return seconds / scale.many_rows

        def one_column() -> float:
            source = spark.read.format("structable").option("url", url_of(folder / "ours")).option("table", TABLE)
            begin = perf_counter()
            (found,) = source.option("columns", "attempts").load().agg(f.sum("attempts"), f.count("*")).collect()
            seconds = perf_counter() - begin
            assert found[1] == scale.many_rows
            return seconds / scale.many_rows

        return compare(
            AREA,
            "a Python data source that iterates, in one task",
            floor,
            [
                Contender("scan, all columns", scan, 2.5),
                Contender("scan, one column", one_column),
            ],
            max(scale.rounds - 2, 2),
        )


class IterateOnly(DataSource):
    """The floor."""

    @classmethod
    def name(cls) -> str:
        return "iterate_only"

    def schema(self) -> str:
        return "rows long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _IterateOnlyReader(Path(self.options["folder"]))


class _IterateOnlyReader(DataSourceReader):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        database = open_raw(self._folder)
        count = 0
        for _key, _value in database.iterator():
            count += 1
        database.close()
        yield (count,)
