"""The fill of a derived field, per row, compared with rewriting each row by plyvel, and with one UPDATE statement."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.leveldb.stores import open_raw, url_of
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Connection
from structable.migrations import Migrator
from structable.spi import Storage, connect

from .tables import AREA, document, fills_timed, make, revision

_BATCH = 5_000


def measure_leveldb(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure LevelDB: the floor iterates, decodes each document and writes the row with its new bytes, in batches."""
    count, revisions = scale.rows, revision(folder)

    def floor() -> float:
        raw = open_raw(folder / "raw")
        for begin in range(0, count, _BATCH):
            writes = raw.write_batch()
            for number in range(begin, min(count, begin + _BATCH)):
                writes.put(number.to_bytes(8, "big"), document(number).encode())
            writes.write()
        begun = perf_counter()
        writes, pending = raw.write_batch(), 0
        with raw.iterator() as rows:
            for key, value in rows:
                writes.put(key, value + json.loads(value)["n"].to_bytes(8, "big"))
                pending += 1
                if pending == _BATCH:
                    writes.write()
                    writes, pending = raw.write_batch(), 0
        writes.write()
        seconds = perf_counter() - begun
        raw.close()
        shutil.rmtree(folder / "raw")
        return seconds / count

    def ours() -> float:
        with connect(url_of(folder / "ours")) as storage:
            seconds = _filled(storage, revisions, count)
        shutil.rmtree(folder / "ours")
        return seconds

    contender = Contender("fill of a JsonField, per row, LevelDB", ours, 6.0)
    yield from compare(AREA, "plyvel: iterate, and batches of the same bytes", floor, [contender], scale.rounds)


def measure_postgresql(url: str, raw: Connection, folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure PostgreSQL: the floor is one UPDATE, which reads the document as jsonb."""
    count, revisions = scale.rows, revision(folder)

    def floor() -> float:
        raw.execute("DROP TABLE IF EXISTS documents")
        raw.execute("CREATE TABLE documents (id bigint PRIMARY KEY, body text, hits bigint, n bigint)")
        with raw.cursor().copy("COPY documents (id, body, hits) FROM STDIN") as copy:
            for number in range(count):
                copy.write_row((number, document(number), 0))
        begun = perf_counter()
        raw.execute("UPDATE documents SET n = (body::jsonb->>'n')::bigint")
        return (perf_counter() - begun) / count

    def ours() -> float:
        with connect(url) as storage:
            return _filled(storage, revisions, count)

    contender = Contender("fill of a JsonField, per row, PostgreSQL", ours, 4.0)
    yield from compare(AREA, "one UPDATE statement", floor, [contender], scale.rounds)


def _filled(storage: Storage, revisions: Path, count: int) -> float:
    make(storage, count)
    with fills_timed() as seconds:
        Migrator(storage, revisions).up()
    return sum(seconds) / count
