"""Asyncio programs as rounds of a measurement, all on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TypeVar

from benchmarks.measuring import Round
from structable.access import AsyncTable

AREA = "access"

K = TypeVar("K")
V = TypeVar("V")


class Programs:
    """An event loop, and the tables that are open on it."""

    def __init__(self, runner: asyncio.Runner, stack: ExitStack) -> None:
        self._runner = runner
        self._stack = stack

    def opened(self, table: AsyncTable[K, V]) -> AsyncTable[K, V]:
        """Enter a table, until the programs end."""
        self._runner.run(_entered(table))
        self._stack.callback(lambda: self._runner.run(table.close()))
        return table

    def round(self, program: Callable[[], Coroutine[object, object, int]]) -> Round:
        """Return a round that runs a program, which returns the number of its operations."""

        async def timed() -> float:
            begin = perf_counter()
            count = await program()
            return (perf_counter() - begin) / count

        return lambda: self._runner.run(timed())


async def _entered(table: AsyncTable[K, V]) -> None:
    await table.__aenter__()


@contextmanager
def programs() -> Iterator[Programs]:
    """Yield programs on a new event loop."""
    with asyncio.Runner() as runner, ExitStack() as stack:
        yield Programs(runner, stack)
