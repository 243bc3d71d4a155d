"""`Queue`: adds jobs to one queue, claims and completes them, each call a transaction of its own."""

from __future__ import annotations

import datetime as dt
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import msgspec

from structable.datasets.identifiers import check_names
from structable.datasets.records.cursors import check_limit
from structable.datasets.tables.jobs import JOB_KEY, JOBS, Job, JobState
from structable.spi import Range

from .context import Context
from .job_moves import complete_unread, move_all
from .jobs import LANES, PRIORITIES, Enqueued, Jobs

if TYPE_CHECKING:
    from structable.spi import Value

Result = TypeVar("Result")


_CLAIMED = ("attempt", "claims", "worker", "until")
"""The fields besides the state that a claim changes."""
_SPREAD = 1.0
"""Seconds after a conflict in which each claim looks at one lane."""


class TransactionRunner(Protocol):
    """Runs a body in transactions until one commits."""

    def __call__(self, body: Callable[[Context], Result]) -> Result: ...


class Queue:
    """A queue: `system.queue(name)`. Safe to share between threads."""

    def __init__(self, run: TransactionRunner, run_at_once: TransactionRunner, name: str) -> None:
        check_names(queue=name)
        self.name = name
        self._run = run
        self._run_at_once = run_at_once
        self._spread_until = 0.0  # by the monotonic clock

    def enqueue(
        self,
        args: object,
        *,
        kind: str = "",
        due: dt.datetime | None = None,
        priority: int = 2,
        unique_key: str | None = None,
        max_attempts: int = 20,
        timeout: int = 300,
    ) -> Enqueued:
        """Add a job, as `Jobs.enqueue` does, in a transaction of its own: one round trip to a server.

        With a unique key, which it reads, it takes as long as in a session.

        Raises
        ------
        Exception
            As `Jobs.enqueue` does.
        """

        def add(context: Context) -> Enqueued:
            return Jobs(context).enqueue(
                self.name,
                args,
                kind=kind,
                due=due,
                priority=priority,
                unique_key=unique_key,
                max_attempts=max_attempts,
                timeout=timeout,
            )

        return (self._run_at_once if unique_key is None else self._run)(add)

    def complete(self, job: Job, result: object = None) -> None:
        """End a job as DONE, as `Jobs.complete` does, in a transaction of its own: one round trip to a server.

        A job with a unique key, which becomes free, takes as long as in a session.

        Raises
        ------
        LeaseLostError
            If the worker does not have it any more.
        DocumentError
            If the result is not a JSON document.
        """
        if job.unique_key is None:
            self._run_at_once(lambda context: complete_unread(context, job, result))
        else:
            self._run(lambda context: Jobs(context).complete(job, result))

    def claim(self, worker: str, limit: int) -> list[Job]:
        """Give the worker the first due jobs of the queue, at most `limit`, and return them RUNNING, in their order.

        Jobs are ordered by priority, then by the time at which they are due. The order is exact except for concurrent
        claims: for a second after a conflict, each claim of this object takes jobs of one random lane, unless that has
        none, so that claims rarely conflict.

        Parameters
        ----------
        worker : str
            The worker's name, which the job shows.
        limit : int
            1 to 1,000.

        Raises
        ------
        ValueError
            If an argument is out of its range.
        """
        check_names(worker=worker)
        check_limit(limit)
        again = False

        def take(context: Context) -> list[Job]:
            nonlocal again
            now, at = context.now(), context.job_beats.monotonic()
            if again:
                self._spread_until = at + _SPREAD
            again = True
            spread = at < self._spread_until
            found = _first(context, self.name, (random.randrange(LANES),), now, limit) if spread else []
            found = found or _first(context, self.name, range(LANES), now, limit)
            taken = [(job, _claimed(job, worker, now)) for job in found]
            if taken:
                move_all(context, taken, _CLAIMED)
            return [after for _, after in taken]

        return self._run(take)

    def until_due(self) -> float | None:
        """Return the seconds until the first READY job is due, below 0 if it was; None if the queue has none."""

        def read(context: Context) -> float | None:
            begins = [
                (self.name, JobState.READY.value, lane, priority)
                for lane in range(LANES)
                for priority in range(PRIORITIES)
            ]
            heads = _heads(context, map(Range.prefix, begins), 1)
            return min(((_order(key)[1] - context.now()).total_seconds() for key in heads), default=None)

        return self._run(read)


def _first(context: Context, queue: str, lanes: Sequence[int], now: dt.datetime, limit: int) -> list[Job]:
    """Return the first due jobs of the lanes: by priority, time and id."""
    starts = [(queue, JobState.READY.value, lane) for lane in lanes]
    ranges = [Range.prefix(start) for start in starts]
    # If all lanes are read, one of them rarely has more than half of the first jobs.
    half = (limit + 1) // 2 if len(lanes) == LANES else limit
    for most in dict.fromkeys((half, limit)):
        heads = _heads(context, ranges, most)
        keys = _due(heads, now, limit)
        if not _hide_one(heads, most, keys, limit):
            break
    else:
        # Due jobs may lie behind delayed ones of a higher priority; within each priority the due jobs come first.
        begins = [(*start, priority) for start in starts for priority in range(PRIORITIES)]
        keys = _due(_heads(context, [Range(begin, (*begin, now), True, True) for begin in begins], limit), now, limit)
    if not keys:
        return []
    rows = context.records(JOBS)
    return sorted(rows.get_many(keys), key=lambda job: (job.priority, job.due, job.job))


def _due(heads: Iterable[tuple[Value, ...]], now: dt.datetime, limit: int) -> list[tuple[Value, ...]]:
    """Return the first of the keys that are due, in their order."""
    return heapq.nsmallest(limit, (key for key in heads if _order(key)[1] <= now), key=_order)


def _hide_one(heads: Sequence[tuple[Value, ...]], most: int, keys: Sequence[tuple[Value, ...]], limit: int) -> bool:
    """Return whether one of the first due jobs, besides these keys, may lie behind the `most` heads of its lane."""
    last = {_lane(key): _order(key) for key in heads}
    full = [last[lane] for lane, number in Counter(map(_lane, heads)).items() if number == most]
    return bool(full) and (len(keys) < limit or min(full) < _order(keys[-1]))


def _heads(context: Context, ranges: Iterable[Range], limit: int) -> list[tuple[Value, ...]]:
    """Return only the first keys of each range: few of the jobs are claimed, and their arguments may be large."""
    table = context.records(JOBS).table
    with table.multi_scan(ranges, columns=JOB_KEY, limit_per_range=limit) as rows:
        return [row.key for row in rows]


def _lane(key: tuple[Value, ...]) -> Value:
    return key[2]


def _order(key: tuple[Value, ...]) -> tuple[int, dt.datetime, str]:
    return cast("tuple[int, dt.datetime, str]", key[3:])


def _claimed(job: Job, worker: str, now: dt.datetime) -> Job:
    return msgspec.structs.replace(
        job,
        state=JobState.RUNNING,
        worker=worker,
        until=now + dt.timedelta(seconds=job.timeout),
        attempt=job.attempt + 1,
        claims=job.claims + 1,
    )
