"""Jobs, beside a table of jobs by hand; signals of commits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import jobs, waiting

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL if there is a server."""
    yield from waiting.measure_leveldb(folder, scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        yield from waiting.measure_postgresql(found, scale)
        yield from jobs.measure(found, scale)
