"""`JoinWorker`: keeps the result of a foreign-key join up to date, from any process.

A worker is a loop around `Stepper` (`step.py`), which has the protocol of every step: it reads the progress, decides
whether a step is small, and publishes. A `LargeSteps`, given to the `Stepper`, computes and stages the differences of a
large step and of a rebuild. Here it is `MergePass` (`rebuild.py`), which reads in this process, in batches; with Spark
it reads DataFrames of one state. A `LargeSteps` returns the positions at which it read; the `Stepper` records the
intent, commits the job and records the positions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Self, TypeVar

from structable.spi import (
    CommitOutcomeUnknownError,
    Listener,
    StorageUnavailableError,
    TransactionClosedError,
    TransactionConflictError,
)
from structable.spi.authors import wait_for_any

from .definition import ForeignKeyJoin
from .metrics import JoinInstruments
from .progress import JoinProgress, Positions
from .rebuild import LargeSteps, MergePass, count_differences
from .step import Stepper
from .stores import JoinStores

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_log = logging.getLogger("structable.joins")

PASSING = (CommitOutcomeUnknownError, StorageUnavailableError, TransactionConflictError)
"""Transient errors: the next step may succeed."""
_LONGEST_PAUSE = 10.0

Progress = TypeVar("Progress", JoinProgress, JoinProgress | None)


class JoinWorker:
    """Keeps the result of a join up to date; any number of workers, in any processes, may run one join.

    A step reads the changes of both tables since the recorded positions, joins the affected rows again at one
    snapshot, compares them with the result, and writes the differences and the new positions together. So readers see
    all of a step or none of it, a crash at any point leaves a result that the next step continues, and the result's
    feed has each difference once. Several workers cost work, never correctness: if two step at once, one starts
    over.

    The first step makes the result and the table `structable_progress` if they are absent, and joins everything. So
    does a step after changes were lost: a position that has expired, a table that was dropped and made again.

    A context manager; safe for threads, which take turns.

    Parameters
    ----------
    join : ForeignKeyJoin
        The join.
    poll : float
        Seconds between two looks at feeds that have not moved; above 0.
    small : int
        The maximum number of affected rows of a step in one transaction; a larger step is a write job.
    large : int
        The maximum number of affected rows of a step; a larger step reads both tables whole, in key order and in
        batches.
    meter : opentelemetry.metrics.Meter, optional
        The meter to report to; by default the meter `structable` of the program's SDK.

    Raises
    ------
    InvalidSpecificationError
        With all faults of the definition at once; the result belongs to another join.
    UnsupportedOperationError
        If a table has no primary key, or no change feed of producer lookup.
    SchemaIncompatibleError
        If the result exists and has other fields, another key or another producer.
    TableNotFoundError
        If the left or the right table does not exist.
    TypeError
        If the join is no ForeignKeyJoin.
    ValueError
        If poll, small or large is out of its range.
    """

    def __init__(
        self,
        join: ForeignKeyJoin,
        *,
        poll: float = 0.2,
        small: int = 10_000,
        large: int = 1_000_000,
        meter: Meter | None = None,
    ) -> None:
        if not isinstance(join, ForeignKeyJoin):
            raise TypeError(f"join is {join!r}; it must be a ForeignKeyJoin")
        _check_number("poll", poll, above_zero=True)
        for argument, value in (("small", small), ("large", large)):
            _check_number(argument, value, above_zero=False)
        if small > large:
            raise ValueError(f"small is {small} and large {large}; small must be at most large")
        instruments = JoinInstruments(join.name, meter)
        self.join = join
        self._poll = poll
        self._instruments = instruments
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._closed = threading.Event()
        self._stores = JoinStores(join)
        try:
            large_steps = self._large_steps(large)
            self._stepper = Stepper(self._stores, small=small, large_steps=large_steps, instruments=instruments)
        except BaseException:
            self._stores.close()
            raise

    def step(self) -> JoinProgress:
        """Bring the result up to the newest state of both tables, once.

        While another worker's intent stands, nothing is done and nothing is affected.

        Raises
        ------
        PlanChangedError
            If the recorded join is another one: `rebuild` adopts this one.
        InvalidFieldError, FieldSizeLimitError
            If the result rejects a row, or the joiner returned one that does not fit; nothing was written.
        InvalidSpecificationError, UnsupportedOperationError, SchemaIncompatibleError, TableNotFoundError
            If the tables were changed so that the join does not fit them any more.
        TransactionClosedError
            If the worker is closed.
        """
        return self._measured(self._stepper.step)

    def check(self) -> None:
        """Check the join against the present tables and the recorded definition, without a step.

        Raises
        ------
        Exception
            As `step` does for another recorded join, or for tables that the join does not fit.
        """
        with self._lock:
            self._require_open()
            self._stepper.current_kernel()

    def run_available(self) -> JoinProgress:
        """Step until the result has every commit before this call; return the sum of the steps.

        It waits while the intent of another worker stands: for a signal of its end, and at most `poll` seconds.

        Raises
        ------
        Exception
            As `step` does.
        """
        total: JoinProgress | None = None
        with self._lock:
            self._require_open()
            target = self._latest()
        with closing(_Signals(self._stores, self._poll)) as signals:
            while True:
                progress = self.step()
                total = progress if total is None else total.followed_by(progress)
                left, right = progress.left_position, progress.right_position
                if left is not None and right is not None:
                    reached = Positions(left, right)
                    if not target.same_feeds(reached):
                        target = self._latest()  # a table was dropped and made again
                    if reached.reach(target):
                        return total
                signals.wait(self._closed)

    def run(self, stop: threading.Event) -> None:
        """Step whenever a feed has moved, until `stop` is set or the worker is closed.

        Transient errors, such as an unreachable store, are logged, and the step is tried again with growing pauses.

        Raises
        ------
        Exception
            Any other error of `step`.
        """
        with closing(_Signals(self._stores, self._poll)) as signals:
            self._run_until(stop, signals)

    def _run_until(self, stop: threading.Event, signals: _Signals) -> None:
        pause = self._poll
        while not stop.is_set() and not self._closed.is_set():
            try:
                progress = self.step()
                pause = self._poll
                if progress.rebuilt:
                    signals.close()  # of a table that may have been dropped and made again
                if progress.rebuilt or progress.affected:
                    _log.debug("join %r: %s", self.join.name, progress)
                else:
                    signals.wait(stop)
            except (TransactionClosedError, *PASSING) as error:
                if self._closed.is_set():
                    return
                if isinstance(error, TransactionClosedError):
                    raise
                pause = min(2 * pause, max(_LONGEST_PAUSE, self._poll))
                _log.warning("join %r: a step failed and is tried again in %.1f s: %s", self.join.name, pause, error)
                stop.wait(pause)

    def start(self) -> None:
        """`run` in a thread of its own, until `stop` or `close`; a second call does nothing while it runs.

        Raises
        ------
        TransactionClosedError
            If the worker is closed.
        """
        with self._lock:
            self._require_open()
            if self._thread is not None and self._thread.is_alive():
                return
            self._end = threading.Event()
            self._failure = None
            self._thread = threading.Thread(target=self._run, name=f"structable-join-{self.join.name}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread of `start` after its step; idempotent.

        Raises
        ------
        Exception
            The error that ended the thread before, if any.
        """
        self._end.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def rebuild(self) -> JoinProgress:
        """Join everything, compare it with the result and write the differences; adopt this join's definition.

        An absent selection is resolved again. The result gets new fields, and loses fields that the recorded join made
        and this one does not. The call waits while the intent of another worker stands.

        Raises
        ------
        SchemaIncompatibleError
            If the result has fields that no join made, fields of other types, or an index on a field that must go.
        Exception
            Otherwise as `step` does.
        """
        with closing(_Signals(self._stores, self._poll)) as signals:
            while (progress := self._measured(self._stepper.rebuild)) is None:
                signals.wait(self._closed)
        return progress

    def verify(self) -> int:
        """Return how many rows of the result differ from the join of both tables, all at the newest state.

        Commits since the last step count as differences.

        Raises
        ------
        PlanChangedError
            If the recorded join is another one.
        InvalidSpecificationError, UnsupportedOperationError, SchemaIncompatibleError, TableNotFoundError
            If the tables were changed so that the join does not fit them any more.
        TransactionClosedError
            If the worker is closed.
        """
        with self._lock:
            self._require_open()
            return count_differences(self._stores, self._stepper.current_kernel())

    def close(self) -> None:
        """Stop, and close the connections; idempotent. An error that ended the thread of `start` was logged."""
        self._end.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._lock:
            self._closed.set()
            self._stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _large_steps(self, large: int) -> LargeSteps:
        return MergePass(large)

    def _run(self) -> None:
        try:
            self.run(self._end)
        except BaseException as error:
            _log.exception("join %r: the worker ended", self.join.name)
            self._failure = error

    def _measured(self, step: Callable[[], Progress]) -> Progress:
        with self._lock:
            self._require_open()
            with self._instruments.step() as done:
                progress = step()
                if progress is not None:
                    done.append(progress)
            return progress

    def _latest(self) -> Positions:
        left, right = self._stores.feeds
        return Positions(left.latest(), right.latest())

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise TransactionClosedError(f"the worker of the join {self.join.name!r} is closed")


class _Signals:
    """Waits until a step may have work: for signals, where the stores carry them, and for a time."""

    def __init__(self, stores: JoinStores, poll: float) -> None:
        self._stores = stores
        self._poll = poll
        self._listeners: list[Listener] = []

    def wait(self, stop: threading.Event) -> None:
        """Wait for a signal, the event, or the next look; return at once the first time, which misses no signal."""
        if self._listeners and not any(one.closed for one in self._listeners):
            wait_for_any(self._listeners, stop, self._poll)
        else:
            self.close()
            self._listeners = self._stores.listen()

    def close(self) -> None:
        """Stop listening, until the next wait."""
        while self._listeners:
            self._listeners.pop().close()


def _check_number(argument: str, value: object, *, above_zero: bool) -> None:
    kinds: tuple[type, ...] = (int, float) if above_zero else (int,)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    if not fits or not (value > 0 if above_zero else value >= 0):  # type: ignore[operator]
        wanted = "a number of seconds above 0" if above_zero else "an int of at least 0"
        raise ValueError(f"{argument} is {value!r}; it must be {wanted}")
