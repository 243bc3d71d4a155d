"""Jobs and topics, compared with hand-written tables of jobs, queues and outboxes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.leveldb.stores import url_of
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database
from structable.spi import connect

from . import drain, jobs, latency, topics, waiting

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL, if there is a server."""
    with connect(url_of(folder / "publish")) as storage:
        yield from topics.measure_publish(storage, "LevelDB", scale, (1.3, 1.3))
    with connect(url_of(folder / "latency")) as storage:
        yield from latency.measure_leveldb(storage, url_of(folder / "latency"), scale)
    with connect(url_of(folder / "drain")) as storage:
        yield from drain.measure(storage, "LevelDB", scale)
    yield from waiting.measure_leveldb(folder, scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
        return
    with database() as found, found.storage() as storage:
        yield from topics.measure_publish(storage, "PostgreSQL", scale, (1.2, 1.5))
    with database() as found:
        yield from topics.measure_end_to_end(found, scale)
    with database() as found:
        yield from latency.measure_postgresql(found, scale)
    with database() as found, found.storage() as storage:
        yield from drain.measure(storage, "PostgreSQL", scale)
    with database() as found:
        yield from waiting.measure_postgresql(found, scale)
        yield from jobs.measure(found, scale)
