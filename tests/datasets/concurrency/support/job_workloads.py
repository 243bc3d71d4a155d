"""A workload on one queue: its workers complete, fail, snooze and abandon jobs, and rescue those of one another.

The monotonic clock is that of the leases' workload, a thousand times as fast, so that timeouts pass.
"""

from __future__ import annotations

import datetime as dt
import random

from structable.datasets import Job, JobState, LeaseLostError, NotFoundError, Session, SystemData

from .application_workloads import new_tag
from .ledger import note

_QUEUE = "q"
_KEYS = (None, "a", "b")


def enqueue(system: SystemData, chance: random.Random) -> None:
    key, priority, attempts = chance.choice(_KEYS), chance.randrange(4), chance.choice((1, 20))

    def add(s: Session) -> None:
        for _ in range(2):
            done = s.jobs.enqueue(_QUEUE, {"n": 1}, priority=priority, unique_key=key, max_attempts=attempts, timeout=1)
            note(s.tx, "enqueued" if done.created else "found", done.id)

    system.run(add)


def complete(s: Session, job: Job) -> None:
    """Do the job's work, which is to be done exactly once, and complete it."""
    note(s.tx, "worked", job.id, claims=job.claims)
    s.jobs.complete(job, {"claims": job.claims})


def claim(system: SystemData, chance: random.Random) -> None:
    """Claim jobs, and do with each what workers do; some are kept until others have rescued them."""
    jobs = system.queue(_QUEUE).claim(new_tag(), chance.randrange(1, 4))
    for job in jobs:
        match chance.randrange(8):
            case 0:
                system.run(lambda s, job=job: s.jobs.fail(job, "broken"))  # type: ignore[misc] # mypy cannot infer it
            case 1:
                system.run(lambda s, job=job: s.jobs.snooze(job, 0))  # type: ignore[misc] # as above
            case 2:
                system.run(lambda s, job=job: s.jobs.extend(job))  # type: ignore[misc] # as above
            case 3:
                rescue(system, chance)
                system.run(lambda s, job=job: complete(s, job))  # type: ignore[misc] # as above
            case _:
                system.run(lambda s, job=job: complete(s, job))  # type: ignore[misc] # as above
    if not jobs:
        raise LeaseLostError(_QUEUE)


def rescue(system: SystemData, chance: random.Random) -> None:
    """Look twice, so that the second look finds beats that stood still."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    for _ in range(2):
        system.run(lambda s: s.jobs.rescue(later))


def cancel_or_retry(system: SystemData, chance: random.Random) -> None:
    state = chance.choice((JobState.READY, JobState.RUNNING, JobState.DEAD, JobState.DONE))
    page = system.run(lambda s: s.jobs.page(_QUEUE, state))
    if not page.items:
        raise NotFoundError(_QUEUE, (state.name,))
    job = chance.choice(page.items)
    if state is JobState.DEAD:
        system.run(lambda s: s.jobs.retry(job.id))
    else:
        system.run(lambda s: s.jobs.cancel(job.id))


JOBS = (*(enqueue,) * 2, *(claim,) * 4, rescue, cancel_or_retry)


def finish(system: SystemData, chance: random.Random) -> None:
    """Rescue and complete jobs until none is open."""
    while True:
        counts = system.run(lambda s: s.jobs.counts(_QUEUE))
        if not counts[JobState.READY] + counts[JobState.RUNNING]:
            return
        rescue(system, chance)
        for job in system.queue(_QUEUE).claim("finish", 100):
            system.run(lambda s, job=job: complete(s, job))  # type: ignore[misc] # as above
