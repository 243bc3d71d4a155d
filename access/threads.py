"""Blocking calls that threads make for an event loop: the calls of a table, and whole transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from structable.spi import Isolation, Transaction, Transactional

T = TypeVar("T")


class ThreadCall(Awaitable[T], Generic[T]):
    """A call that a thread makes even if its awaiting task is cancelled; awaited or attended at most once.

    A future in its place would cost a turn of the event loop, in which the thread and the loop contend for the
    interpreter's lock: half as much as the whole call.
    """

    __slots__ = ("_arguments", "_attendant", "_ended", "_failed", "_function", "_loop", "_start")

    def __init__(
        self,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._arguments = arguments
        self._failed = failed
        self._start = [True]  # to be taken by the thread, or by `refuse`
        self._attendant: Callable[[Any, BaseException | None], None] | None = None
        self._ended: tuple[T | None, BaseException | None] | None = None

    def run(self) -> None:
        """Make the call; runs in a thread."""
        if not self._may_start():
            return
        result, failure = None, None
        try:
            result = self._function(*self._arguments)
        except BaseException as error:
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._done, result, failure)
        finally:
            del failure  # its traceback holds this frame

    def refuse(self, error: BaseException) -> None:
        """Fail the call, unless a thread makes it already."""
        if self._may_start():
            self._loop.call_soon(self._done, None, error)

    def _may_start(self) -> bool:
        try:
            return self._start.pop()
        except IndexError:
            return False

    def _done(self, result: T | None, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
        attendant, self._attendant = self._attendant, None  # it refers to this call
        if attendant is None:
            self._ended = (result, error)
        else:
            attendant(result, error)

    def attend(self, attendant: Callable[[Any, BaseException | None], None]) -> None:
        """Call a function with the result and the error, in the event loop."""
        if self._ended is None:
            self._attendant = attendant
        else:
            attendant(*self._ended)

    def __await__(self) -> Generator[Any, None, T]:
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T, error: BaseException | None) -> None:
            if future.done():
                return  # the awaiting task was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.attend(settle)
        return (yield from future)


class Threads:
    """Some threads, started as they are needed.

    Parameters
    ----------
    most : int
        The maximum number of calls at a time.
    name : str
        The prefix of the threads' names.
    failed : callable
        Called in the event loop with the error of each call that failed.
    """

    def __init__(self, most: int, name: str, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=name)

    def call(self, function: Callable[..., T], *arguments: object) -> ThreadCall[T]:
        """Begin a call."""
        call = ThreadCall(function, arguments, self._failed)
        try:
            self._executor.submit(call.run)
        except RuntimeError as error:  # no further thread can start; a running one may have taken it
            call.refuse(error)
        return call

    def close(self) -> None:
        """End the threads, once they have made the calls that were begun."""
        self._executor.shutdown(wait=False)


def attend(working: Awaitable[Any], attendant: Callable[[Any, BaseException | None], None]) -> Awaitable[Any]:
    """Call a function in the event loop with the result and the error of some work; return what runs it, to be kept."""
    if isinstance(working, ThreadCall):
        working.attend(attendant)
        return working

    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled():  # the loop is being shut down
            attendant(None, asyncio.CancelledError())
            return
        error = future.exception()
        attendant(None if error is not None else future.result(), error)

    future = asyncio.ensure_future(working)
    future.add_done_callback(done)
    return future


async def run_async(
    storage: Transactional,
    body: Callable[[Transaction], T],
    *,
    isolation: Isolation = Isolation.SNAPSHOT,
    read_only: bool = False,
    max_attempts: int | None = None,
    deadline: float = 30.0,
) -> T:
    """Return the result of a transaction that a thread runs, and repeats after conflicts, as `Transactional.run` does.

    The body is a function that blocks, not a coroutine: a transaction that stayed open while other tasks run would hold
    its snapshot for them. It ends in its thread, also if the task that waits for it is cancelled.
    """
    if asyncio.iscoroutinefunction(body):
        raise TypeError("the body is a coroutine function; give a plain function, which a thread runs")
    return await asyncio.to_thread(
        storage.run, body, isolation=isolation, read_only=read_only, max_attempts=max_attempts, deadline=deadline
    )
