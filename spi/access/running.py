"""`run_async`: a transaction of an asyncio program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from structable.spi.transactions import Isolation, Transaction, Transactional

__all__ = ["run_async"]

Result = TypeVar("Result")


async def run_async(
    storage: Transactional,
    body: Callable[[Transaction], Result],
    *,
    isolation: Isolation = Isolation.SNAPSHOT,
    read_only: bool = False,
    max_attempts: int | None = None,
    deadline: float = 30.0,
) -> Result:
    """Return the result of a transaction that a thread runs, and repeats after conflicts, as `Transactional.run` does.

    The body is a function that blocks, not a coroutine: a transaction that stayed open while other tasks run would hold
    its snapshot for them. It ends in its thread, also if the task that waits for it is cancelled.
    """
    if asyncio.iscoroutinefunction(body):
        raise TypeError("the body is a coroutine function; give a plain function, which a thread runs")
    return await asyncio.to_thread(
        storage.run, body, isolation=isolation, read_only=read_only, max_attempts=max_attempts, deadline=deadline
    )
