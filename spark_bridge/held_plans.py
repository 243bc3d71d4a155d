"""A plan that the keeper holds, and when it is to be given up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from structable.spi import ScanPlan

from .options import ReadOptions

__all__ = ["Executions", "HeldPlan", "Reader"]

# A plan so young may be about to be read for the first time.
_YOUNG_SECONDS = 60.0


class Executions(Protocol):
    """What the keeper asks Spark."""

    def runs(self, execution: int) -> bool:
        """Tell whether an execution of a query runs; also true where that cannot be known."""
        ...

    def runs_stage(self, stage: int) -> bool:
        """Tell whether a job with this stage runs; also true where that cannot be known."""
        ...

    def runs_any_job(self) -> bool:
        """Tell whether any job runs; also true where that cannot be known."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """A task that reads one split of a plan.

    Parameters
    ----------
    split : int
        The split's index.
    execution : int or None
        The execution that the task belongs to; tasks of an RDD belong to none.
    stage : int
        The task's stage.
    """

    split: int
    execution: int | None
    stage: int

    def to_text(self) -> str:
        """Return the reader as text, for a message."""
        return f"{self.split} {-1 if self.execution is None else self.execution} {self.stage}"

    @classmethod
    def from_text(cls, text: str) -> Reader:
        """Return the reader that `to_text` wrote.

        Raises
        ------
        ValueError
            For any other text.
        """
        split, execution, stage = (int(number) for number in text.split())
        return cls(split, None if execution < 0 else execution, stage)


@dataclass(slots=True, eq=False)
class HeldPlan:
    """A plan, its readers, and since when it has none and needs none.

    Parameters
    ----------
    plan : ScanPlan
        The plan.
    options : ReadOptions
        As it was asked for.
    lane : int
        The connection it was made by.
    execution : int or None
        The execution that it was planned in.
    """

    plan: ScanPlan
    options: ReadOptions
    lane: int
    execution: int | None
    readers: int = 0
    visits: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    _over_since: float | None = None
    _executions: set[int] = field(default_factory=set)
    _stages: set[int] = field(default_factory=set)
    _unread: set[int] = field(default_factory=set)
    _reads_late: bool = False

    def __post_init__(self) -> None:
        self._unread.update(split.index for split in self.plan.splits)
        if self.execution is not None:
            self._executions.add(self.execution)

    def admit(self) -> None:
        """Let a reader in."""
        self.readers += 1
        self.visits += 1
        self._over_since = None

    def note(self, reader: Reader, *, late: bool) -> None:
        """Note what a reader that was let in reads.

        Parameters
        ----------
        reader : Reader
            The reader.
        late : bool
            Whether its execution does not run, or no longer. Then that execution's end says nothing of the next reader.
        """
        self._stages.add(reader.stage)
        if late:
            self._reads_late = True
        elif reader.execution is not None:
            self._executions.add(reader.execution)

    def leave(self, reader: Reader) -> None:
        """Note that a reader has ended."""
        self.readers -= 1
        self.idle_since = time.monotonic()
        self._unread.discard(reader.split)

    def is_over(self, executions: Executions) -> bool:
        """Ask Spark whether what this plan was made for is over, unless that is known for good.

        Readers outside of any running execution come as they like: of an RDD, of `toLocalIterator`. Their plan is over
        once each split was read and no job with them runs. A plan that was never read may yet find such readers, whose
        job waits for its turn.
        """
        if self.readers:
            return False
        if self._over_since is not None and self.visits:
            return True
        if self._reads_late or not self._executions:
            return not self._unread and not any(executions.runs_stage(stage) for stage in list(self._stages))
        if any(executions.runs(execution) for execution in list(self._executions)):
            return False
        return self.visits > 0 or not executions.runs_any_job()

    def mark(self, *, over: bool) -> None:
        """Note whether what this plan was made for is over."""
        if not over:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = time.monotonic()

    def expired(self, now: float) -> bool:
        """Whether the plan has no reader, and its lease, or the grace after its query, has ended."""
        if self.readers:
            return False
        idle = now - self.idle_since
        return idle > self.options.lease or (
            self._over_since is not None and min(idle, now - self._over_since) > self.options.grace
        )

    def dispensable(self, now: float) -> bool:
        """Tell whether the plan may be given up early for another that needs its place."""
        return not self.readers and (self.visits > 0 or now - self.idle_since > _YOUNG_SECONDS)

    def need(self) -> tuple[bool, float]:
        """Return a value that is the lower the less the plan is needed."""
        return self._over_since is None, self.idle_since
