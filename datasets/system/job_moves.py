"""Changes of the state of jobs: the state belongs to the key, so a job moves from one row to another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from structable.datasets.coordination.polling import LONGEST
from structable.datasets.errors import LeaseLostError
from structable.datasets.tables.jobs import JOB_KEYS, JOBS, Job, JobState
from structable.spi import Value

from .context import Context

__all__ = [
    "MOST_ERROR",
    "ended",
    "error_text",
    "expect_held",
    "held",
    "job_key",
    "move",
    "move_all",
    "queue_channel",
    "run_body",
    "signal_due",
    "signal_late",
]

Result = TypeVar("Result")

MOST_ERROR = 10_000
_LOOK = dt.timedelta(seconds=LONGEST)
"""The longest time between two looks of an idle worker."""
_MOST_OF_QUEUE = 100
"""The maximum number of characters of a queue's name in its channel; queues with the same first 100 share a channel."""


def queue_channel(prefix: str, queue: str) -> str:
    """Return the channel that is signalled when jobs of a queue are due, or soon; `prefix` is the datasets' prefix."""
    return f"{prefix}jobs/{queue[:_MOST_OF_QUEUE]}"


def signal_due(context: Context, jobs: Iterable[Job]) -> None:
    """Signal the queues of jobs that are due before an idle worker would look by itself, now or at `signal_late`."""
    ready = [job for job in jobs if job.state is JobState.READY]
    if not ready:
        return
    soon = context.now() + _LOOK
    for job in ready:
        if job.due <= soon:
            context.tx.signal(queue_channel(context.prefix, job.queue))
        else:
            context.delayed[job.queue] = min(job.due, context.delayed.get(job.queue, job.due))


def signal_late(context: Context) -> None:
    """Signal the queues of delayed jobs that became due, or nearly so, while the transaction was open; at its end."""
    if context.delayed and not context.tx.closed:
        soon = context.now() + _LOOK
        for queue, due in context.delayed.items():
            if due <= soon:
                context.tx.signal(queue_channel(context.prefix, queue))


def run_body(context: Context, body: Callable[[Context], Result]) -> Result:
    """Run the body of a transaction, which ends then."""
    result = body(context)
    signal_late(context)
    return result


def job_key(job: Job) -> tuple[Value, ...]:
    """Return the key of a job's row."""
    # A plain number: the stores encode it faster than a member.
    return (job.queue, int(job.state), job.lane, job.priority, job.due, job.job)


def held(context: Context, job: Job) -> Job:
    """Return the stored job, after checking that its worker still has it.

    Raises
    ------
    LeaseLostError
        If the job has ended, or was rescued, cancelled or claimed again.
    """
    stored = context.records(JOBS).get(*job_key(job)) if job.state is JobState.RUNNING else None
    if stored is None or stored.claims != job.claims:
        raise LeaseLostError(job.id)
    return stored


def expect_held(context: Context, job: Job) -> None:
    """Check, at the latest at the commit, that the job's worker still has it.

    Raises
    ------
    LeaseLostError
        As `held` does.
    """
    lost = LeaseLostError(job.id)
    if job.state is not JobState.RUNNING:
        raise lost
    context.records(JOBS).table._expect(job_key(job), "claims", job.claims, lost)


def move(context: Context, before: Job, **changes: object) -> Job:
    """Change a job, its state included, and return it."""
    after: Job = msgspec.structs.replace(before, **changes)
    move_all(context, [(before, after)])
    return after


def move_all(context: Context, moves: Iterable[tuple[Job, Job]]) -> None:
    """Write the new rows of changed jobs and delete the old ones. A rejected row raises before any write."""
    pairs = list(moves)
    rows = context.records(JOBS)
    left = [job_key(before) for before, after in pairs if job_key(before) != job_key(after)]
    if len(pairs) == 1:  # over a server, 0.87 of the time of lists of one
        rows.table.upsert(context.row(JOBS, pairs[0][1]))  # it names all fields, as `put` does
        for key in left:
            rows.table.delete(key)
    else:
        rows.put_many([after for _, after in pairs])
        rows.table.delete_many(left)
    signal_due(context, [after for _, after in pairs])


def ended(context: Context, before: Job, state: JobState, at: dt.datetime, **changes: object) -> Job:
    """End a job, whose unique key becomes free."""
    after = move(context, before, state=state, finished=at, **changes)
    if before.unique_key is not None:
        context.records(JOB_KEYS).delete(before.queue, before.unique_key)
    return after


def error_text(error: BaseException | str) -> str:
    """Return an error as a text that every store accepts: no NUL, no lone surrogate, at most 10,000 characters."""
    if isinstance(error, BaseException):
        try:
            text = str(error)
        except Exception as broken:  # a user's broken error class must not prevent the failure from being recorded
            text = f"its text raises {type(broken).__name__}"
        error = f"{type(error).__name__}: {text}"
    return error[:MOST_ERROR].encode(errors="backslashreplace").decode().replace("\0", "\\0")[:MOST_ERROR]
