"""`JoinWorker`: keeps the result of a foreign-key join up to date, from any process.

For the Spark form: a worker is a loop around `Stepper` (`step.py`), which has the protocol of every step: it reads the
progress, decides whether a step is small, and publishes. What it does not do itself is to compute the differences of a
large step and of a rebuild and to stage them: that is a `LargeSteps`, given to the `Stepper`. Here it is `MergePass`
(`rebuild.py`), which reads in this process, in batches; Spark's reads DataFrames of one state. A `LargeSteps` says at
which positions it read, and the `Stepper` records the intent, commits the job and records the positions.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .definition import ForeignKeyJoin
from .progress import JoinProgress

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["JoinWorker"]


class JoinWorker:
    """Keeps the result of a join up to date; any number of workers, in any processes, may run one join.

    A step reads what changed in both tables since the recorded positions, joins the affected rows again at one snapshot,
    compares them with the result, and writes the differences and the new positions together. So readers see all of a
    step or none of it, a crash at any point leaves a result that the next step continues, and the result's feed has
    each difference once. Several workers cost work, never correctness: of two that step at once, one starts over.

    The first step makes the result and the table `structable_progress` if they are absent, and joins everything. So does
    a step after changes were lost: a position that has expired, a table that was dropped and made again.

    A context manager; safe for threads, which take turns.

    Parameters
    ----------
    join : ForeignKeyJoin
        The join.
    poll : float
        Seconds between two looks at feeds that have not moved; above 0.
    small : int
        A step of at most so many affected rows is one transaction; a larger one is a write job.
    large : int
        A step of more affected rows reads both tables whole, in key order and in batches.
    meter : opentelemetry.metrics.Meter, optional
        Where to report; the meter `structable` of the program's SDK by default.

    Raises
    ------
    InvalidSpecificationError
        With all faults of the definition at once; the result belongs to another join.
    UnsupportedOperationError
        If a table has no primary key, or no change feed of producer lookup.
    SchemaIncompatibleError
        If the result is there and has other fields, another key or another producer.
    TableNotFoundError
        If the left or the right table does not exist.
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
        raise NotImplementedError

    def step(self) -> JoinProgress:
        """Bring the result up to the newest state of both tables, once.

        While another worker's intent stands, nothing is done and nothing is affected.

        Raises
        ------
        PlanChangedError
            If the recorded join is another one: `rebuild` takes this one on.
        InvalidFieldError, FieldSizeLimitError
            If the result rejects a row, or the joiner returned one that does not fit; nothing was written.
        TransactionClosedError
            If the worker is closed.
        """
        raise NotImplementedError

    def run_available(self) -> JoinProgress:
        """Step until the result has all that was committed when this was called; return the sum of the steps."""
        raise NotImplementedError

    def run(self, stop: threading.Event) -> None:
        """Step until `stop` is set; what may pass, as a store that cannot be reached, is logged and tried again."""
        raise NotImplementedError

    def start(self) -> None:
        """`run` in a thread of its own, until `stop` or `close`; a second call does nothing while it runs."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the thread of `start` after its step, and raise what ended it, if something did."""
        raise NotImplementedError

    def rebuild(self) -> JoinProgress:
        """Join everything, compare it with the result and write the differences; take on this join's definition."""
        raise NotImplementedError

    def verify(self) -> int:
        """Return how many rows of the result differ from the join of both tables, all at the newest state."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop, and free the connections; idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
