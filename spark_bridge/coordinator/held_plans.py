"""A plan that the coordinator holds, the rules for closing it, and its form in other processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from structable.spark_bridge.base.options import ReadOptions
from structable.spi import FeedPosition, ScanPlan, ScanSplit

YOUNG_SECONDS = 60.0
"""A plan younger than this may be about to be read for the first time."""


class Executions(Protocol):
    """The coordinator's view of Spark; tests replace it to run without a JVM."""

    def runs(self, execution: int) -> bool:
        """Whether an execution of a query runs; true if unknown."""
        ...

    def runs_stage(self, stage: int) -> bool:
        """Whether a job with this stage runs; true if unknown."""
        ...

    def runs_any_job(self) -> bool:
        """Whether any job runs; true if unknown."""
        ...

    def reads_all_again(self, execution: int, stage: int) -> bool:
        """Whether a running execution, with this stage, uses nothing that its plan kept of an earlier one.

        False if unknown.
        """
        ...


@dataclass(frozen=True, slots=True)
class SplitTask:
    """A task that reads one split of a plan. Tasks of an RDD belong to no execution."""

    split: int
    execution: int | None
    stage: int

    def to_text(self) -> str:
        return f"{self.split} {-1 if self.execution is None else self.execution} {self.stage}"

    @classmethod
    def from_text(cls, text: str) -> SplitTask:
        """Return the reader that `to_text` wrote; ValueError if the text is malformed."""
        split, execution, stage = (int(number) for number in text.split())
        return cls(split, None if execution < 0 else execution, stage)


@dataclass(slots=True, eq=False)
class HeldPlan:
    """A plan, its readers, and how long it has been without any."""

    plan: ScanPlan
    options: ReadOptions
    connection: int
    execution: int | None
    order: tuple[str, ...] = ()
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
        self.readers += 1
        self.visits += 1
        self._over_since = None

    def record(self, reader: SplitTask, *, late: bool) -> None:
        """Record the stage and the execution of an admitted reader.

        If `late`, its execution is no longer running, so that its end implies nothing about further readers.
        """
        self._stages.add(reader.stage)
        if late:
            self._reads_late = True
        elif reader.execution is not None:
            self._executions.add(reader.execution)

    def leave(self, reader: SplitTask) -> None:
        self.readers -= 1
        self.idle_since = time.monotonic()
        self._unread.discard(reader.split)

    def is_over(self, executions: Executions) -> bool:
        """Ask Spark whether the query of this plan has ended, unless that is already certain.

        Readers outside any running execution, of an RDD or of `toLocalIterator`, may come at any time. Their plan has
        ended once each split was read and no job with them runs. A plan that was never read may still get such
        readers: their job may be waiting for its turn.
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
        """Record whether the query of this plan has ended."""
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

    def reason(self, now: float) -> str:
        """Say why an expired plan is closed, for the log."""
        idle = now - self.idle_since
        if idle > self.options.lease:
            return f"unread for {idle:.0f} s (leaseSeconds is {self.options.lease:g})"
        return f"its query has ended (graceSeconds is {self.options.grace:g})"

    def dispensable(self, now: float) -> bool:
        """Whether the plan may be closed early to make room for another."""
        return not self.readers and (self.visits > 0 or now - self.idle_since > YOUNG_SECONDS)

    def need(self) -> tuple[bool, bool, float]:
        """Return a sort key: the least needed plan comes first."""
        return self._over_since is None, bool(self._unread), self.idle_since


@dataclass(frozen=True, slots=True)
class PlannedSplits:
    """The splits of a plan that the coordinator holds under an id, and its position if the table has a change feed.

    `order` is the key of the table if the rows come in key order, else empty.
    """

    plan_id: str
    splits: tuple[ScanSplit, ...]
    position: FeedPosition | None = None
    order: tuple[str, ...] = ()
