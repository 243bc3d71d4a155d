"""Migrations: filling a field from a JSON document against a hand-written pass, and its cost for a running service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.leveldb.stores import url_of
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database

from . import fills, services, writes

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL if there is a server."""
    yield from fills.measure_leveldb(folder, scale)
    yield from writes.measure(url_of(folder / "writes"), scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        with found.on_separate_cores(), found.connection() as raw:
            yield from fills.measure_postgresql(found.ours.url, raw, folder, scale)
        # On one core with the runner, the service would wait for the runner's computing rather than for the store.
        yield from services.measure(found.ours.url, folder, scale)
