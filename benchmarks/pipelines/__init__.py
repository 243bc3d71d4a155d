"""Pipelines: lookups of streams in tables, and the writes of a micro-batch, on Spark and PostgreSQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import running

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure pipelines, if there is a server."""
    if not available():
        print("pipelines are not measured: there is no PostgreSQL server", file=sys.stderr)
        return
    with database() as found:
        yield from running.measure(folder, found, scale)
