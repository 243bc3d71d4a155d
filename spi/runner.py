"""The transaction runner: which failures are retried, how often, and with what pauses."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .errors import StorageUnavailableError, TransactionConflictError

if TYPE_CHECKING:
    from .storage import Isolation, Transaction, Transactional

__all__ = ["retry", "run_transaction"]

Result = TypeVar("Result")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 1.0
_DOUBLINGS = 16


def run_transaction(
    transactional: Transactional,
    body: Callable[[Transaction], Result],
    *,
    isolation: Isolation,
    read_only: bool,
    max_attempts: int,
    deadline: float,
) -> Result:
    """Run `body` in a transaction and retry it as `Transactional.run` promises."""

    def attempt() -> Result:
        with transactional.transaction(isolation, read_only) as transaction:
            return body(transaction)

    return retry(transactional, attempt, max_attempts=max_attempts, deadline=deadline)


def retry(
    transactional: Transactional, attempt: Callable[[], Result], *, max_attempts: int = 10, deadline: float = 30.0
) -> Result:
    """Call `attempt` until it succeeds, fails for good, or attempts or seconds are spent; then raise its last error.

    Both errors that are retried say that nothing was committed. `CommitOutcomeUnknownError` passes: the commit may
    stand, and a second attempt might do the work twice.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}; it must be at least 1")
    end = time.monotonic() + deadline
    for number in itertools.count(1):
        try:
            return attempt()
        except (TransactionConflictError, StorageUnavailableError):
            # Full jitter: contenders that failed together must not come back together.
            pause = random.uniform(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(number, _DOUBLINGS)))
            closed = bool(getattr(transactional, "closed", False))
            if closed or number >= max_attempts or time.monotonic() + pause >= end:
                raise
        time.sleep(pause)
    raise AssertionError("unreachable: the count is endless")
