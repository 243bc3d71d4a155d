"""Whole scans: to rows, and to Arrow as Spark reads them, in one process; and ranges that are whole keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key, statuses
from structable.spi import Filter, Range, Value, col

from .stores import Stores, opened

AREA = "scans"


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure scans."""
    with opened(folder / "rows", scale.rows) as stores:
        yield from _to_rows(stores, scale)
        yield from _of_keys(stores, scale)
    with opened(folder / "arrow", scale.rows) as stores:
        yield from _to_arrow(stores, scale)
    with opened(folder / "indexed", scale.rows, index=True) as stores:
        yield from _by_index(stores, scale)


def _to_rows(stores: Stores, scale: Scale) -> list[Measurement]:
    table = stores.storage.table(TABLE)

    def floor() -> float:
        iterator = stores.raw.iterator()
        begin = perf_counter()
        for _key, _value in iterator:
            pass
        seconds = perf_counter() - begin
        iterator.close()
        return seconds / scale.rows

    def ours() -> float:
        rows = 0
        begin = perf_counter()
        for row in table.scan():
            if row.attempts is not None:
                rows += 1
        seconds = perf_counter() - begin
        assert rows == scale.rows
        return seconds / scale.rows

    return compare(AREA, "plyvel iterate", floor, [Contender("scan to rows", ours, 6.0)], scale.rounds)


def _of_keys(stores: Stores, scale: Scale) -> list[Measurement]:
    storage = stores.storage
    keys = [row_key(row) for row in make_rows(scale.rows)]
    turns = max(1, scale.samples // 200)
    picked: list[list[tuple[Value, ...]]] = []

    def floor() -> float:
        picked[:] = [random.sample(keys, 200) for _ in range(turns)]
        begin = perf_counter()
        for some in picked:
            with storage.transaction() as tx:
                assert sum(row.attempts >= 0 for row in tx.table(TABLE).multi_read(some)) == 200
        return (perf_counter() - begin) / turns

    def ours() -> float:
        where = col("attempts") >= 0
        begin = perf_counter()
        for some in picked:
            with storage.transaction() as tx:
                assert tx.table(TABLE).count(map(Range.prefix, some), where) == 200
        return (perf_counter() - begin) / turns

    contender = Contender("count of 200 random keys with a filter", ours, 1.3)
    return compare(AREA, "multi_read of them", floor, [contender], scale.rounds)


def _to_arrow(stores: Stores, scale: Scale) -> list[Measurement]:
    """Includes planning. Neither side fills the block cache, so both unpack all blocks in each round."""
    storage = stores.storage

    def floor() -> float:
        iterator = stores.raw.iterator(fill_cache=False)
        begin = perf_counter()
        for _key, _value in iterator:
            pass
        seconds = perf_counter() - begin
        iterator.close()
        return seconds / scale.rows

    def ours() -> float:
        rows = 0
        begin = perf_counter()
        with storage.plan_scan(TABLE) as plan:
            for split in plan.splits:
                for batch in storage.read_split(split):
                    rows += batch.num_rows
        seconds = perf_counter() - begin
        assert rows == scale.rows
        return seconds / scale.rows

    return compare(
        AREA,
        "plyvel iterate, without filling the cache",
        floor,
        [Contender("scan to Arrow", ours, 2.5)],
        scale.rounds,
    )


def _by_index(stores: Stores, scale: Scale) -> list[Measurement]:
    """The splits of a plan whose condition an index answers, compared with those of a plan that no index answers."""
    storage = stores.storage

    def read(where: Filter) -> Callable[[], float]:
        def ours() -> float:
            begin = perf_counter()
            with storage.plan_scan(TABLE, where=where) as plan:
                rows = sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split))
            seconds = perf_counter() - begin
            assert 0 < rows < scale.rows / 100
            return seconds / scale.rows

        return ours

    one = statuses(1, 2013)[0]
    path = next(iter(storage.table(TABLE).scan(limit=1))).path
    contender = Contender("plan of one in 1,000 rows by an index", read(col("status") == one), 0.5)
    return compare(AREA, "plan that reads the whole table", read(col("path") == path), [contender], scale.rounds)
