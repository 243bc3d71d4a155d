"""Jobs: work that is queued, claimed, completed and retried in transactions."""

from __future__ import annotations

import datetime as dt
import random
import zlib
from typing import NamedTuple

from structable.datasets.errors import AlreadyExistsError, IllegalTransitionError, NotFoundError
from structable.datasets.identifiers import check_name, new_run_id
from structable.datasets.records import Page, Records
from structable.datasets.tables.jobs import JOB_BEATS, JOB_KEYS, JOBS, Job, JobBeat, JobKey, JobState
from structable.spi import Range, col

from .context import Dataset
from .job_moves import MOST_ERROR, ended, error_text, held, move, signal_due

LANES = 8
PRIORITIES = 4
_KEPT = dt.timedelta(days=1)
_CHUNK = 1_000
_ROOM = 4 * MOST_ERROR + 1_000
"""Bytes reserved in a row for the error and worker that later calls write, at most 4 bytes a character."""
_JITTER = 0.1
_MOST = 2**31 - 1
_LONGEST_DELAY = 2**31
"""The longest delay, in seconds: the fourth power of many attempts would pass the end of the calendar."""


class Enqueued(NamedTuple):
    """The result of `enqueue`.

    Parameters
    ----------
    id : str
        The job's id.
    created : bool
        True if it was made now; False if an open job with the same unique key existed.
    """

    id: str
    created: bool


class Jobs(Dataset):
    """The dataset `jobs`, in the transaction of a session; `system.queue(name)` claims jobs.

    `complete`, `fail`, `snooze` and `extend` take a job as a claim returned it, and raise `LeaseLostError` if its
    worker does not have it any more: it has ended, was rescued, cancelled or claimed again.
    """

    def enqueue(
        self,
        queue: str,
        args: object,
        *,
        kind: str = "",
        due: dt.datetime | None = None,
        priority: int = 2,
        unique_key: str | None = None,
        max_attempts: int = 20,
        timeout: int = 300,
    ) -> Enqueued:
        """Add a job to a queue; it exists if and only if the transaction commits.

        Parameters
        ----------
        args : object
            A document for the handler.
        kind : str
            Chooses the worker's handler.
        due : aware datetime, optional
            The earliest time of a claim, by the worker's clock; now, if not given.
        priority : int
            0 to 3; 0 is claimed first.
        unique_key : str, optional
            If the queue has an open job of this key, READY or RUNNING, that one is returned and none is made. The
            handler that completes this job has then read everything committed together with such a call.
        max_attempts : int
            The number of claims after which a failure makes the job DEAD.
        timeout : int
            Seconds without a beat of its worker, after which the job may be rescued.

        Raises
        ------
        ValueError
            If an argument is out of its range.
        DocumentError
            If the arguments are not a JSON document.
        FieldSizeLimitError
            If the row would have more than 8 MiB, with 41,000 bytes of room for an error and a worker.
        """
        check_name(queue, "queue")
        if kind:
            check_name(kind, "kind")
        _check_number("priority", priority, 0, PRIORITIES - 1)
        _check_number("max_attempts", max_attempts, 1, _MOST)
        _check_number("timeout", timeout, 1, _MOST)
        now = self._context.now()
        job_id = new_run_id(now)
        made = Job(
            queue=queue,
            state=JobState.READY,
            lane=zlib.crc32(job_id.encode()) % LANES,
            priority=priority,
            due=now if due is None else self._context.now(due),
            job=job_id,
            id=job_id,
            kind=kind,
            args=args,
            max_attempts=max_attempts,
            timeout=timeout,
            unique_key=None if unique_key is None else check_name(unique_key, "unique_key"),
            created=now,
        )
        row = self._context.row_with_room(JOBS, made, _ROOM)
        found = None if unique_key is None else self._context.records(JOB_KEYS).get(queue, unique_key)
        if found is None:
            self._jobs.table.upsert(row)  # its key is new: the table's fields need not be known, as for `put`
            signal_due(self._context, [made])
        if unique_key is not None:
            # Written even where it exists, so that a completion that commits first conflicts with this transaction.
            key = found or JobKey(queue=queue, unique_key=unique_key, id=job_id)
            self._context.records(JOB_KEYS).put(key)
        return Enqueued(job_id, True) if found is None else Enqueued(found.id, False)

    def complete(self, job: Job, result: object = None) -> None:
        """End a job as DONE, together with its handler's writes in the transaction: exactly once.

        Raises
        ------
        LeaseLostError
            If the worker does not have it any more.
        DocumentError
            If the result is not a JSON document.
        """
        ended(self._context, held(self._context, job), JobState.DONE, self._context.now(), result=result)

    def fail(self, job: Job, error: BaseException | str) -> None:
        """Make a job READY again after `attempt**4` seconds and up to a tenth more; after its last attempt, DEAD.

        Raises
        ------
        LeaseLostError
            If the worker does not have it any more.
        """
        stored, now = held(self._context, job), self._context.now()
        if stored.attempt >= stored.max_attempts:
            ended(self._context, stored, JobState.DEAD, now, error=error_text(error))
            return
        seconds = min(stored.attempt**4 * (1 + random.uniform(0, _JITTER)), _LONGEST_DELAY)
        due = now + dt.timedelta(seconds=seconds)
        move(self._context, stored, state=JobState.READY, due=due, until=None, error=error_text(error))

    def snooze(self, job: Job, seconds: float) -> None:
        """Make a job READY again after some seconds; the attempt does not count.

        Raises
        ------
        LeaseLostError
            If the worker does not have it any more.
        ValueError
            If the seconds are not 0 to 2**31.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= _LONGEST_DELAY:
            raise ValueError(f"seconds is {seconds!r}; it must be a number of 0 to {_LONGEST_DELAY:,}")
        stored = held(self._context, job)
        due = self._context.now() + dt.timedelta(seconds=seconds)
        move(self._context, stored, state=JobState.READY, due=due, until=None, attempt=stored.attempt - 1)

    def extend(self, job: Job) -> None:
        """Show other processes that the worker is alive; never conflicts with the job's completion.

        Raises
        ------
        LeaseLostError
            If the worker does not have it any more.
        """
        held(self._context, job)
        beats = self._context.records(JOB_BEATS)
        found = beats.get(job.id)
        beats.put(JobBeat(job=job.id, beat=1 if found is None else found.beat + 1))

    def cancel(self, id: str) -> bool:
        """End an open job as CANCELLED; return False, and do nothing, if it has ended.

        The worker of a RUNNING one gets `LeaseLostError` from its next `extend` or `complete`.

        Raises
        ------
        NotFoundError
            If there is no such job.
        """
        stored = self._require(id)
        if stored.finished is not None:
            return False
        ended(self._context, stored, JobState.CANCELLED, self._context.now())
        return True

    def retry(self, id: str) -> None:
        """Make a DEAD job READY, due now, with all its attempts.

        Raises
        ------
        NotFoundError
            If there is no such job.
        IllegalTransitionError
            If it is not DEAD.
        AlreadyExistsError
            If its unique key has another open job.
        """
        stored = self._require(id)
        if stored.state is not JobState.DEAD:
            raise IllegalTransitionError(stored.state.name, JobState.READY.name)
        if stored.unique_key is not None:
            keys = self._context.records(JOB_KEYS)
            if keys.get(stored.queue, stored.unique_key) is not None:
                raise AlreadyExistsError(keys.table.specification.name, (stored.queue, stored.unique_key))
            keys.put(JobKey(queue=stored.queue, unique_key=stored.unique_key, id=id))
        now = self._context.now()
        move(self._context, stored, state=JobState.READY, due=now, attempt=0, until=None, finished=None)

    def rescue(self, at: dt.datetime | None = None) -> int:
        """Take jobs from workers that stopped, and remove ended jobs older than a day; call it until it returns 0.

        A job is taken if it is past `until` and this process has seen no new beat for the job's timeout: call it
        repeatedly. The job is due at once, or DEAD if that was its last attempt. A call takes and removes at
        most 1,000 jobs.

        Parameters
        ----------
        at : aware datetime, optional
            The time to compare `until` and the end of ended jobs with; now, if not given.

        Returns
        -------
        int
            The number of jobs that were taken.
        """
        at, now = self._context.now(at), self._context.now()
        watch = self._context.job_beats
        began = watch.monotonic()
        running = [job for queue in self.queues() for job in self._running(queue)]
        beats = {one.job: one for one in self._context.records(JOB_BEATS).get_many((job.id,) for job in running)}
        stopped = []
        for job in running:
            beat = beats[job.id].beat if job.id in beats else 0
            still = watch.expired((job.id,), job.claims, beat, job.timeout, began)
            if still and job.until is not None and job.until <= at:
                stopped.append(job)
        watch.keep([(job.id,) for job in running])
        for job in stopped[:_CHUNK]:
            # Written although unchanged, so that a beat that commits first conflicts with this transaction.
            self._context.records(JOB_BEATS).put(beats.get(job.id, JobBeat(job=job.id, beat=0)))
            error = f"the worker {job.worker!r} stopped"
            if job.attempt >= job.max_attempts:
                ended(self._context, job, JobState.DEAD, now, error=error)
            else:
                move(self._context, job, state=JobState.READY, due=now, until=None, error=error)
        self._remove_ended(at - _KEPT)
        return len(stopped[:_CHUNK])

    def get(self, id: str) -> Job | None:
        """Return the job, or None."""
        with self._jobs.find("id", id, limit=1) as found:
            return next(iter(found), None)

    def page(self, queue: str, state: JobState, *, cursor: str | None = None, limit: int = 100) -> Page[Job]:
        """Return a page of the jobs of a queue in a state, by lane, then in the order of claims."""
        return self._jobs.page(Range.prefix((queue, JobState(state))), cursor=cursor, limit=limit)

    def counts(self, queue: str) -> dict[JobState, int]:
        """Return the number of the queue's jobs in each state."""
        return {state: self._jobs.count([Range.prefix((queue, state))]) for state in JobState}

    def queues(self) -> list[str]:
        """Return the names of the queues that have jobs, in order; each costs one read."""
        names: list[str] = []
        within = Range.all()
        while True:
            with self._jobs.table.scan(within, columns=["queue"], limit=1) as rows:
                row = next(iter(rows), None)
            if row is None:
                return names
            name = row["queue"]
            assert isinstance(name, str)
            names.append(name)
            within = Range.above((name,))

    @property
    def _jobs(self) -> Records[Job]:
        return self._context.records(JOBS)

    def _require(self, id: str) -> Job:
        found = self.get(id)
        if found is None:
            raise NotFoundError(self._jobs.table.specification.name, (id,))
        return found

    def _running(self, queue: str) -> list[Job]:
        with self._jobs.scan(Range.prefix((queue, JobState.RUNNING))) as found:
            return list(found)

    def _remove_ended(self, before: dt.datetime) -> None:
        table = self._jobs.table
        old = col("finished") < before
        with table.scan(where=old, columns=["id"], order_by="finished", limit=_CHUNK) as rows:
            keys = [row.key for row in rows]
        table.delete_many(keys)
        self._context.records(JOB_BEATS).table.delete_many([(key[-1],) for key in keys])


def _check_number(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be an integer of {least} to {most:,}")
