"""Foreign-key joins: steps against hand-written transactions, tables of two sizes, the memory of a hot key, Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hbase.database import database as hbase_database
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available, database
from benchmarks.sessions import spark_session
from structable.spark_bridge import register
from structable.spi import connect
from tests.servers.availability import NoServerError

from . import hot_key, spark, steps

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB, and PostgreSQL and HBase if there are servers."""
    url = f"leveldb://{folder}/joins"
    with connect(url) as storage:
        yield from steps.measure(storage, url, "LevelDB", scale, 3.0)
        yield from steps.growth(storage, url, "LevelDB", scale)
    yield from hot_key.measure(f"leveldb://{folder}/hot", scale)
    if not available():
        print("PostgreSQL is not measured: there is no server", file=sys.stderr)
    else:
        with database() as found, found.on_separate_cores(), found.storage() as storage:
            yield from steps.measure(storage, found.ours.url, "PostgreSQL", scale, 2.0)
            yield from steps.growth(storage, found.ours.url, "PostgreSQL", scale)
    url = f"leveldb://{folder}/spark"
    with spark_session(folder) as session, connect(url) as storage:
        register(session)
        yield from spark.measure(session, storage, url, "LevelDB", scale)
        if available():
            with database() as found, found.storage() as other:
                yield from spark.measure(session, other, found.ours.url, "PostgreSQL", scale)
    try:
        with hbase_database(folder) as place, spark_session(folder) as session, connect(place.url) as storage:
            register(session)
            orders = min(scale.many_rows // 2, 100_000)
            yield from spark.changes_of_some(session, storage, place.url, "HBase", orders, scale, None)
    except NoServerError as error:
        print(f"HBase is not measured: {error}", file=sys.stderr)
