"""Updates of many rows, and Spark's streams: from feeds, and into tables, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import leveldb, postgresql, spark

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, PostgreSQL if there is a server, and Spark on both."""
    yield from leveldb.measure(folder, scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        yield from postgresql.measure(found, scale)
        yield from spark.measure(folder, found, scale)
