"""Look-ups of single rows, compared with hand-made threads, and with and without a cache.

Each is awaited before the next, which hides no cost; how many run at once decides about the store's speed, not the
table's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.rows import TABLE, make_rows, row_key
from structable.access import AsyncTable, Cache, open_table
from structable.spi import Key, Row, Storage

from .programs import AREA, programs

_HITS = 0.9
_HOT = 1_000


def measure(storage: Storage, store: str, scale: Scale) -> Iterator[Measurement]:
    """Measure plain and cached look-ups on one store."""
    table = storage.table(TABLE)
    keys: list[Key] = [row_key(row) for row in make_rows(scale.rows)]
    count = min(scale.samples, 4_000)
    chance = random.Random(7)
    with programs() as made:
        plain = made.opened(open_table(table))
        some: list[Key] = []

        async def by_threads() -> int:
            some[:] = chance.sample(keys, count)
            total = 0
            for key in some:
                row = await asyncio.to_thread(table.read, key)
                if row is not None and row.done:
                    total += row.attempts
            return count

        yield from compare(
            AREA,
            f"asyncio.to_thread(table.read), {store}",
            made.round(by_threads),
            [Contender(f"get, without options, {store}", made.round(lambda: _look_up(plain, some)), 1.15)],
            2 * scale.rounds,
        )
        cached = made.opened(open_table(table, cache=Cache(max_rows=len(keys), ttl=3600.0)))
        hot = min(_HOT, len(keys) // 10)
        made.round(lambda: _look_up(cached, keys[:hot]))()
        chosen = _mixed(keys[:hot], keys[hot:], min(count, 2_000), chance)

        async def uncached() -> int:
            some[:] = chosen()
            return await _look_up(plain, some)

        yield from compare(
            AREA,
            f"get without a cache, {store}",
            made.round(uncached),
            [Contender(f"get, 90 % in the cache, {store}", made.round(lambda: _look_up(cached, some)), 0.4)],
            scale.rounds,
        )


def _mixed(hot: Sequence[Key], cold: list[Key], count: int, chance: random.Random) -> Callable[[], list[Key]]:
    """Return a function that chooses keys for a round: nine of ten are hot, the others have never been read."""
    fresh = iter(chance.sample(cold, len(cold)))

    def chosen() -> list[Key]:
        found = [chance.choice(hot) if number < _HITS * count else next(fresh) for number in range(count)]
        chance.shuffle(found)
        return found

    return chosen


async def _look_up(table: AsyncTable[Key, Row], keys: Sequence[Key]) -> int:
    total = 0
    for key in keys:
        row = await table.get(key)
        if row is not None and row.done:
            total += row.attempts
    return len(keys)
