"""Jobs of schedules, notified, advanced, marked and deleted at random, beside a model of plain values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from structable.datasets import (
    AlreadyExistsError,
    IllegalTransitionError,
    NotFoundError,
    Schedule,
    ScheduleJob,
    ScheduleJobState,
    ScheduleStatus,
)
from structable.spi import Storage
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.session_machine import SessionMachine

NEXT = {"PENDING_TRIGGER": "PENDING_CONSTRAINT", "PENDING_CONSTRAINT": "PENDING_LAUNCH"}


def partition_of(text: str) -> int:
    return zlib.crc32(text.encode()) % 16


def names_of_one_partition(count: int) -> list[str]:
    """Return names of schedules whose jobs are in the partition of the first one."""
    wanted = partition_of("default/shop/0")
    return [str(number) for number in range(200) if partition_of(f"default/shop/{number}") == wanted][:count]


NAMES = [*names_of_one_partition(2), "elsewhere"]
JobKey = tuple[int, str, int]


@dataclasses.dataclass
class Model:
    """The status and generation of each schedule, and the fields of each job by partition, schedule and number."""

    schedules: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    jobs: dict[JobKey, dict[str, Any]] = dataclasses.field(default_factory=dict)


def key_of(job: ScheduleJob) -> JobKey:
    return job.partition, job.schedule, job.generation


def plain(job: ScheduleJob) -> dict[str, Any]:
    fields = msgspec.structs.asdict(job)
    for name in ("partition", "schedule", "generation"):
        del fields[name]
    return fields


class ScheduleJobsMachine(SessionMachine[Model]):
    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, Model())
        # Jobs as callers have read them, which may be changed or deleted since.
        self.read: dict[JobKey, ScheduleJob] = {}
        with self.session() as s:
            s.applications.deploy("default", "shop", "1", {})

    @initialize()
    def add_all(self) -> None:
        for name in NAMES:
            self.change_schedule(name, "add")

    # Schedules

    @rule(name=st.sampled_from(NAMES), action=st.sampled_from(("add", "update", "SUSPENDED", "SCHEDULED", "delete")))
    def change_schedule(self, name: str, action: str) -> None:
        match action:
            case "add":
                self._add(name)
                self._set_status(name, ScheduleStatus.SCHEDULED)
            case "update":
                self._update(name)
            case "delete":
                self._delete_schedule(name)
            case _:
                self._set_status(name, ScheduleStatus(action))

    def _add(self, name: str) -> None:
        with self.session() as s:
            if name in self.model.schedules:
                with pytest.raises(AlreadyExistsError):
                    s.schedules.add("default", "shop", name, {}, triggers=["t"])
                return
            s.schedules.add("default", "shop", name, {}, triggers=["t"])
        self.model.schedules[name] = "SUSPENDED", 1

    def _update(self, name: str) -> None:
        with self.session() as s:
            if name not in self.model.schedules:
                with pytest.raises(NotFoundError):
                    s.schedules.update("default", "shop", name, {"x": 1}, triggers=["u"])
                return
            s.schedules.update("default", "shop", name, {"x": 1}, triggers=["u"])
        status, generation = self.model.schedules[name]
        self.model.schedules[name] = status, generation + 1

    def _set_status(self, name: str, status: ScheduleStatus) -> None:
        with self.session() as s:
            if name not in self.model.schedules:
                with pytest.raises(NotFoundError):
                    s.schedules.set_status("default", "shop", name, status)
                return
            s.schedules.set_status("default", "shop", name, status)
        self.model.schedules[name] = status.value, self.model.schedules[name][1]

    def _delete_schedule(self, name: str) -> None:
        """Delete a schedule; as a service does, mark its jobs in the same transaction."""
        with self.session() as s:
            schedule = s.schedules.get("default", "shop", name)
            if schedule is None:
                assert name not in self.model.schedules
                return
            s.schedules.delete("default", "shop", name)
            self._mark_deleted(s.schedule_jobs.mark_deleted(schedule), schedule)
        del self.model.schedules[name]

    # Jobs

    @rule(
        names=st.permutations(NAMES),
        notifications=st.lists(st.sampled_from((1, "x", None, {"n": [1.5]})), min_size=1, max_size=2),
        timeout=st.none() | st.sampled_from((0, 1, 60)),
    )
    def notify(self, names: list[str], notifications: list[object], timeout: int | None) -> None:
        """Notify schedules, as they are stored."""
        for name, notification in itertools.product(names, notifications):
            with self.session() as s:
                schedule = s.schedules.get("default", "shop", name)
                if schedule is None:
                    assert name not in self.model.schedules
                    continue
                assert (schedule.status.value, schedule.generation) == self.model.schedules[name]
                limit = None if timeout is None else dt.timedelta(seconds=timeout)
                job = s.schedule_jobs.notify(schedule, notification, timeout=limit)
            self._notified(schedule, notification, limit, job)

    def _notified(
        self, schedule: Schedule, notification: object, timeout: dt.timedelta | None, job: ScheduleJob | None
    ) -> None:
        if schedule.status is not ScheduleStatus.SCHEDULED:
            assert job is None
            return
        now = self.clock.time
        own = self._of(schedule.text)
        waiting = [key for key in own if self.model.jobs[key]["state"] == "PENDING_TRIGGER"]
        open_ones = [
            key for key in waiting if not (self.model.jobs[key]["deleted"] or self.model.jobs[key]["obsolete"])
        ]
        assert len(open_ones) <= 1
        key = (partition_of(schedule.text), schedule.text, own[-1][2] + 1 if own else 0)
        after: dict[str, Any] = {
            "state": "PENDING_TRIGGER",
            "notifications": [notification],
            "schedule_generation": schedule.generation,
            "created": now,
            "at": now,
            "deleted": False,
            "obsolete": False,
        }
        for one in open_ones:
            fields = self.model.jobs[one]
            late = timeout is not None and now - fields["created"] > timeout
            if late or fields["schedule_generation"] < schedule.generation:
                fields["obsolete"] = True
            else:
                key = one
                after = {**fields, "notifications": [*fields["notifications"], notification], "at": now}
        # A waiting job that is marked as deleted gives way, too.
        if not open_ones and waiting and waiting[-1] == own[-1]:
            self.model.jobs[waiting[-1]]["obsolete"] = True
        self.model.jobs[key] = after
        assert job is not None
        assert (key_of(job), plain(job)) == (key, after)
        # Some are read when they are made, some when they are notified again.
        if key not in self.read or len(self.read) % 2:
            self.read[key] = job

    @precondition(lambda self: self.read)
    @rule(data=st.data(), state=st.sampled_from(ScheduleJobState), fresh=st.booleans())
    def advance(self, data: st.DataObject, state: ScheduleJobState, fresh: bool) -> None:
        job = self._any(data)
        fields = self.model.jobs.get(key_of(job))
        with self.session() as s:
            # A later job of a deleted one's number was made at another time.
            if fields is None or fields["created"] != job.created:
                with pytest.raises(NotFoundError):
                    s.schedule_jobs.advance(job, state)
                return
            if fresh:
                state = ScheduleJobState(NEXT.get(fields["state"], state))
            if NEXT.get(fields["state"]) != state.value:
                with pytest.raises(IllegalTransitionError) as error:
                    s.schedule_jobs.advance(job, state)
                assert (error.value.before, error.value.after) == (fields["state"], state.value)
                return
            after = s.schedule_jobs.advance(job, state)
        assert (key_of(after), after.state, after.at) == (key_of(job), state, self.clock.time)
        self.model.jobs[key_of(job)] = {**fields, "state": state.value, "at": self.clock.time}

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Delete a job; again, nothing happens."""
        job = self._any(data)
        with self.session() as s:
            s.schedule_jobs.delete(job)
        self.model.jobs.pop(key_of(job), None)

    @rule(name=st.sampled_from(NAMES))
    def mark_deleted(self, name: str) -> None:
        with self.session() as s:
            schedule = s.schedules.get("default", "shop", name)
            if schedule is not None:
                self._mark_deleted(s.schedule_jobs.mark_deleted(schedule), schedule)

    # What always holds

    @invariant()
    def jobs_are_those_of_the_model(self) -> None:
        with self.session() as s:
            for partition in range(16):
                expected = [(key, self.model.jobs[key]) for key in sorted(self.model.jobs) if key[0] == partition]
                found = s.schedule_jobs.jobs(partition)
                assert [(key_of(one), plain(one)) for one in found] == expected
                for place, job in enumerate(found):
                    assert s.schedule_jobs.jobs(partition, after=job) == found[place + 1 :]
                    assert s.schedule_jobs.jobs(partition, limit=place) == found[:place]

    @invariant()
    def at_most_one_job_of_a_schedule_waits_for_triggers(self) -> None:
        with self.session() as s:
            waiting = [
                job.schedule
                for partition in {partition_of(f"default/shop/{name}") for name in NAMES}
                for job in s.schedule_jobs.jobs(partition)
                if job.state is ScheduleJobState.PENDING_TRIGGER and not job.deleted and not job.obsolete
            ]
        assert len(waiting) == len(set(waiting))

    def _of(self, text: str) -> list[JobKey]:
        return sorted(key for key in self.model.jobs if key[1] == text)

    def _mark_deleted(self, count: int, schedule: Schedule) -> None:
        own = self._of(schedule.text)
        assert count == len(own)
        for key in own:
            self.model.jobs[key] = {**self.model.jobs[key], "deleted": True}

    def _any(self, data: st.DataObject) -> ScheduleJob:
        """Return a job as it was made, which may be changed or deleted since."""
        present = sorted(key for key in self.read if key in self.model.jobs)
        key = data.draw(st.sampled_from(present or sorted(self.read)) | st.sampled_from(sorted(self.read)))
        return self.read[key]


def test_schedule_jobs_are_those_of_a_model(explore: Explore) -> None:
    explore(ScheduleJobsMachine)
