"""`RateLimit`: the keys per second that a table reads, writes and updates."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from aiolimiter import AsyncLimiter

from structable.spi.authors import shown

from .metrics import Instruments

# object: keys and values are the source's own.
Credits: TypeAlias = Callable[..., float]


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimit:
    """A table's limits in credits a second; immutable, and usable for any number of tables, each with its own credits.

    Each attempt takes its credits first, retries too: one for each key, or the number that `credits` returns. A bulk
    call takes the sum. Up to one second's worth, and always one credit, may be taken at once; then credits come back
    evenly. A larger sum is taken in parts. Calls take their credits in the order of their attempts.

    Parameters
    ----------
    read, write, update : float, optional
        Credits a second of get; of put, upsert and delete; of update. Fractions are allowed: 0.1 is one credit in ten
        seconds. None for no limit; for `update` None means the limit of `write`, with shared credits.
    credits : callable, optional
        `credits(key, value)`: the credits of one key, 0 or more. The value is None for get and delete, and an update's
        changes.

    Raises
    ------
    TypeError
        If a limit is not a number, or `credits` is not callable.
    ValueError
        If a limit is not positive and finite.
    """

    read: float | None = None
    write: float | None = None
    update: float | None = None
    credits: Credits | None = None

    def __post_init__(self) -> None:
        for name, rate in (("read", self.read), ("write", self.write), ("update", self.update)):
            if rate is None:
                continue
            if isinstance(rate, bool) or not isinstance(rate, int | float):
                raise TypeError(f"{name} is {shown(rate)}; it must be a number of credits a second, or None")
            if not 0 < rate < math.inf:
                raise ValueError(f"{name} is {rate}; it must be a positive number of credits a second, or None")
        if self.credits is not None and not callable(self.credits):
            raise TypeError(f"credits is {shown(self.credits)}; it must be a function of a key and its value")


class _Bucket:
    """Credits of one limit, handed out in the order of the requests."""

    def __init__(self, rate: float) -> None:
        self._most = max(rate, 1.0)
        self._limiter = AsyncLimiter(self._most, self._most / rate)
        # AsyncLimiter alone serves small requests first, so that a steady flow of them would starve a large one.
        self._order = asyncio.Lock()

    async def take(self, amount: float) -> bool:
        """Take credits, and return whether the call had to wait for them."""
        waited = self._order.locked()
        async with self._order:
            while amount > 0:
                part = min(amount, self._most)
                waited = waited or not self._limiter.has_capacity(part)
                await self._limiter.acquire(part)
                amount -= part
        return waited


class Limiter:
    """The limits of one table.

    Parameters
    ----------
    limit : RateLimit
        The rates.
    instruments : Instruments
        The instruments that report waits.
    """

    def __init__(self, limit: RateLimit, instruments: Instruments) -> None:
        self._credits = limit.credits
        self._instruments = instruments
        write = None if limit.write is None else _Bucket(limit.write)
        self._buckets = {
            "get": None if limit.read is None else _Bucket(limit.read),
            "put": write,
            "upsert": write,
            "delete": write,
            "update": write if limit.update is None else _Bucket(limit.update),
        }

    async def take(self, operation: str, pairs: Iterable[tuple[object, object]]) -> None:
        """Wait for the credits of one attempt.

        Raises
        ------
        ValueError
            If `credits` gives anything but a finite number of 0 or more.
        """
        bucket = self._buckets[operation]
        if bucket is None:
            return
        amount = self._sum(pairs)
        if not self._instruments.enabled:
            await bucket.take(amount)
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        if await bucket.take(amount):
            self._instruments.throttled(operation, loop.time() - started)

    def _sum(self, pairs: Iterable[tuple[object, object]]) -> float:
        price = self._credits
        if price is None:
            return float(sum(1 for _ in pairs))
        total = 0.0
        for key, value in pairs:
            part = price(key, value)
            if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < math.inf:
                raise ValueError(
                    f"credits gives {shown(part)} for the key {shown(key)}; it must be a number, 0 or more"
                )
            total += part
        return total
