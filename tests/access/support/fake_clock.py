"""An event loop whose time jumps to the next timer when nothing is ready, and that runs a test without a remainder."""

from __future__ import annotations

import asyncio
import gc
import math
import selectors
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from tests.waiting import until

Result = TypeVar("Result")
Event = tuple[selectors.SelectorKey, int]


class _JumpingSelector(selectors.SelectSelector):
    """Tells the loop that it would have to wait, instead of waiting."""

    loop: FakeClockLoop

    def select(self, timeout: float | None = None) -> list[Event]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        return self.loop.wait(timeout)

    def block(self) -> list[Event]:
        return super().select(None)


class FakeClockLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` begins at 1,000 and moves only when nothing is ready: to the next timer, at once.

    Parameters
    ----------
    threads : bool
        Whether other threads wake this loop. Without timers such a loop waits for them; another one, on which nothing
        can happen any more, raises RuntimeError. Timers do not wait for threads.
    """

    def __init__(self, threads: bool = False) -> None:
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self
        self._jumping = selector
        self._threads = threads
        self._now = 1000.0
        self._waiting: list[asyncio.Future[None]] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._prune_at = 100

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, **context: object
    ) -> asyncio.TimerHandle:
        if when <= self._now:
            # No clock stands still; code whose sums of floats end just below a timer asks until the time has moved.
            self._now = math.nextafter(self._now, math.inf)
        handle: asyncio.TimerHandle = super().call_at(when, callback, *args, **context)  # type: ignore[arg-type]
        if len(self._timers) >= self._prune_at:
            self._timers = self.timers
            self._prune_at = 2 * len(self._timers) + 100
        self._timers.append(handle)
        return handle

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are neither cancelled nor due."""
        return [timer for timer in self._timers if self._is_pending(timer)]

    def _is_pending(self, timer: asyncio.TimerHandle) -> bool:
        return not timer.cancelled() and timer.when() > self._now

    def idle(self) -> asyncio.Future[None]:
        """Return a future that is done as soon as nothing else is ready, before the time moves."""
        future: asyncio.Future[None] = self.create_future()
        self._waiting.append(future)
        return future

    def wait(self, timeout: float | None) -> list[Event]:
        """Wake what waits for idleness, else move the time by `timeout` seconds, else wait for other threads."""
        while self._waiting:
            waiting = self._waiting.pop(0)
            if not waiting.done():
                waiting.set_result(None)
                return []
        if timeout is not None:
            # The loop compares with its clock's resolution; a sum of floats may end just below the timer.
            self._now = min((timer.when() for timer in self.timers), default=self._now + timeout)
            return []
        if not self._threads:
            tasks = "\n".join(map(repr, asyncio.all_tasks(self)))
            raise RuntimeError(f"nothing can happen on this loop any more:\n{tasks}")
        return self._jumping.block()


async def idle() -> None:
    """Let everything run that can run without the time moving."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop)
    await loop.idle()


async def outcomes(*calls: Awaitable[object]) -> list[object]:
    """Return the results of calls that run at once, and the exceptions of those that fail."""
    return [*await asyncio.gather(*calls, return_exceptions=True)]


async def advance(seconds: float) -> None:
    """Move the time by `seconds`, and let everything run that is due by then."""
    await asyncio.sleep(seconds)
    await idle()


def run(main: Coroutine[object, object, Result], *, threads: bool = False) -> Result:
    """Run a test on a new loop with a fake clock.

    Afterwards it fails if a task, a timer or a thread is left, or an exception that nobody saw.
    """
    before = set(threading.enumerate())
    gc.freeze()  # so that the collections below look at the test's own objects only
    unseen: list[dict[str, object]] = []

    async def check() -> Result:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FakeClockLoop)
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        try:
            result = await main
        except BaseException:
            loop.set_exception_handler(lambda _, context: None)  # what it leaves follows from the failure
            raise
        await idle()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks, f"left: {tasks}"
        assert not loop.timers, f"left: {loop.timers}"
        return result

    try:
        with asyncio.Runner(loop_factory=lambda: FakeClockLoop(threads)) as runner:
            result = runner.run(check())
            gc.collect()
    finally:
        gc.unfreeze()
    assert not unseen, f"nobody saw: {unseen}"
    until(lambda: before.issuperset(threading.enumerate()))  # a thread that was told to end may need a moment
    return result
