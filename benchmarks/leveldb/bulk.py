"""Bulk load: upsert of new rows in key order, 1,000 per commit, without and with an index.

Each round loads a new, empty database; the rows are made before the round. The floor puts the same rows, already
encoded, in batches of 1,000; with the index, too, it is one put per row.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from benchmarks.rows import TABLE, batches, make_rows, raw_key, raw_value, specification
from structable.spi import connect

from .stores import open_raw, url_of

AREA = "bulk"


def measure(folder: Path, scale: Scale) -> list[Measurement]:
    """Measure bulk loads."""
    rows = list(make_rows(scale.rows))
    given = list(batches(rows))
    encoded = [[(raw_key(row), raw_value(row)) for row in batch] for batch in given]

    def floor() -> float:
        raw = open_raw(folder / "raw")
        begin = perf_counter()
        for batch in encoded:
            writes = raw.write_batch()
            for key, value in batch:
                writes.put(key, value)
            writes.write()
        seconds = perf_counter() - begin
        raw.close()
        shutil.rmtree(folder / "raw")
        return seconds / len(rows)

    def load(index: bool) -> Round:
        def ours() -> float:
            with connect(url_of(folder / "ours")) as storage:
                storage.admin.create(specification(index=index))
                begin = perf_counter()
                for batch in given:
                    with storage.transaction() as tx:
                        tx.table(TABLE).upsert_many(batch)
                seconds = perf_counter() - begin
            shutil.rmtree(folder / "ours")
            return seconds / len(rows)

        return ours

    return compare(
        AREA,
        "plyvel batches of 1,000 puts, one a row",
        floor,
        [
            Contender("upsert_many of new rows", load(False), 4.0),
            Contender("upsert_many of new rows, one index", load(True), 8.0),
        ],
        scale.rounds,
    )
