"""Change feeds: writes to a table with and without a feed, and reading changes against scanning rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from benchmarks.stores import measure_stores

from . import hbase, leveldb, postgresql

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and the servers that there are."""
    return measure_stores(folder, scale, leveldb.measure, postgresql.measure, hbase.measure)
