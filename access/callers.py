"""`Caller`: the future that a call returned; its cancellation takes nothing out of the work, and no failure is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from .copies import another

_MOST_FAILURES = 100


class Caller:
    """The future result of one call.

    Parameters
    ----------
    future : asyncio.Future
        The future that the caller holds, and may cancel.
    """

    __slots__ = ("future", "is_ended")

    def __init__(self, future: asyncio.Future[object]) -> None:
        self.future = future
        self.is_ended = False

    def succeed(self, value: object = None) -> None:
        """End the call with a result."""
        self.is_ended = True
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """End the call with an error, an instance that no other caller gets."""
        self.is_ended = True
        if self.future.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)


class WriteCaller(Caller):
    """The result of one write, as a future.

    Parameters
    ----------
    future : asyncio.Future
        The future that the caller holds.
    failures : Failures
        Keeps a failure until it has been seen.
    ended : callable, optional
        Called before the caller, with whether the write succeeded.
    """

    __slots__ = ("_ended", "_failures")

    def __init__(
        self,
        future: asyncio.Future[object],
        failures: Failures,
        ended: Callable[[bool], None] | None = None,
    ) -> None:
        super().__init__(future)
        self._failures = failures
        self._ended = ended

    def succeed(self, value: object = None) -> None:
        """End the write."""
        if self._ended is not None:
            self._ended(True)
        super().succeed(value)

    def fail(self, error: BaseException) -> None:
        """End the write with an error, an instance that no other caller gets."""
        if self._ended is not None:
            self._ended(False)
        is_awaited = bool(self.future._callbacks)
        super().fail(error)
        if not is_awaited:
            self._failures.add(self.future, error)


class Failures:
    """Failed writes whose callers have not looked at the error: `flush` raises it.

    The 100 newest are kept; older failures, and all failures of a table that is never flushed, are in asyncio's log.
    """

    def __init__(self) -> None:
        self._unseen: deque[tuple[asyncio.Future[object], BaseException]] = deque()
        self._left_to_log = 0

    def add(self, future: asyncio.Future[object], error: BaseException) -> None:
        """Keep a failure."""
        unseen = self._unseen
        while unseen and (_is_seen(unseen[0][0]) or len(unseen) >= _MOST_FAILURES):
            future_before, _ = unseen.popleft()
            self._left_to_log += not _is_seen(future_before)
        unseen.append((future, error))

    def take(self) -> BaseException | None:
        """Return the first kept failure that its caller has not looked at, noting how many others there are."""
        unseen, self._unseen = self._unseen, deque()
        left_to_log, self._left_to_log = self._left_to_log, 0
        failed = [(future, error) for future, error in unseen if not _is_seen(future)]
        for future, _ in failed:
            if not future.cancelled():
                future.exception()  # marks the error as seen; otherwise asyncio logs it
        if not failed:
            return None
        first = failed[0][1]
        if others := len(failed) - 1 + left_to_log:
            first.add_note(f"{others} more failed writes were never awaited")
        return first


def fail_all(callers: Iterable[Caller], error: BaseException) -> None:
    """Fail callers with one error: each has an instance of its own, as far as the error can be copied.

    An instance that several tasks raise would mix up their tracebacks, notes and contexts.
    """
    own = error
    for number, caller in enumerate(callers):
        if number:
            own = another(error)
        caller.fail(own)


def _is_seen(future: asyncio.Future[object]) -> bool:
    """Return whether the future's error was retrieved, by asyncio's own flag; false for a cancelled future."""
    return not future.cancelled() and not future._log_traceback
