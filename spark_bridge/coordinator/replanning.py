"""Physical plans that Spark executes again: their scans are planned again, on the snapshot of the new execution."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from structable.spark_bridge.base.options import ReadOptions
from structable.spi import Aggregation, Filter

from .held_plans import Executions, PlannedSplits

MOST_PLANS = 5_000
MOST_EXECUTIONS = 1_000


def pickled_scan(options: ReadOptions, columns: tuple[str, ...] | Aggregation, where: Filter | None) -> bytes:
    """Return the arguments of a scan as a pickle, which tasks send to have it planned again."""
    return pickle.dumps((options, columns, where))


def unpickled_scan(scan: bytes) -> tuple[ReadOptions, tuple[str, ...] | Aggregation, Filter | None]:
    """Return the arguments of `pickled_scan`; only for a scan whose digest is known."""
    return cast("tuple[ReadOptions, tuple[str, ...] | Aggregation, Filter | None]", pickle.loads(scan))


def digest_of(scan: bytes) -> bytes:
    """Return the digest by which the coordinator recognises a scan that a task sends."""
    return hashlib.sha256(scan).digest()


@dataclass(frozen=True, slots=True)
class Rerun:
    """A task that reads partition `part` of `parts` for an execution other than the one that planned them."""

    plan_id: str
    part: int
    parts: int
    execution: int
    outermost: bool  # whether no other execution contains this one
    stage: int

    def to_text(self) -> str:
        return f"{self.plan_id} {self.part} {self.parts} {self.execution} {self.outermost:d} {self.stage}"

    @classmethod
    def from_text(cls, text: str) -> Rerun:
        """Return the task that `to_text` wrote; ValueError if the text is malformed."""
        plan_id, *rest = text.split()
        part, parts, execution, outermost, stage = (int(number) for number in rest)
        if not 0 <= part < parts:
            raise ValueError(f"partition {part} of {parts}")
        return cls(plan_id, part, parts, execution, bool(outermost), stage)


@dataclass(slots=True, eq=False)
class _AllowedScan:
    digest: bytes
    execution: int | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    again: dict[int, str] = field(default_factory=dict)


class Replanning:
    """Remembers little of each plan, closed ones too, to plan its scan once more for each later execution.

    An execution reads either all of its scans again or none, so that it sees one state.
    """

    def __init__(
        self,
        executions: Executions,
        plan: Callable[[ReadOptions, tuple[str, ...] | Aggregation, Filter | None, int], PlannedSplits],
    ) -> None:
        self._executions = executions
        self._plan = plan
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, _AllowedScan] = OrderedDict()
        self._again: OrderedDict[int, bool] = OrderedDict()

    def remember(self, plan_id: str, execution: int | None, digest: bytes) -> None:
        """Allow tasks to replan the scan with this digest. Only the digest is stored."""
        with self._lock:
            self._plans[plan_id] = _AllowedScan(digest, execution)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)

    def replanned(self, rerun: Rerun, scan: bytes, *, unclaimed: bool) -> str | None:
        """Return the id of the plan to read in place of an older one, made when the first task asks.

        None means the older one. It may be `unclaimed`: held, and planned outside any execution, as by `df.rdd`.
        Raises what planning raises; the next task that asks plans again.
        """
        with self._lock:
            planned = self._plans.get(rerun.plan_id)
            if planned is None or planned.digest != digest_of(scan):
                return None
            self._plans.move_to_end(rerun.plan_id)
        known = rerun.execution in planned.again
        if not known and not self._reads_again(rerun, planned.execution, unclaimed=unclaimed):
            return None
        with planned.lock:
            if rerun.execution not in planned.again:
                # A planner of the driver's machine named this digest, so that the pickle is not an executor's own.
                plan_id = self._plan(*unpickled_scan(scan), rerun.execution).plan_id
                running = {key: old for key, old in planned.again.items() if self._executions.runs(key)}
                planned.again = {**running, rerun.execution: plan_id}
            return planned.again[rerun.execution]

    def _reads_again(self, rerun: Rerun, planned_in: int | None, *, unclaimed: bool) -> bool:
        with self._lock:
            decided = self._again.get(rerun.execution)
        if decided is None:
            # An execution inside the one that planned is part of the same query.
            apart = rerun.outermost or planned_in is None or not self._executions.runs(planned_in)
            again = apart and not unclaimed and self._executions.reads_all_again(rerun.execution, rerun.stage)
            with self._lock:
                decided = self._again.setdefault(rerun.execution, again)
                if len(self._again) > MOST_EXECUTIONS:
                    self._again.popitem(last=False)
        return decided
