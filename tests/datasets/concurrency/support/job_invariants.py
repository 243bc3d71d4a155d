"""Invariants of jobs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from structable.datasets import JobState
from structable.datasets.tables.jobs import JOB_KEYS, JOBS

from .rows import Rows


def each_job_is_in_one_state(rows: Rows) -> list[str]:
    stored = Counter(job.id for job in rows.of(JOBS))
    enqueued = set(rows.noted("enqueued"))
    problems = [f"job {job} has {count} rows" for job, count in stored.items() if count > 1]
    return problems + [f"job {job} is lost, or nobody's" for job in enqueued ^ stored.keys()]


def work_is_done_exactly_once(rows: Rows) -> list[str]:
    """Check that the work of each job that is DONE was done once, by its last claim, and that of no other job."""
    worked = {job: [fact["claims"] for fact in facts] for job, facts in rows.noted("worked").items()}
    done = {job.id: [job.claims] for job in rows.of(JOBS) if job.state is JobState.DONE}
    return [
        f"job {job} was done by the claims {worked.get(job)}"
        for job in done | worked
        if worked.get(job) != done.get(job)
    ]


def a_unique_key_has_one_open_job(rows: Rows) -> list[str]:
    is_open = [job for job in rows.of(JOBS) if job.state in (JobState.READY, JobState.RUNNING)]
    owners = sorted((job.queue, job.unique_key, job.id) for job in is_open if job.unique_key is not None)
    kept = sorted((key.queue, key.unique_key, key.id) for key in rows.of(JOB_KEYS))
    return [] if owners == kept else [f"open jobs with keys are {owners}, the keys {kept}"]


INVARIANTS: Final = (each_job_is_in_one_state, work_is_done_exactly_once, a_unique_key_has_one_open_job)
