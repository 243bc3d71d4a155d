"""`uninterrupted`: work that an exception from a signal handler must not interrupt.

Python runs signal handlers in the main thread, between any two of its calls, and they may raise: Ctrl-C does, and so do
the time limits of workers. Where locks are taken and released in more than one step, or several things change together,
the work runs in another thread, where no handler ever runs. That costs some 50 microseconds, and only in the main
thread; code that runs often is written so that an interruption does no harm.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

_LOOK_SECONDS = 0.05


def uninterrupted(work: Callable[[], Result]) -> Result:
    """Return or raise the result of `work`. In the main thread, another thread runs it.

    The first interruption is raised when the work is over, a second one at once, while the work continues. An
    interruption before the work has begun prevents it.
    """
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        return work()  # threads that are started as the interpreter ends never run
    task = _Task(work)
    try:
        try:
            # Not `threading.Thread`: its `start` waits on a lock that an interruption may leave taken.
            _thread.start_new_thread(task.run, ())
        except RuntimeError:
            # No thread can be started: there are too many, or the interpreter is shutting down.
            if task.claimed.acquire(False):
                task.do()
        task.wait()
    except BaseException:
        if not task.claimed.acquire(False):
            task.wait()
        raise
    if task.error is not None:
        raise task.error
    return task.results[0]


class _Task(Generic[Result]):
    # Raw locks, whose methods are C: an interruption in the `__exit__` of a `threading.Condition`, which is Python,
    # leaves its lock taken, and `threading.Event` contains one.

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self.claimed = threading.Lock()
        """Taken by the side that decides whether the work begins: the worker, or an interruption before it."""
        self._is_over = False
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        if self.claimed.acquire(False):
            self.do()

    def do(self) -> None:
        """Do the work; the caller has claimed it."""
        try:
            self.results.append(self._work())
        except BaseException as error:
            self.error = error
        finally:
            self._is_over = True
            self._under_way.release()

    def wait(self) -> None:
        """Wait until the work is over; call again if an earlier wait was interrupted."""
        while not (self._is_over or self._under_way.acquire(timeout=_LOOK_SECONDS)):
            continue
