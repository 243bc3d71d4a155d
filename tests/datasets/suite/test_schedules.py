"""The datasets `schedules`, `schedule_triggers` and `schedule_jobs`."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest

from structable.datasets import AlreadyExistsError, IllegalTransitionError, NotFoundError, ProgramRef, Session
from structable.datasets.system.schedules import program_trigger
from structable.datasets.tables.schedules import Schedule, ScheduleJobState, ScheduleStatus
from structable.spi import TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock

KEY = ("default", "shop", "nightly")
LOAD = ProgramRef("default", "shop", "workflow", "load")


def add(s: Session, *triggers: str, definition: object = None, name: str = "nightly") -> Schedule:
    if s.applications.latest("default", "shop") is None:
        s.applications.deploy("default", "shop", "1", {})
    return s.schedules.add("default", "shop", name, definition or {}, triggers=triggers)


def scheduled(s: Session) -> Schedule:
    add(s, "time:nightly")
    s.schedules.set_status(*KEY, ScheduleStatus.SCHEDULED)
    found = s.schedules.get(*KEY)
    assert found is not None
    return found


class TestSchedules:
    def test_added_ones_are_suspended(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            made = add(s, "time:nightly", "data:orders", definition={"cron": "0 1 * * *"})
            assert (made.status, made.generation, made.updated) == (ScheduleStatus.SUSPENDED, 1, clock.time)
            with pytest.raises(AlreadyExistsError):
                add(s)
            with pytest.raises(NotFoundError):
                s.schedules.add("default", "absent", "x", {}, triggers=[])
            with pytest.raises(ValueError, match="trigger"):
                add(s, "", name="other")
        with begin() as s:
            assert s.schedules.get(*KEY) == made
            assert s.schedules.triggers(*KEY) == ["time:nightly", "data:orders"]
            assert s.schedules.by_trigger("data:orders") == [made]
            assert s.schedules.by_trigger("data:stock") == []

    def test_update_keeps_the_status(self, begin: Begin) -> None:
        with begin() as s:
            scheduled(s)
        with begin() as s:
            changed = s.schedules.update(*KEY, {"x": 1}, triggers=["data:stock"])
            assert (changed.status, changed.generation, changed.definition) == (ScheduleStatus.SCHEDULED, 2, {"x": 1})
            assert s.schedules.by_trigger("time:nightly") == []
            assert s.schedules.by_trigger("data:stock") == [changed]
            again = s.schedules.update(*KEY, {"x": 2})
            assert (again.status, again.generation, again.definition) == (ScheduleStatus.SCHEDULED, 3, {"x": 2})
            assert s.schedules.triggers(*KEY) == ["data:stock"]
            assert s.schedules.update(*KEY, {}, triggers=[]).generation == 4
            assert s.schedules.triggers(*KEY) == []
            with pytest.raises(NotFoundError):
                s.schedules.update("default", "shop", "absent", {})

    def test_deleted_ones_leave_no_trigger(self, begin: Begin) -> None:
        with begin() as s:
            for name in ("a", "b", "c"):
                add(s, "t", name=name)
        with begin() as s:
            s.schedules.delete("default", "shop", "b")
            assert [one.schedule for one in s.schedules.by_trigger("t")] == ["a", "c"]
            assert [one.schedule for one in s.schedules.page("default", "shop").items] == ["a", "c"]
            with pytest.raises(NotFoundError):
                s.schedules.delete("default", "shop", "b")
            assert s.schedules.delete_of("default", "shop") == 2
            assert s.schedules.by_trigger("t") == []

    def test_schedules_that_cannot_fire_any_more_are_deleted(self, begin: Begin) -> None:
        trigger = program_trigger(LOAD)
        with begin() as s:
            add(s, trigger, name="alone")
            add(s, trigger, "time:x", name="all")
            add(s, trigger, "time:x", name="any", definition={"triggers": "or"})
            add(s, "time:x", name="other")
        with begin() as s:
            assert [one.schedule for one in s.schedules.drop_program(LOAD)] == ["all", "alone", "any"]
            assert [one.schedule for one in s.schedules.page("default", "shop").items] == ["any", "other"]
            assert s.schedules.triggers("default", "shop", "any") == ["time:x"]

    def test_dropped_program_and_a_schedule_that_gains_it_exclude_each_other(self, begin: Begin) -> None:
        trigger = program_trigger(LOAD)
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
            add(s, "time:x", name="other")
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.applications.latest("default", "shop")
            with begin() as other:
                other.schedules.update("default", "shop", "other", {}, triggers=[trigger])
            s.schedules.drop_program(LOAD)
        with begin() as s:
            assert [one.schedule for one in s.schedules.drop_program(LOAD)] == ["other"]

    def test_names_with_slashes_are_told_apart(self, begin: Begin) -> None:
        one, other = LOAD._replace(program_type="a", program="b/c"), LOAD._replace(program_type="a/b", program="c")
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
            add(s, program_trigger(one), name="one")
            add(s, program_trigger(other), name="other")
            assert [found.schedule for found in s.schedules.drop_program(one)] == ["one"]
            s.applications.deploy("default", "shop/x", "1", {})
            left = s.schedules.add("default", "shop/x", "y", {}, triggers=[])
            right = s.schedules.add("default", "shop", "x/y", {}, triggers=[])
            assert left.text == "default/shop%2Fx/y"
            assert right.text == "default/shop/x%2Fy"

    def test_programs_of_any_names_have_triggers(self, begin: Begin) -> None:
        long = "/" * 255
        one, other = ProgramRef("default", long, long, long), ProgramRef("default", long, long, "%" * 255)
        with begin() as s:
            for number, ref in enumerate((one, other)):
                add(s, program_trigger(ref), name=str(number))
        with begin() as s:
            assert [found.schedule for found in s.schedules.by_trigger(program_trigger(other))] == ["1"]
            assert [found.schedule for found in s.schedules.drop_program(one)] == ["0"]

    def test_schedule_and_deletion_of_its_application_exclude_each_other(self, begin: Begin) -> None:
        with begin() as s:
            s.applications.deploy("default", "shop", "1", {})
        with pytest.raises(TransactionConflictError), begin() as s:  # noqa: PT012 - at the commit, or before
            s.applications.latest("default", "shop")
            with begin() as other:
                add(other, "t")
            s.applications.delete("default", "shop")


class TestScheduleJobs:
    def test_notifications_join_the_waiting_job(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            schedule = scheduled(s)
            first = s.schedule_jobs.notify(schedule, {"n": 1})
            clock.tick()
            job = s.schedule_jobs.notify(schedule, {"n": 2})
            assert first is not None
            assert job is not None
            assert (job.generation, job.notifications, job.at) == (0, [{"n": 1}, {"n": 2}], clock.time)
            assert job.created == first.created
        with begin() as s:
            assert s.schedule_jobs.jobs(job.partition) == [job]

    def test_notifications_of_an_older_generation_join_the_job_of_a_newer(self, begin: Begin) -> None:
        with begin() as s:
            old = scheduled(s)
            new = s.schedules.update(*KEY, {}, triggers=[])
            first = s.schedule_jobs.notify(new, 1)
            second = s.schedule_jobs.notify(old, 2)
            assert first is not None
            assert second is not None
            assert (second.generation, second.schedule_generation) == (first.generation, new.generation)

    def test_advanced_job_has_all_notifications(self, begin: Begin, clock: Clock) -> None:
        with begin() as s:
            schedule = scheduled(s)
            read = s.schedule_jobs.notify(schedule, 1)
            s.schedule_jobs.notify(schedule, 2)
            assert read is not None
            assert s.schedule_jobs.advance(read, ScheduleJobState.PENDING_CONSTRAINT).notifications == [1, 2]
            s.schedule_jobs.delete(read)
            clock.tick()
            again = s.schedule_jobs.notify(schedule, 3)
            assert again is not None
            assert again.generation == read.generation
            with pytest.raises(NotFoundError):
                s.schedule_jobs.advance(read, ScheduleJobState.PENDING_CONSTRAINT)

    def test_suspended_schedules_are_not_notified(self, begin: Begin) -> None:
        with begin() as s:
            assert s.schedule_jobs.notify(add(s, "t"), 1) is None

    @pytest.mark.parametrize("reason", ["marked", "older", "late"])
    def test_obsolete_job_gives_way_to_the_next(self, begin: Begin, clock: Clock, reason: str) -> None:
        with begin() as s:
            schedule = scheduled(s)
            s.schedule_jobs.notify(schedule, 1)
        timeout = None
        with begin() as s:
            if reason == "marked":
                assert s.schedule_jobs.mark_deleted(schedule) == 1
            elif reason == "older":
                schedule = s.schedules.update(*KEY, {}, triggers=["t"])
            else:
                clock.tick(61)
                timeout = dt.timedelta(seconds=60)
            job = s.schedule_jobs.notify(schedule, 2, timeout=timeout)
        with begin() as s:
            assert job is not None
            old, new = s.schedule_jobs.jobs(job.partition)
            assert (old.generation, old.obsolete, old.deleted) == (0, True, reason == "marked")
            assert new == job
            assert (new.generation, new.notifications) == (1, [2])
            assert s.schedule_jobs.jobs(job.partition, after=old) == [new]
            s.schedule_jobs.delete(old)
            assert s.schedule_jobs.jobs(job.partition) == [new]

    def test_states_follow_one_another(self, begin: Begin) -> None:
        with begin() as s:
            schedule = scheduled(s)
            job = s.schedule_jobs.notify(schedule, 1)
            assert job is not None
            with pytest.raises(IllegalTransitionError):
                s.schedule_jobs.advance(job, ScheduleJobState.PENDING_LAUNCH)
            job = s.schedule_jobs.advance(job, ScheduleJobState.PENDING_CONSTRAINT)
            following = s.schedule_jobs.notify(schedule, 2)
            assert following is not None
            assert following.generation == 1
            job = s.schedule_jobs.advance(job, ScheduleJobState.PENDING_LAUNCH)
            with pytest.raises(IllegalTransitionError):
                s.schedule_jobs.advance(job, ScheduleJobState.PENDING_LAUNCH)
            s.schedule_jobs.delete(job)
            with pytest.raises(NotFoundError):
                s.schedule_jobs.advance(job, ScheduleJobState.PENDING_LAUNCH)
            with pytest.raises(ValueError, match="partition"):
                s.schedule_jobs.jobs(16)

    def test_mark_that_outlives_its_job_marks_no_later_one(self, begin: Begin) -> None:
        with begin() as s:
            schedule = scheduled(s)
            first = s.schedule_jobs.notify(schedule, 1)
            assert first is not None
        # SERIALIZABLE refuses the mark; SNAPSHOT keeps it, as marking and deletion write different rows.
        with suppress(TransactionConflictError), begin() as s:
            assert s.schedule_jobs.mark_deleted(schedule) == 1
            with begin() as other:
                other.schedule_jobs.delete(first)
        with begin() as s:
            job = s.schedule_jobs.notify(schedule, 2)
            assert job is not None
            assert not job.deleted
            assert s.schedule_jobs.jobs(job.partition) == [job]
