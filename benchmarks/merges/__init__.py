"""Merges into counters, against increments, plain upserts and the same by hand, on three stores."""

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
