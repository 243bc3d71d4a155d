"""Changes of the state of jobs: the state belongs to the key, so a job moves from one row to another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from structable.datasets.coordination.polling import LONGEST
from structable.datasets.errors import LeaseLostError
from structable.datasets.tables.jobs import JOB_KEY, JOB_KEYS, JOBS, Job, JobState
from structable.spi import StructableError, Value
from structable.spi.authors import RowMove

from .context import Context

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
    """Signal, now or at `signal_late`, the queues of jobs that are due before an idle worker's next look."""
    soon: dt.datetime | None = None
    for job in jobs:
        if job.state is not JobState.READY:
            continue
        soon = soon or context.now() + _LOOK
        if context.delayed is None or job.due <= soon:
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


def move(context: Context, before: Job, **changes: object) -> Job:
    """Change a job, its state included, and return it."""
    after: Job = msgspec.structs.replace(before, **changes)
    move_all(context, [(before, after)], changes)
    return after


def move_all(
    context: Context,
    moves: Sequence[tuple[Job, Job]],
    changed: Iterable[str],
    expected: tuple[str, Value, StructableError] | None = None,
) -> None:
    """Replace the rows of jobs that differ in the fields `changed`. A rejected row raises before any write."""
    keys = [job_key(before) for before, _ in moves]
    rows = [context.row(JOBS, after) for _, after in moves]
    fields = tuple([name for name in changed if name not in JOB_KEY])
    context.records(JOBS).table._move(RowMove(keys, rows, fields, expected))
    context.moved_jobs.update([after.id for _, after in moves])
    signal_due(context, [after for _, after in moves])


def ended(context: Context, before: Job, state: JobState, at: dt.datetime, **changes: object) -> Job:
    """End a job, whose unique key becomes free."""
    after = move(context, before, state=state, finished=at, **changes)
    if before.unique_key is not None:
        context.records(JOB_KEYS).delete(before.queue, before.unique_key)
    return after


def complete_unread(context: Context, job: Job, result: object) -> None:
    """End a job without a unique key as DONE, by one write, which checks that its worker still has it.

    Raises
    ------
    LeaseLostError
        As `held` does.
    """
    lost = LeaseLostError(job.id)
    if job.state is not JobState.RUNNING:
        raise lost
    after = msgspec.structs.replace(job, state=JobState.DONE, finished=context.now(), result=result)
    move_all(context, [(job, after)], ("finished", "result"), ("claims", job.claims, lost))


def error_text(error: BaseException | str) -> str:
    """Return an error as a text that every store accepts: no NUL, no lone surrogate, at most 10,000 characters."""
    if isinstance(error, BaseException):
        try:
            text = str(error)
        except Exception as broken:  # a user's broken error class must not prevent the failure from being recorded
            text = f"its text raises {type(broken).__name__}"
        error = f"{type(error).__name__}: {text}"
    return error[:MOST_ERROR].encode(errors="backslashreplace").decode().replace("\0", "\\0")[:MOST_ERROR]
