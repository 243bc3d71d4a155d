"""`Retry`: which failed calls are made again, how often, and after which pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tenacity import AsyncRetrying, RetryCallState, stop_after_attempt, stop_after_delay, wait_random_exponential
from tenacity.stop import StopBaseT
from tenacity.wait import WaitBaseT

from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    RecordExistsError,
    RecordNotFoundError,
    UnsupportedOperationError,
)
from structable.spi.authors import shown

from .metrics import Instruments

Result = TypeVar("Result")
When: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

_NEVER_RETRIED = (
    RecordNotFoundError,
    RecordExistsError,
    InvalidFieldError,
    CommitOutcomeUnknownError,
    UnsupportedOperationError,
)
_DEFAULT_STOP = stop_after_attempt(10) | stop_after_delay(30.0)
_DEFAULT_WAIT = wait_random_exponential(multiplier=0.02, min=0.01, max=1.0)

_log = logging.getLogger("structable.access")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A retry policy of a table's reads or writes; immutable, and usable for any number of tables.

    A failed call is made again if `when` applies to its error or the source's `is_retriable` is true of it. Never made
    again, whatever `when` says, are calls whose error is, or was raised from, a RecordNotFoundError,
    RecordExistsError, InvalidFieldError, CommitOutcomeUnknownError or UnsupportedOperationError. When `stop` ends the
    retries, the last error is raised, with a note of the number of calls and the time.

    Parameters
    ----------
    when : exception class, tuple of them, or callable, optional
        Classes of errors, or a predicate of the error; none by default.
    stop : tenacity's stop strategy, optional
        Asked after each failed call. By default no call is made after the 10th, or after 30 s.
    wait : tenacity's wait strategy, optional
        Seconds from a failed call to the next: by default random, from 10 ms to a bound that doubles from 20 ms to
        1 s. Times are read from the event loop's clock.

    Raises
    ------
    TypeError
        If an argument is none of these.
    """

    when: When | None = None
    stop: StopBaseT | None = None
    wait: WaitBaseT | None = None

    def __post_init__(self) -> None:
        when = self.when
        classes = when if isinstance(when, tuple) else (when,) if isinstance(when, type) else ()
        for one in classes:
            if not (isinstance(one, type) and issubclass(one, Exception)):
                raise TypeError(f"when has {shown(one)}; it must be a subclass of Exception")
        if when is not None and not isinstance(when, tuple) and not callable(when):
            raise TypeError(
                f"when is {shown(when)}; it must be an exception class, a tuple of them, or a predicate of the error"
            )
        for name, strategy in (("stop", self.stop), ("wait", self.wait)):
            if strategy is not None and (not callable(strategy) or isinstance(strategy, type)):
                raise TypeError(f"{name} is {shown(strategy)}; it must be a {name} strategy of tenacity")


def caused_by(error: BaseException, classes: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Return whether the error, or one that it was raised from at any depth, is of one of the classes."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, classes):
            return True
        seen.add(id(one))
        one = one.__cause__
    return False


class Retrier:
    """Makes the calls of one table by one policy.

    Parameters
    ----------
    policy : Retry
        The policy.
    is_retriable : callable
        Whether the source calls an error retriable.
    instruments : Instruments
        The instruments that report retries.
    """

    def __init__(self, policy: Retry, is_retriable: Callable[[BaseException], bool], instruments: Instruments) -> None:
        self._when = policy.when
        self._is_retriable = is_retriable
        self._instruments = instruments
        self._strategies = AsyncRetrying(stop=policy.stop or _DEFAULT_STOP, wait=policy.wait or _DEFAULT_WAIT)

    async def run(self, operation: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Await `attempt` until it succeeds, fails with an error that is not retried, or the policy stops."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await attempt()
        except Exception as error:
            if not self._applies(error):
                raise
            failure = error
        # Strategies see the state that tenacity itself would show them, on the loop's clock.
        state = RetryCallState(self._strategies, None, (), {})
        state.start_time = started
        try:
            while True:
                state.set_exception((type(failure), failure, failure.__traceback__))
                state.outcome_timestamp = loop.time()
                state.upcoming_sleep = max(0.0, float(self._strategies.wait(state)))
                if self._strategies.stop(state):
                    self._report(operation, loop.time() - started, state.attempt_number, exhausted=True)
                    failure.add_note(_note(state.attempt_number, loop.time() - started))
                    raise failure
                _log.debug("%s of table %r is retried: %r", operation, self._instruments.table, failure)
                await asyncio.sleep(state.upcoming_sleep)
                state.idle_for += state.upcoming_sleep
                state.prepare_for_next_attempt()
                try:
                    result = await attempt()
                except Exception as error:
                    if not self._applies(error):
                        self._report(operation, loop.time() - started, state.attempt_number)
                        raise
                    failure = error
                else:
                    self._report(operation, loop.time() - started, state.attempt_number)
                    return result
        finally:
            del failure, state  # the traceback of the error holds this frame

    def _applies(self, error: Exception) -> bool:
        if caused_by(error, _NEVER_RETRIED):
            return False
        when = self._when
        if when is None:
            chosen = False
        elif isinstance(when, type | tuple):
            chosen = isinstance(error, when)
        else:
            chosen = bool(when(error))
        return chosen or self._is_retriable(error)

    def _report(self, operation: str, seconds: float, calls: int, *, exhausted: bool = False) -> None:
        self._instruments.retried(operation, seconds, calls - 1, exhausted)


def _note(calls: int, seconds: float) -> str:
    return f"the retry policy allows no further call after {calls:,} in {seconds:.3g} s"
