"""`LoopThread`: an event loop on a thread of its own, on which other threads call coroutines and wait for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Generic, TypeVar

from structable.spi import TransactionClosedError

Result = TypeVar("Result")


class _WaitingThread(Generic[Result]):
    """A thread that waits for one call."""

    def __init__(self) -> None:
        self._outcome: SimpleQueue[asyncio.Future[Result]] = SimpleQueue()
        self._waits = True

    def wait(self) -> asyncio.Future[Result]:
        try:
            return self._outcome.get()
        except BaseException:
            self._waits = False
            raise

    def tell(self, done: asyncio.Future[Result]) -> None:
        if self._waits and not done.cancelled():
            done.exception()  # marks the error as seen, since the caller raises it; otherwise asyncio logs it
        self._outcome.put(done)


class LoopThread:
    """Enters a resource on a thread of its own once started, and leaves it there when it is stopped.

    An exception that a signal's handler raises in a thread ends what that thread does, and nothing else: locks are held
    for moments only, never in a wait, and every interrupted step can be repeated.

    Parameters
    ----------
    resource : async context manager
        Entered before the first call.
    name : str
        The thread's name, also in messages.
    """

    def __init__(self, resource: AbstractAsyncContextManager[object], name: str) -> None:
        self.process = os.getpid()
        self.is_started = False
        self.error: BaseException | None = None
        """The error of leaving the resource, once the thread has ended."""
        self._resource = resource
        self._name = name
        self._gate = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[Callable[[], object]] = []
        """Calls to make on the loop as soon as there is one."""
        self._stopping = asyncio.Event()
        self._ended = False
        self._waiting_for_end: list[SimpleQueue[None]] | None = []
        self._calls: set[asyncio.Future[object]] = set()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread; idempotent.

        Raises
        ------
        RuntimeError
            If the process can have no more threads.
        """
        if not self.is_started:
            # After an interruption it is not known whether there is a thread: the first of several runs.
            # A daemon, so that a program that does not close its tables can end.
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self.is_started = True

    def enter(self) -> None:
        """Wait until the resource is entered, and raise the error if that failed."""

        async def entered() -> None:
            return None

        self.call(entered)

    def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Call a function on the loop, in the caller's context, and wait for the result of its awaitable.

        Raises
        ------
        TransactionClosedError
            If the thread has ended.
        """
        caller: _WaitingThread[Result] = _WaitingThread()
        context = contextvars.copy_context()
        if not self._submit(lambda: context.run(self._begin, function, caller)):
            raise self._closed()
        done = caller.wait()
        try:
            if done.cancelled():
                raise concurrent.futures.CancelledError(f"a call of {self._name} was cancelled")
            return done.result()
        finally:
            del done  # the traceback of its error holds this frame

    def stop(self) -> None:
        """Begin to leave the resource and to end the thread, without waiting for it; idempotent."""
        self._submit(self._stopping.set)
        self.start()

    def join(self) -> None:
        """Wait until the stopped thread has ended."""
        # Thread.join, interrupted, takes the thread as ended.
        end: SimpleQueue[None] = SimpleQueue()
        with self._gate:
            if self._waiting_for_end is None:
                end.put(None)
            else:
                self._waiting_for_end.append(end)
        end.get()
        if self._thread is not None:
            self._thread.join()

    def _submit(self, action: Callable[[], object]) -> bool:
        """Schedule a call on the loop, in order, and return whether the loop still takes calls."""
        with self._gate:
            if self._ended:
                return False
            if self._loop is None:
                self._early.append(action)
            else:
                self._loop.call_soon_threadsafe(action)
            return True

    def _run(self) -> None:
        with self._gate:
            if self._thread is not None:
                return
            self._thread = threading.current_thread()
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self.error = error
            with self._gate:
                self._ended = True
            runner.run(self._drain())
        with self._gate:
            waiting, self._waiting_for_end = self._waiting_for_end or [], None
        for end in waiting:
            end.put(None)

    async def _serve(self) -> None:
        self._accept()
        self._entered = asyncio.create_task(self._enter())
        await self._stopping.wait()
        await asyncio.wait([self._entered])
        if not self._entered.cancelled() and self._entered.exception() is None and self._entered.result():
            await self._resource.__aexit__(None, None, None)

    def _accept(self) -> None:
        with self._gate:
            self._loop = asyncio.get_running_loop()
            for action in self._early:
                self._loop.call_soon(action)
            self._early.clear()

    async def _enter(self) -> bool:
        """Enter the resource, and return whether there was need to."""
        if self._stopping.is_set():
            return False
        await self._resource.__aenter__()
        return True

    def _begin(self, function: Callable[[], Awaitable[Result]], caller: _WaitingThread[Result]) -> None:
        future: asyncio.Future[Result]
        try:
            if self._entered.done() and self._entered.result():
                future = asyncio.ensure_future(function())
            else:
                future = asyncio.ensure_future(self._after_entering(function))
        except Exception as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        self._calls.add(future)  # type: ignore[arg-type]
        future.add_done_callback(lambda done: self._end(done, caller))

    async def _after_entering(self, function: Callable[[], Awaitable[Result]]) -> Result:
        if not await asyncio.shield(self._entered):
            raise self._closed()
        return await function()

    def _end(self, done: asyncio.Future[Result], caller: _WaitingThread[Result]) -> None:
        self._calls.discard(done)
        caller.tell(done)

    async def _drain(self) -> None:
        """Wait for the calls that began before the end."""
        await asyncio.sleep(0)
        while self._calls:
            await asyncio.wait(set(self._calls))
            await asyncio.sleep(0)

    def _closed(self) -> TransactionClosedError:
        return TransactionClosedError(f"{self._name} was closed")
