"""Merges into counters, against increments, plain upserts and the same by hand, on three stores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hbase.database import database as hbase_database
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available
from benchmarks.postgresql.database import database as postgresql_database
from tests.servers.availability import NoServerError

from . import hbase, leveldb, postgresql

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and the servers that there are."""
    yield from leveldb.measure(folder, scale)
    if available():
        with postgresql_database() as found:
            yield from postgresql.measure(found, scale)
    else:
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
    try:
        with hbase_database(folder) as place:
            yield from hbase.measure(place, scale)
    except NoServerError as error:
        print(f"HBase is not measured: {error}", file=sys.stderr)
