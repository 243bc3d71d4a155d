"""What is measured on LevelDB, and on the servers that there are."""

from __future__ import annotations

import os
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

STORES_VARIABLE = "STRUCTABLE_BENCH_STORES"
"""Names the stores to measure; all without it."""


def chosen_stores(known: Iterable[str]) -> list[str]:
    """Return the stores to measure.

    Raises
    ------
    ValueError
        If `STRUCTABLE_BENCH_STORES` names one that is not known.
    """
    stores = list(known)
    names = os.environ.get(STORES_VARIABLE, ",".join(stores)).split(",")
    if unknown := [name for name in names if name not in stores]:
        raise ValueError(f"{STORES_VARIABLE} names {', '.join(unknown)}; the stores are {', '.join(stores)}")
    return names


def measure_stores(
    folder: Path,
    scale: Scale,
    leveldb: Callable[[Path, Scale], Iterable[Measurement]],
    postgresql: Callable[[PostgreSQLDatabase, Scale], Iterable[Measurement]],
    hbase: Callable[[HBaseDatabase, Scale], Iterable[Measurement]],
) -> Iterator[Measurement]:
    """Measure each store that is chosen and that there is."""
    chosen = chosen_stores(["leveldb", "postgresql", "hbase"])
    if "leveldb" in chosen:
        yield from leveldb(folder, scale)
    if "postgresql" in chosen:
        if available():
            with postgresql_database() as found:
                yield from postgresql(found, scale)
        else:
            print("PostgreSQL is not measured: there is no server", file=sys.stderr)
    if "hbase" not in chosen:
        return
    try:
        with hbase_database(folder) as place:
            yield from hbase(place, scale)
    except NoServerError as error:
        print(f"HBase is not measured: {error}", file=sys.stderr)
