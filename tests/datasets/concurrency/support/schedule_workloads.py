"""Workloads on schedules and on the jobs that wait for them."""

from __future__ import annotations

import datetime as dt
import random

from structable.datasets import (
    ProgramRef,
    Schedule,
    ScheduleJob,
    ScheduleJobState,
    ScheduleStatus,
    Session,
    SystemData,
    program_trigger,
)

from .application_workloads import ensure_application, new_tag
from .ledger import entries, note

NS = "default"
APPLICATION = "scheduled"
_NAMES = ("s0", "s1", "s2")


def dropped_trigger(number: int) -> str:
    """Return the trigger of a program that the workload drops."""
    return program_trigger(_program(number))


def _program(number: int) -> ProgramRef:
    return ProgramRef(NS, APPLICATION, "service", f"p{number}")


def _live_programs(s: Session) -> list[int]:
    """Return the first three programs that were not dropped."""
    dropped = {int(one.subject) for one in entries(s.tx, "dropped")}
    return [number for number in range(len(dropped) + 3) if number not in dropped][:3]


def _note_change(s: Session, schedule: Schedule) -> None:
    assert isinstance(schedule.definition, dict)
    note(s.tx, "schedule changed", schedule.definition["tag"], number=schedule.generation)


def add_schedule(system: SystemData, chance: random.Random) -> None:
    schedule, which, any_of = chance.choice(_NAMES), chance.randrange(3), chance.random() < 0.5

    def add(s: Session) -> None:
        ensure_application(s, APPLICATION)
        definition = {"tag": new_tag()} | ({"triggers": "or"} if any_of else {})
        triggers = ["cron", dropped_trigger(_live_programs(s)[which])]
        s.schedules.add(NS, APPLICATION, schedule, definition, triggers=triggers)

    system.run(add)


def update_schedule(system: SystemData, chance: random.Random) -> None:
    schedule, count = chance.choice(_NAMES), chance.randrange(1, 4)

    def update(s: Session) -> None:
        found = s.schedules.get(NS, APPLICATION, schedule)
        if found is not None:
            triggers = ["cron", *map(dropped_trigger, _live_programs(s)[:count])]
            _note_change(s, s.schedules.update(NS, APPLICATION, schedule, found.definition, triggers=triggers))

    system.run(update)


def drop_program(system: SystemData, chance: random.Random) -> None:
    """Drop a program for good: no schedule gets its trigger any more."""
    which = chance.randrange(3)

    def drop(s: Session) -> None:
        number = _live_programs(s)[which]
        note(s.tx, "dropped", str(number))
        for before in s.schedules.drop_program(_program(number)):
            after = s.schedules.get(NS, APPLICATION, before.schedule)
            if after is not None:
                _note_change(s, after)

    system.run(drop)


def set_status(system: SystemData, chance: random.Random) -> None:
    schedule, status = chance.choice(_NAMES), chance.choice(list(ScheduleStatus))
    system.run(lambda s: s.schedules.set_status(NS, APPLICATION, schedule, status))


def delete_schedule(system: SystemData, chance: random.Random) -> None:
    schedule = chance.choice(_NAMES)
    system.run(lambda s: s.schedules.delete(NS, APPLICATION, schedule))


def delete_schedules(system: SystemData, chance: random.Random) -> None:
    system.run(lambda s: s.schedules.delete_of(NS, APPLICATION))


SCHEDULES = (
    *(add_schedule,) * 5,
    *(update_schedule,) * 4,
    *(drop_program,) * 2,
    set_status,
    delete_schedule,
    delete_schedules,
)


# Jobs

_WITH_JOBS = "jobs"
_SCHEDULES_WITH_JOBS = ("j0", "j1")


def _ensure_schedule(s: Session, name: str) -> Schedule:
    found = s.schedules.get(NS, _WITH_JOBS, name)
    if found is None:
        ensure_application(s, _WITH_JOBS)
        s.schedules.add(NS, _WITH_JOBS, name, {"tag": new_tag()}, triggers=["cron"])
        s.schedules.set_status(NS, _WITH_JOBS, name, ScheduleStatus.SCHEDULED)
        found = s.schedules.get(NS, _WITH_JOBS, name)
        assert found is not None
    return found


def notify(system: SystemData, chance: random.Random) -> None:
    name, notification = chance.choice(_SCHEDULES_WITH_JOBS), new_tag()
    timeout = chance.choice([None, None, None, dt.timedelta(0)])

    def add(s: Session) -> None:
        schedule = _ensure_schedule(s, name)
        if s.schedule_jobs.notify(schedule, notification, timeout=timeout) is not None:
            note(s.tx, "notified", schedule.text, notification=notification)

    system.run(add)


def _one_job(s: Session, name: str, number: int) -> ScheduleJob | None:
    text = _ensure_schedule(s, name).text
    jobs = [job for partition in range(16) for job in s.schedule_jobs.jobs(partition) if job.schedule == text]
    return jobs[number % len(jobs)] if jobs else None


def advance(system: SystemData, chance: random.Random) -> None:
    name, number = chance.choice(_SCHEDULES_WITH_JOBS), chance.randrange(100)
    state = chance.choice([ScheduleJobState.PENDING_CONSTRAINT, ScheduleJobState.PENDING_LAUNCH])

    def move(s: Session) -> None:
        job = _one_job(s, name, number)
        if job is not None:
            s.schedule_jobs.advance(job, state)

    system.run(move)


def mark_deleted(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(_SCHEDULES_WITH_JOBS)
    system.run(lambda s: s.schedule_jobs.mark_deleted(_ensure_schedule(s, name)))


def consume(system: SystemData, chance: random.Random) -> None:
    name, number = chance.choice(_SCHEDULES_WITH_JOBS), chance.randrange(100)

    def delete(s: Session) -> None:
        job = _one_job(s, name, number)
        if job is not None:
            s.schedule_jobs.delete(job)
            note(s.tx, "consumed", job.schedule, notifications=job.notifications)

    system.run(delete)


def redefine(system: SystemData, chance: random.Random) -> None:
    name = chance.choice(_SCHEDULES_WITH_JOBS)

    def update(s: Session) -> None:
        definition = _ensure_schedule(s, name).definition
        _note_change(s, s.schedules.update(NS, _WITH_JOBS, name, definition, triggers=["cron"]))

    system.run(update)


SCHEDULE_JOBS = (*(notify,) * 6, *(advance,) * 2, mark_deleted, consume, consume, redefine)
