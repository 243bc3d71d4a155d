"""Jobs, beside a table of jobs by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import jobs

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure PostgreSQL, if there is a server."""
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        yield from jobs.measure(found, scale)
