"""TPC-H's 22 queries in Spark: a store through the bridge against what else Spark could read the same rows from.

PostgreSQL's floor is Spark's own JDBC catalog, on the very tables of structable and with all of its pushdown on.
LevelDB's floor is the generator's Parquet files; HBase is shown for comparison. `lineitem` has 600,000 rows.

The text of a query goes to sessions that differ in where they find its tables. They plan two partitions for a shuffle,
as many as there are cores. The figures are ours, with TPC-H's questions and rows; they are not results of TPC-H.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hbase.database import Database as HBaseDatabase
from benchmarks.leveldb.stores import url_of
from benchmarks.measuring import QUICK, Measurement, Scale
from benchmarks.postgresql.database import Database as PostgreSQLDatabase
from benchmarks.sessions import JDBC_DRIVER, spark_session
from benchmarks.stores import measure_stores
from tests.spark.tpch.queries import NUMBERS
from tests.spark.tpch.tables import LEAST_SCALE, generate, load

from .contests import Contest
from .look_ups import look_up_join
from .small_reads import small_reads
from .sources import by_jdbc, by_structable, of_files

__all__ = ["measure"]

_QUICK_NUMBERS = (6,)
_PARQUET = "the same rows in Parquet files"
_JDBC = "Spark's JDBC catalog"


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and the servers that there are."""
    files, factor = folder / "files", max(scale.records / 1_000_000, LEAST_SCALE)
    generate(files, factor)
    numbers = _QUICK_NUMBERS if scale == QUICK else NUMBERS
    stores = _Stores(folder, files, Contest(numbers, factor, rounds=min(scale.rounds - 1, 3)))
    return measure_stores(folder, scale, stores.leveldb, stores.postgresql, stores.hbase)


@dataclass(frozen=True, slots=True)
class _Stores:
    """Each has an application of its own, which holds no snapshot of the tables once it has ended."""

    folder: Path
    files: Path
    contest: Contest

    def leveldb(self, folder: Path, scale: Scale) -> Iterator[Measurement]:
        url = url_of(folder / "ours")
        load(self.files, url)
        with spark_session(self.folder) as spark:
            parquet, ours = of_files(spark, self.files), by_structable(spark, url)
            yield from self.contest.held("LevelDB", _PARQUET, parquet, ours, goal=3.0, mean_goal=1.6)
            yield from small_reads("LevelDB", ours, self.files, self.contest.rounds, goal=500.0)
            yield from look_up_join("LevelDB", ours, url, scale, self.contest.rounds)

    def postgresql(self, database: PostgreSQLDatabase, scale: Scale) -> Iterator[Measurement]:
        load(self.files, database.ours.url)
        with database.connection() as raw:
            database.vacuum(raw, database.ours)
        with spark_session(self.folder) as spark:
            ours = by_structable(spark, database.ours.url)
            yield from small_reads("PostgreSQL", ours, self.files, self.contest.rounds)
            yield from look_up_join("PostgreSQL", ours, database.ours.url, scale, self.contest.rounds)
            if JDBC_DRIVER.exists():
                jdbc = by_jdbc(spark, database)
                yield from self.contest.held("PostgreSQL", _JDBC, jdbc, ours, goal=1.0, mean_goal=0.8)
            else:
                print(
                    f"PostgreSQL's queries are not measured: their floor needs {JDBC_DRIVER}, from Debian's "
                    "libpostgresql-jdbc-java",
                    file=sys.stderr,
                )

    def hbase(self, database: HBaseDatabase, _: Scale) -> Iterator[Measurement]:
        load(self.files, database.url)
        if (server := database.place.server) is not None:
            with database.connection() as connection:
                names = [name.decode() for name in connection.tables()]
            for name in names:
                if name.startswith(f"{database.prefix}_"):
                    server.flush(name)
                    server.compact(name)
        with spark_session(self.folder) as spark:
            parquet, ours = of_files(spark, self.files), by_structable(spark, database.url)
            yield from self.contest.held("HBase", _PARQUET, parquet, ours)
            yield from small_reads("HBase", ours, self.files, self.contest.rounds)
