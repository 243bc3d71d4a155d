"""PostgreSQL: every promise against careful psycopg code, on one server, committed with fsync.

The server is that of STRUCTABLE_TEST_POSTGRESQL_URL, or one started from local binaries with PostgreSQL's default
settings. Floors and structable have tables of equal columns with the same rows, in two schemas of one database,
vacuumed first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from tests.postgresql.support.binaries import MINIMUM
from tests.postgresql.support.shared import URL_VARIABLE

from . import points, scans, small, spark, writes
from .database import available, database

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure PostgreSQL, if there is a server."""
    if not available():
        reason = f"set {URL_VARIABLE}, or install a server of version {MINIMUM} or later (Debian: postgresql)"
        print(f"PostgreSQL is not measured: {reason}", file=sys.stderr)
        return
    with database() as found:
        yield from points.measure(found, scale)
        yield from small.measure(found, scale)
        yield from scans.measure(found, scale)
        yield from writes.measure(found, scale)
        yield from spark.measure(folder, found, scale)
