"""Jobs of schedules: at most one waits for triggers, others for constraints or their launch."""

from __future__ import annotations

import datetime as dt
import zlib

import msgspec

from structable.datasets.errors import IllegalTransitionError, NotFoundError
from structable.datasets.records import Records
from structable.datasets.tables.schedules import (
    SCHEDULE_JOBS,
    SCHEDULES,
    Schedule,
    ScheduleJobRow,
    ScheduleJobState,
    ScheduleStatus,
)
from structable.spi import Range

from .context import Dataset

PARTITIONS = 16
_JOB, _DELETE, _OBSOLETE = "JOB", "DELETE", "OBSOLETE"
_NEXT = {
    ScheduleJobState.PENDING_TRIGGER: ScheduleJobState.PENDING_CONSTRAINT,
    ScheduleJobState.PENDING_CONSTRAINT: ScheduleJobState.PENDING_LAUNCH,
}


class ScheduleJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a schedule, with its marks.

    Parameters
    ----------
    partition, schedule, generation
        The key: the partition, the key text of the schedule, and the number of the job.
    state : ScheduleJobState
        The step that it waits for.
    notifications : list
        The events that fired it, in order of arrival.
    schedule_generation : int
        The generation of the schedule when the job was made.
    created, at : datetime
        The times at which the job was made, and last notified or advanced.
    deleted, obsolete : bool
        Its marks: the schedule was deleted; another job took its place.
    """

    partition: int
    schedule: str
    generation: int
    state: ScheduleJobState
    notifications: list[object]
    schedule_generation: int
    created: dt.datetime
    at: dt.datetime
    deleted: bool = False
    obsolete: bool = False


class ScheduleJobs(Dataset):
    """The dataset `schedule_jobs`. Marks are rows of their own, so that marking never conflicts with notifying."""

    def notify(
        self,
        schedule: Schedule,
        notification: object,
        at: dt.datetime | None = None,
        *,
        timeout: dt.timedelta | None = None,
    ) -> ScheduleJob | None:
        """Add a notification to the schedule's job that waits for triggers, or begin the next; return the job.

        Nothing happens, and the result is None, unless the schedule exists and is SCHEDULED now. A waiting job that is
        marked, was made for an older generation of the schedule, or waits for longer than `timeout`, is marked
        obsolete, and the job of the next generation begins.
        """
        stored = self._context.records(SCHEDULES).get(schedule.namespace, schedule.application, schedule.schedule)
        if stored is None or stored.status is not ScheduleStatus.SCHEDULED:
            return None
        schedule = stored
        # The removal of the application or the namespace excludes these fences.
        self._context.share(f"app/{schedule.namespace}/{schedule.application}")
        now = self._context.now(at)
        last, replaced = self._last(schedule.text), False
        if last is not None and last.state is ScheduleJobState.PENDING_TRIGGER:
            late = timeout is not None and now - last.created > timeout
            marked = last.deleted or last.obsolete
            if not marked and not late and last.schedule_generation == schedule.generation:
                joined = [*last.notifications, notification]
                self._rows.change(_key(last), notifications=joined, at=now)
                return msgspec.structs.replace(last, notifications=joined, at=now)
            replaced = True
        made = ScheduleJob(
            partition=_partition(schedule.text),
            schedule=schedule.text,
            generation=self._next_generation(schedule.text),
            state=ScheduleJobState.PENDING_TRIGGER,
            notifications=[notification],
            schedule_generation=schedule.generation,
            created=now,
            at=now,
        )
        self._rows.insert(
            ScheduleJobRow(
                partition=made.partition,
                schedule=made.schedule,
                generation=made.generation,
                part=_JOB,
                state=made.state,
                notifications=made.notifications,
                schedule_generation=made.schedule_generation,
                created=now,
                at=now,
            )
        )
        if last is not None and replaced:
            self._mark(last, _OBSOLETE)
        return made

    def advance(self, job: ScheduleJob, state: ScheduleJobState, *, at: dt.datetime | None = None) -> ScheduleJob:
        """Advance a job: PENDING_TRIGGER, PENDING_CONSTRAINT, PENDING_LAUNCH; return it with all notifications so far.

        Raises
        ------
        NotFoundError
            If the job was deleted.
        IllegalTransitionError
            If the state does not follow the stored one.
        """
        state = ScheduleJobState(state)
        now = self._context.now(at)
        stored = self._rows.get(*_key(job))
        # The number of a deleted job is used again.
        if stored is None or stored.created != job.created:
            raise NotFoundError(self._rows.table.specification.name, _key(job))
        before = stored.state or ScheduleJobState.PENDING_TRIGGER
        if _NEXT.get(before) is not state:
            raise IllegalTransitionError(before, state)
        self._rows.change(_key(job), state=state, at=now)
        return msgspec.structs.replace(
            _job(stored, set()), state=state, at=now, deleted=job.deleted, obsolete=job.obsolete
        )

    def mark_deleted(self, schedule: Schedule) -> int:
        """Mark every job of a schedule as deleted, so that their processor drops them; return their number."""
        jobs = self._of(schedule.text)
        for job in jobs:
            self._mark(job, _DELETE)
        return len(jobs)

    def jobs(self, partition: int, after: ScheduleJob | None = None, *, limit: int | None = None) -> list[ScheduleJob]:
        """Return the jobs of a partition, in key order, from behind `after` on.

        Raises
        ------
        ValueError
            If the partition is not 0 to 15, or the limit negative.
        """
        if not 0 <= partition < PARTITIONS:
            raise ValueError(f"partition {partition!r}: it must be 0 to {PARTITIONS - 1}")
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit!r}; it must be at least 0")
        begin = (partition,) if after is None else (partition, after.schedule, after.generation)
        within = Range(begin, (partition,), begin_inclusive=after is None, end_inclusive=True)
        return self._scan(within)[:limit]

    def delete(self, job: ScheduleJob) -> None:
        """Delete a job with its marks."""
        self._rows.delete_all(Range.prefix((job.partition, job.schedule, job.generation)))

    @property
    def _rows(self) -> Records[ScheduleJobRow]:
        return self._context.records(SCHEDULE_JOBS)

    def _of(self, schedule: str) -> list[ScheduleJob]:
        return self._scan(Range.prefix((_partition(schedule), schedule)))

    def _last(self, schedule: str) -> ScheduleJob | None:
        jobs = self._of(schedule)
        return jobs[-1] if jobs else None

    def _next_generation(self, schedule: str) -> int:
        """Return the number after all rows: a mark never conflicts with the deletion of its job, and may outlive it."""
        with self._rows.scan(Range.prefix((_partition(schedule), schedule)), reverse=True, limit=1) as found:
            return next((row.generation + 1 for row in found), 0)

    def _mark(self, job: ScheduleJob, mark: str) -> None:
        self._rows.put(
            ScheduleJobRow(partition=job.partition, schedule=job.schedule, generation=job.generation, part=mark)
        )

    def _scan(self, within: Range) -> list[ScheduleJob]:
        """Return the jobs of a range, each made of its rows, which stand together."""
        marks: set[tuple[str, int, str]] = set()
        rows: list[ScheduleJobRow] = []
        with self._rows.scan(within) as found:
            for row in found:
                if row.part == _JOB:
                    rows.append(row)
                else:
                    marks.add((row.schedule, row.generation, row.part))
        return [_job(row, marks) for row in rows]


def _job(row: ScheduleJobRow, marks: set[tuple[str, int, str]]) -> ScheduleJob:
    assert row.state is not None
    assert row.schedule_generation is not None
    assert row.created is not None
    assert row.at is not None
    return ScheduleJob(
        partition=row.partition,
        schedule=row.schedule,
        generation=row.generation,
        state=row.state,
        notifications=list(row.notifications) if isinstance(row.notifications, list) else [],
        schedule_generation=row.schedule_generation,
        created=row.created,
        at=row.at,
        deleted=(row.schedule, row.generation, _DELETE) in marks,
        obsolete=(row.schedule, row.generation, _OBSOLETE) in marks,
    )


def _partition(schedule: str) -> int:
    return zlib.crc32(schedule.encode()) % PARTITIONS


def _key(job: ScheduleJob) -> tuple[int, str, int, str]:
    return (job.partition, job.schedule, job.generation, _JOB)
