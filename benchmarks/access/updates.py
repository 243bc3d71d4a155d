"""64 concurrent updates of different rows, in batches, compared with one by one and with a thread for each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.access import Batching, open_table
from structable.spi import Storage, Value

from .programs import AREA, programs

_CONCURRENT = 64


def measure(storage: Storage, store: str, scale: Scale, *, promised: bool) -> Iterator[Measurement]:
    """Measure batched updates on one store."""
    table = storage.table(TABLE)
    keys = [row_key(row) for row in make_rows(scale.rows)]
    chance = random.Random(9)
    waves = max(scale.samples // 2_000, 1)

    def wave() -> list[tuple[tuple[Value, ...], dict[str, Value]]]:
        return [(key, {"attempts": chance.randint(0, 99)}) for key in chance.sample(keys, _CONCURRENT)]

    with programs() as made:
        plain = made.opened(open_table(table))
        batched = made.opened(open_table(table, batching=Batching()))

        async def one_by_one() -> int:
            for _ in range(waves):
                for key, changes in wave():
                    await plain.update(key, changes)
            return waves * _CONCURRENT

        async def by_threads() -> int:
            for _ in range(waves):
                rows = [{"host": host, "started": started, **changes} for (host, started), changes in wave()]
                await asyncio.gather(*(asyncio.to_thread(table.update, row) for row in rows))
            return waves * _CONCURRENT

        async def in_batches() -> int:
            for _ in range(waves):
                await asyncio.gather(*(batched.update(key, changes) for key, changes in wave()))
            return waves * _CONCURRENT

        for against, floor, goal in (
            ("the same, each awaited", one_by_one, 0.25),
            ("asyncio.to_thread(table.update) of each", by_threads, 0.6),
        ):
            contender = Contender(
                f"64 concurrent updates, batched, {store}", made.round(in_batches), goal if promised else None
            )
            yield from compare(AREA, f"{against}, {store}", made.round(floor), [contender], scale.rounds)
