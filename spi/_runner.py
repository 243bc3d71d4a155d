"""The transaction runner: retried failures, the duration and pauses of retries, and precedence of transactions."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from ._errors import StorageUnavailableError, StructableError, TransactionConflictError

Result = TypeVar("Result")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 1.0
_DOUBLINGS = 7
_LOSING = 1 / 8
"""The share of the deadline, or of the attempts, after which a body that always loses goes first."""
_LONGEST_COURTESY = 2.0


def retry(
    transactional: object,
    attempt: Callable[[], Result],
    *,
    max_attempts: int | None = None,
    deadline: float = 30.0,
    writes: bool = False,
) -> Result:
    """Call `attempt` until it succeeds, fails for good, or attempts or seconds are spent; then raise its last error.

    Both retried errors mean that nothing was committed. `CommitOutcomeUnknownError` is not retried: the commit may
    stand, and a second attempt might do the work twice.

    Parameters
    ----------
    transactional : Transactional
        The source of the transactions. Once it is `closed`, no further attempt begins; its `url` names the store.
    attempt : callable without arguments
        The work.
    max_attempts, deadline : int or None, float
        As in `Transactional.run`.
    writes : bool
        Whether the attempts take part in the order of writing transactions that `Transactional.run` describes.

    Raises
    ------
    ValueError
        If `max_attempts` or `deadline` is not valid for `Transactional.run`.
    """
    begun = started = time.monotonic()
    if max_attempts is not None or deadline.__class__ is not float or not 0.0 <= deadline < math.inf:
        _check(max_attempts, deadline)
    if writes and _FIRST:
        started = _give_way(transactional, begun + deadline)
    try:
        return attempt()
    except (TransactionConflictError, StorageUnavailableError) as error:
        if _is_lasting(error):
            raise
        last = error
    try:
        with _Losing(transactional) as losing:
            number = 1
            while True:
                ended = time.monotonic()
                spent = ended - begun
                closed = bool(getattr(transactional, "closed", False))
                if closed or spent >= deadline or (max_attempts is not None and number >= max_attempts):
                    last.add_note(_note(number, spent, max_attempts, deadline))
                    raise last
                conflict = isinstance(last, TransactionConflictError)
                share = max(spent / deadline, number / max_attempts if max_attempts else 0.0)
                if not (writes and conflict and share >= _LOSING and losing.goes_first(ended - started)):
                    time.sleep(min(_pause(number, ended - started if conflict else 0.0), deadline - spent))
                started = _give_way(transactional, begun + deadline) if writes and _FIRST else time.monotonic()
                number += 1
                if _observed.observer is not None:
                    _observed.observer(last)
                try:
                    return attempt()
                except (TransactionConflictError, StorageUnavailableError) as error:
                    if _is_lasting(error):
                        raise
                    last = error
    finally:
        del last  # its traceback holds this frame


class _RetryObserver(threading.local):
    observer: Callable[[StructableError], object] | None = None


_observed = _RetryObserver()


class observing_retries:
    """While the block runs, each retry in this thread calls `observer` first, with the error of the last attempt.

    An inner block replaces the outer one. The observer must not raise.
    """

    __slots__ = ("_observer", "_outer")

    def __init__(self, observer: Callable[[StructableError], object]) -> None:
        self._observer = observer

    def __enter__(self) -> None:
        self._outer = _observed.observer
        _observed.observer = self._observer

    def __exit__(self, *raised: object) -> None:
        _observed.observer = self._outer


def _is_lasting(error: TransactionConflictError | StorageUnavailableError) -> bool:
    return isinstance(error, StorageUnavailableError) and error.lasting


def _check(max_attempts: object, deadline: object) -> None:
    if max_attempts is not None and (
        isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1
    ):
        raise ValueError(f"max_attempts is {max_attempts!r}; it must be a whole number of at least 1, or None")
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 <= deadline < math.inf:
        raise ValueError(f"deadline is {deadline!r}; it must be a number of seconds, 0 or more, and finite")


def _pause(number: int, lasted: float) -> float:
    """Return the seconds to wait after an attempt that failed.

    They are in proportion to the attempt's duration, so that short transactions come again soon and long ones meet few
    of them; with full jitter, since contenders that failed together must not retry together.
    """
    return random.uniform(0.0, min(_LONGEST_PAUSE, max(_FIRST_PAUSE, lasted) * 2.0 ** min(number, _DOUBLINGS)))


def _note(attempts: int, seconds: float, max_attempts: int | None, deadline: float) -> str:
    limits = f"deadline={deadline:g} s" + (f", max_attempts={max_attempts}" if max_attempts is not None else "")
    return f"gave up after {attempts} attempt{'s' if attempts > 1 else ''} in {seconds:.2f} s ({limits})"


# Precedence. A long transaction loses against short ones, which commit while it works, after any
# pause. So one that has lost for a while makes others of its process wait for its next attempts, each for a short time:
# a body that waits for another thread's transaction is delayed, never locked.


class _Precedence:
    """The turn of the transaction that goes first; each attempt of others waits for at most `courtesy` seconds."""

    def __init__(self, courtesy: float) -> None:
        self.courtesy = courtesy
        self.thread = threading.get_ident()
        # Not an Event: an interruption of the main thread could leave its internal lock taken.
        self.running = threading.Lock()
        self.running.acquire()


_FIRST: dict[object, ref[_Precedence]] = {}
"""The transaction that goes first, by store; nearly always empty. An interrupted one disappears with its frame."""
os.register_at_fork(after_in_child=_FIRST.clear)


def _store_of(transactional: object) -> object:
    return getattr(transactional, "url", None) or id(transactional)


def _give_way(transactional: object, end: float) -> float:
    """Wait while another thread goes first; return the time at the end."""
    turn = _first(_store_of(transactional))
    now = time.monotonic()
    if turn is not None and turn.thread != threading.get_ident():
        if turn.running.acquire(timeout=max(0.0, min(turn.courtesy, end - now))):
            turn.running.release()  # for the next waiter
        now = time.monotonic()
    return now


def _first(store: object) -> _Precedence | None:
    reference = _FIRST.get(store)
    turn = reference() if reference is not None else None
    if turn is None and reference is not None:
        _FIRST.pop(store, None)
    return turn


class _Losing:
    """A body that is repeated; it goes first from `goes_first` to the end of the `with` block."""

    def __init__(self, transactional: object) -> None:
        self._store = _store_of(transactional)
        self._turn: _Precedence | None = None

    def goes_first(self, lasted: float) -> bool:
        """Make others wait, so that no pause is needed; false if another body goes first already.

        The last attempt took `lasted` seconds. Later ones may take longer, as no conflict cuts them short.
        """
        courtesy = min(_LONGEST_COURTESY, 0.01 + 4 * lasted)
        if self._turn is not None:
            self._turn.courtesy = max(self._turn.courtesy, courtesy)
        else:
            turn = self._turn = _Precedence(courtesy)
            if _first(self._store) is not None or _FIRST.setdefault(self._store, ref(turn)) is not ref(turn):
                self._turn = None
        return self._turn is not None

    def __enter__(self) -> _Losing:
        return self

    def __exit__(self, *raised: object) -> None:
        turn = self._turn
        if turn is not None:
            if _FIRST.get(self._store) is ref(turn):
                del _FIRST[self._store]
            turn.running.release()
