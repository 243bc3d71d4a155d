"""The tables of schedules, of their triggers, and of their jobs."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.identifiers import joined
from structable.datasets.records import Int, Json, Record, RecordTable


class ScheduleStatus(enum.StrEnum):
    """Whether a schedule starts runs."""

    SUSPENDED = "SUSPENDED"
    SCHEDULED = "SCHEDULED"


class ScheduleJobState(enum.StrEnum):
    """The step for which the job of a schedule waits."""

    PENDING_TRIGGER = "PENDING_TRIGGER"
    PENDING_CONSTRAINT = "PENDING_CONSTRAINT"
    PENDING_LAUNCH = "PENDING_LAUNCH"


class Schedule(Record):
    """A schedule of an application's program; `generation` counts its definitions from 1."""

    namespace: str
    application: str
    schedule: str
    definition: Annotated[object, Json] | None = None
    status: ScheduleStatus
    generation: int
    updated: dt.datetime

    @property
    def text(self) -> str:
        """The key as one text, `namespace/application/schedule`; a slash in a name is `%2F`, a percent sign `%25`."""
        return joined(self.namespace, self.application, self.schedule)


class ScheduleTrigger(Record):
    """A trigger of a schedule, by which `by_trigger` finds it."""

    namespace: str
    application: str
    schedule: str
    sequence: Annotated[int, Int]
    trigger: str


class ScheduleJobRow(Record):
    """A part of a schedule's job: the job itself, or a mark on it, which is a row of its own."""

    partition: Annotated[int, Int]
    schedule: str
    generation: Annotated[int, Int]
    part: str
    state: ScheduleJobState | None = None
    notifications: Annotated[object, Json] | None = None
    schedule_generation: int | None = None
    created: dt.datetime | None = None
    at: dt.datetime | None = None


_SCHEDULE = ("namespace", "application", "schedule")
SCHEDULES = RecordTable(Schedule, "schedules", key=_SCHEDULE)
SCHEDULE_TRIGGERS = RecordTable(
    ScheduleTrigger, "schedule_triggers", key=(*_SCHEDULE, "sequence"), indexes=("trigger",)
)
SCHEDULE_JOBS = RecordTable(ScheduleJobRow, "schedule_jobs", key=("partition", "schedule", "generation", "part"))

TABLES = (SCHEDULES, SCHEDULE_TRIGGERS, SCHEDULE_JOBS)
