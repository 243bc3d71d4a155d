"""LevelDB: partial updates of 1,000 rows in a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.leveldb.stores import load, url_of
from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE
from structable.spi import connect

from .updates import AREA, chosen_updates


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure `update_many` compared with a loop of `update`."""
    load(folder, scale.rows)
    chance = random.Random(5)
    with connect(url_of(folder / "ours")) as storage:

        def loop() -> float:
            updates = chosen_updates(chance, scale)
            begin = perf_counter()
            with storage.transaction() as tx:
                table = tx.table(TABLE)
                for row in updates:
                    table.update(row)
            return (perf_counter() - begin) / len(updates)

        def at_once() -> float:
            updates = chosen_updates(chance, scale)
            begin = perf_counter()
            with storage.transaction() as tx:
                assert tx.table(TABLE).update_many(updates) == []
            return (perf_counter() - begin) / len(updates)

        contender = Contender("update_many of 1,000 rows", at_once, 0.6)
        yield from compare(AREA, "a loop of update, LevelDB", loop, [contender], 3 * scale.rounds)
