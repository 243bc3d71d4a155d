"""Pipelines: planning, as the graph grows; lookups of streams in tables and the writes of a micro-batch, on Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import planning, running

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure the planning of graphs of several shapes, and Spark with PostgreSQL if there is a server."""
    yield from planning.measure(scale)
    if not available():
        print("running pipelines is not measured: there is no PostgreSQL server", file=sys.stderr)
        return
    with database() as found:
        yield from running.measure(folder, found, scale)
