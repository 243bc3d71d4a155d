"""Tables for services: look-ups and updates of an asyncio program, compared with the same program without them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.leveldb.stores import load, url_of
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database
from structable.spi import connect

from . import lookups, metering, updates

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL if there is a server."""
    load(folder, scale.rows)
    url = url_of(folder / "ours")
    yield from metering.measure(url, scale)
    with connect(url) as storage:
        yield from lookups.measure(storage, "LevelDB", scale)
        yield from updates.measure(storage, "LevelDB", scale, promised=False)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found:
        found.make(scale.rows)
        with found.on_separate_cores(), found.storage() as storage:
            yield from lookups.measure(storage, "PostgreSQL", scale)
            yield from updates.measure(storage, "PostgreSQL", scale, promised=True)
