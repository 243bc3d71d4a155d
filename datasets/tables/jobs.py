"""The tables of job queues: the jobs, the beats of their workers, and the unique keys of open jobs."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.records import Int, Json, Record, RecordTable


class JobState(enum.IntEnum):
    """The state of a job; DONE, DEAD and CANCELLED are final."""

    READY = 0
    RUNNING = 1
    DONE = 2
    DEAD = 3
    CANCELLED = 4


class Job(Record):
    """A job of a queue. The job that a claim returned is the handle by which its worker completes or fails it.

    Parameters
    ----------
    queue, state, lane, priority, due, job
        The key. The state belongs to it, so that the ready jobs of a queue stand together, in their order; lanes spread
        the claims of several workers. `job` is the id.
    id : str
        The id, a UUIDv7.
    kind : str
        Chooses the worker's handler.
    args : object
        A document for the handler.
    attempt, max_attempts : int
        The number of the current or the last attempt, from 1, and their maximum.
    timeout : int
        Seconds without a beat of the worker, after which the job may be rescued.
    claims : int
        The number of all claims. It only grows, so that a former worker's handle is never accepted.
    worker : str or None
        The worker that has the job, or had it last.
    until : datetime or None
        The end of the timeout, counted from the claim by the worker's clock.
    unique_key : str or None
        Of the open jobs of a queue, only one has this key.
    error : str or None
        The last error.
    result : object
        The handler's result.
    created, finished : datetime
        The times of `enqueue` and of the end.
    """

    queue: str
    state: Annotated[JobState, Int]
    lane: Annotated[int, Int]
    priority: Annotated[int, Int]
    due: dt.datetime
    job: str
    id: str
    kind: str = ""
    args: Annotated[object, Json] | None = None
    attempt: Annotated[int, Int] = 0
    max_attempts: Annotated[int, Int]
    timeout: Annotated[int, Int]
    claims: int = 0
    worker: str | None = None
    until: dt.datetime | None = None
    unique_key: str | None = None
    error: str | None = None
    result: Annotated[object, Json] | None = None
    created: dt.datetime
    finished: dt.datetime | None = None


class JobBeat(Record):
    """The number of beats of a job's workers: a row of its own, which completing the job does not write."""

    job: str
    beat: int


class JobKey(Record):
    """The open job of a unique key."""

    queue: str
    unique_key: str
    id: str


JOB_KEY = ("queue", "state", "lane", "priority", "due", "job")
JOBS = RecordTable(Job, "jobs", key=JOB_KEY, indexes=("id", "finished"))
JOB_BEATS = RecordTable(JobBeat, "job_beats", key=("job",))
JOB_KEYS = RecordTable(JobKey, "job_keys", key=("queue", "unique_key"))

TABLES = (JOBS, JOB_BEATS, JOB_KEYS)
