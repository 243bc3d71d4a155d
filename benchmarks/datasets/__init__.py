"""Typed records against the same operations on the table; the system datasets against hand-written SQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.leveldb.stores import load, url_of
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database
from structable.spi import connect

from . import records, runs

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL if there is a server."""
    load(folder, scale.rows)
    with connect(url_of(folder / "ours")) as storage:
        yield from records.measure_leveldb(storage, scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        found.make(scale.rows)
        with found.on_separate_cores(), found.storage() as storage:
            yield from records.measure_postgresql(storage, scale)
        yield from runs.measure(found, scale)
