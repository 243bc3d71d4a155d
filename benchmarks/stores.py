"""What is measured on LevelDB, and on the servers that there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.hbase.database import Database as HBaseDatabase
from benchmarks.hbase.database import database as hbase_database
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import Database as PostgreSQLDatabase
from benchmarks.postgresql.database import available
from benchmarks.postgresql.database import database as postgresql_database
from tests.servers.availability import NoServerError

__all__ = ["measure_stores"]


def measure_stores(
    folder: Path,
    scale: Scale,
    leveldb: Callable[[Path, Scale], Iterable[Measurement]],
    postgresql: Callable[[PostgreSQLDatabase, Scale], Iterable[Measurement]],
    hbase: Callable[[HBaseDatabase, Scale], Iterable[Measurement]],
) -> Iterator[Measurement]:
    """Measure each store that there is."""
    yield from leveldb(folder, scale)
    if available():
        with postgresql_database() as found:
            yield from postgresql(found, scale)
    else:
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
    try:
        with hbase_database(folder) as place:
            yield from hbase(place, scale)
    except NoServerError as error:
        print(f"HBase is not measured: {error}", file=sys.stderr)
