"""Jobs, queued, claimed, ended, retried and rescued at random, beside a model of plain values."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from structable.datasets import AlreadyExistsError, IllegalTransitionError, Job, JobState, LeaseLostError, NotFoundError
from structable.spi import Storage
from tests.datasets.machines.conftest import Explore
from tests.datasets.support.session_machine import SessionMachine

QUEUES = ("a", "b/c")
UNIQUE = (None, "k", "l")
DAY = dt.timedelta(days=1)
Fields = dict[str, Any]


@dataclasses.dataclass
class Model:
    """The fields of each job, and its worker's beats, by id."""

    jobs: dict[str, Fields] = dataclasses.field(default_factory=dict)
    beats: dict[str, int] = dataclasses.field(default_factory=dict)

    def of(self, queue: str, state: JobState) -> list[str]:
        """Return the ids of the jobs of a queue in a state, in the order of claims."""
        found = [job for job in self.jobs.values() if (job["queue"], job["state"]) == (queue, state)]
        return [job["id"] for job in sorted(found, key=lambda job: (job["priority"], job["due"], job["id"]))]

    def open_job_of(self, queue: str, key: str | None) -> str | None:
        """Return the id of the open job of a unique key."""
        found = [
            job["id"]
            for job in self.jobs.values()
            if key is not None and (job["queue"], job["unique_key"]) == (queue, key) and job["state"] <= 1
        ]
        assert len(found) <= 1
        return found[0] if found else None


class JobsMachine(SessionMachine[Model]):
    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, Model())
        self.handles: list[Job] = []
        # What the process has seen of beats, which no roll-back takes back: claims, beat, and since when.
        self.watched: dict[str, tuple[int, int, float]] = {}

    @initialize()
    def fill(self) -> None:
        for queue in QUEUES:
            self.enqueue(queue, 2, None, None, 2, 10, None)

    @rule(seconds=st.sampled_from((1, 5, 10)), past=st.booleans())
    def watch(self, seconds: float, past: bool) -> None:
        """Let time pass on the monotonic clock, and on the other one or not."""
        self.ticks.tick(seconds)
        if past:
            self.clock.tick(seconds)

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from((0, 2, 3)),
        due=st.sampled_from((None, None, -5, 1, 100)),
        unique_key=st.sampled_from(UNIQUE),
        max_attempts=st.sampled_from((1, 2, 20)),
        timeout=st.sampled_from((1, 10)),
        args=st.sampled_from((None, 1, {"x": ["ä"]})),
        alone=st.booleans(),
    )
    def enqueue(
        self,
        queue: str,
        priority: int,
        due: int | None,
        unique_key: str | None,
        max_attempts: int,
        timeout: int,
        args: object,
        alone: bool = False,
    ) -> None:
        # Ids of one millisecond have a random order, which would not be that of the next run.
        now = self.clock.tick(0.001)
        at = None if due is None else now + dt.timedelta(seconds=due)
        others = {"priority": priority, "max_attempts": max_attempts, "timeout": timeout}
        if alone and self._open is None:
            done = self.system.queue(queue).enqueue(args, kind="k", due=at, unique_key=unique_key, **others)
        else:
            with self.session() as s:
                done = s.jobs.enqueue(queue, args, kind="k", due=at, unique_key=unique_key, **others)
        there = self.model.open_job_of(queue, unique_key)
        assert done.created == (there is None)
        if there is not None:
            assert done.id == there
            return
        assert done.id not in self.model.jobs
        self.model.jobs[done.id] = {
            "queue": queue,
            "state": JobState.READY,
            "priority": priority,
            "due": at or now,
            "job": done.id,
            "id": done.id,
            "kind": "k",
            "args": args,
            "attempt": 0,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "claims": 0,
            "worker": None,
            "until": None,
            "unique_key": unique_key,
            "error": None,
            "result": None,
            "created": now,
            "finished": None,
        }

    @precondition(lambda self: self._open is None)
    @rule(queue=st.sampled_from(QUEUES), worker=st.sampled_from(("w", "x")), limit=st.sampled_from((1, 2, 100)))
    def claim(self, queue: str, worker: str, limit: int) -> None:
        now = self.clock.time
        expected = [id for id in self.model.of(queue, JobState.READY) if self.model.jobs[id]["due"] <= now][:limit]
        claimed = self.system.queue(queue).claim(worker, limit)
        assert [job.id for job in claimed] == expected
        for job in claimed:
            fields = self.model.jobs[job.id]
            fields.update(
                state=JobState.RUNNING,
                worker=worker,
                attempt=fields["attempt"] + 1,
                claims=fields["claims"] + 1,
                until=now + dt.timedelta(seconds=fields["timeout"]),
            )
            assert plain(job) == fields
        self.handles += claimed

    # By handle

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), result=st.sampled_from((None, {"rows": 3})), alone=st.booleans())
    def complete(self, data: st.DataObject, result: object, alone: bool) -> None:
        job = self._handle(data)
        if alone and self._open is None:
            done = self._completed(self.system.queue(job.queue).complete, job, result)
        else:
            with self.session() as s:
                done = self._completed(s.jobs.complete, job, result)
        if not done:
            return
        self.model.jobs[job.id].update(state=JobState.DONE, result=result, finished=self.clock.time)

    def _completed(self, complete: Callable[[Job, object], None], job: Job, result: object) -> bool:
        if self._has(job):
            complete(job, result)
            return True
        with pytest.raises(LeaseLostError):
            complete(job, result)
        return False

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), error=st.sampled_from(("broken", ValueError("x\0\ud800"))))
    def fail(self, data: st.DataObject, error: str | ValueError) -> None:
        job = self._handle(data)
        with self.session() as s:
            if not self._has(job):
                with pytest.raises(LeaseLostError):
                    s.jobs.fail(job, error)
                return
            s.jobs.fail(job, error)
            after = s.jobs.get(job.id)
        assert after is not None
        fields = self.model.jobs[job.id]
        fields["error"] = error if isinstance(error, str) else "ValueError: x\\0\\ud800"
        if fields["attempt"] == fields["max_attempts"]:
            fields.update(state=JobState.DEAD, finished=self.clock.time)
            return
        delay = (after.due - self.clock.time).total_seconds()
        assert fields["attempt"] ** 4 <= delay <= fields["attempt"] ** 4 * 1.1
        fields.update(state=JobState.READY, due=after.due, until=None)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), seconds=st.sampled_from((0, 1.5, 60)))
    def snooze(self, data: st.DataObject, seconds: float) -> None:
        job = self._handle(data)
        with self.session() as s:
            if not self._has(job):
                with pytest.raises(LeaseLostError):
                    s.jobs.snooze(job, seconds)
                return
            s.jobs.snooze(job, seconds)
        due = self.clock.time + dt.timedelta(seconds=seconds)
        fields = self.model.jobs[job.id]
        fields.update(state=JobState.READY, due=due, until=None, attempt=fields["attempt"] - 1)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        job = self._handle(data)
        with self.session() as s:
            if not self._has(job):
                with pytest.raises(LeaseLostError):
                    s.jobs.extend(job)
                return
            s.jobs.extend(job)
        self.model.beats[job.id] = self.model.beats.get(job.id, 0) + 1

    # By id

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = self._id(data)
        fields = self.model.jobs.get(id)
        with self.session() as s:
            if fields is None:
                with pytest.raises(NotFoundError):
                    s.jobs.cancel(id)
                return
            cancelled = s.jobs.cancel(id)
        assert cancelled == (fields["state"] <= JobState.RUNNING)
        if cancelled:
            fields.update(state=JobState.CANCELLED, finished=self.clock.time)

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        dead = sorted(id for id, fields in self.model.jobs.items() if fields["state"] is JobState.DEAD)
        id = data.draw(st.sampled_from([*dead, None])) or self._id(data)
        fields = self.model.jobs.get(id)
        with self.session() as s:
            if fields is None:
                error: type[Exception] = NotFoundError
            elif fields["state"] is not JobState.DEAD:
                error = IllegalTransitionError
            elif self.model.open_job_of(fields["queue"], fields["unique_key"]) is not None:
                error = AlreadyExistsError
            else:
                s.jobs.retry(id)
                fields.update(state=JobState.READY, due=self.clock.time, attempt=0, until=None, finished=None)
                return
            with pytest.raises(error):
                s.jobs.retry(id)

    @rule()
    def rescue(self) -> None:
        now = self.clock.time
        running = {id: fields for id, fields in self.model.jobs.items() if fields["state"] is JobState.RUNNING}
        still = [fields for id, fields in running.items() if self._stands_still(id, fields)]
        stopped = [fields for fields in still if fields["until"] <= now]
        self.watched = {id: seen for id, seen in self.watched.items() if id in running}
        with self.session() as s:
            assert s.jobs.rescue(now) == len(stopped)
        for fields in stopped:
            self.model.beats.setdefault(fields["id"], 0)
            fields["error"] = f"the worker {fields['worker']!r} stopped"
            if fields["attempt"] == fields["max_attempts"]:
                fields.update(state=JobState.DEAD, finished=now)
            else:
                fields.update(state=JobState.READY, due=now, until=None)
        for id, fields in list(self.model.jobs.items()):
            if fields["finished"] is not None and fields["finished"] < now - DAY:
                del self.model.jobs[id]
                self.model.beats.pop(id, None)

    def _stands_still(self, id: str, fields: Fields) -> bool:
        claims, beat = fields["claims"], self.model.beats.get(id, 0)
        seen = self.watched.get(id)
        if seen is not None and seen[:2] == (claims, beat):
            return self.ticks.seconds - seen[2] >= int(fields["timeout"])
        self.watched[id] = claims, beat, self.ticks.seconds
        return False

    # What always holds

    @invariant()
    def jobs_are_those_of_the_model(self) -> None:
        with self.session() as s:
            for queue in QUEUES:
                for state in JobState:
                    page = s.jobs.page(queue, state, limit=1000)
                    assert {job.id: plain(job) for job in page.items} == {
                        id: self.model.jobs[id] for id in self.model.of(queue, state)
                    }
                assert s.jobs.counts(queue) == {state: len(self.model.of(queue, state)) for state in JobState}
            assert s.jobs.queues() == sorted({fields["queue"] for fields in self.model.jobs.values()})
            for id, fields in self.model.jobs.items():
                job = s.jobs.get(id)
                assert job is not None
                assert plain(job) == fields
            with s.tx.table("sys_job_keys").scan() as rows:
                keys = {(row["queue"], row["unique_key"]): row["id"] for row in rows}
            with s.tx.table("sys_job_beats").scan() as rows:
                assert {row["job"]: row["beat"] for row in rows} == self.model.beats
        pairs = [(queue, key) for queue in QUEUES for key in UNIQUE if self.model.open_job_of(queue, key)]
        assert keys == {pair: self.model.open_job_of(*pair) for pair in pairs}

    def _has(self, job: Job) -> bool:
        fields = self.model.jobs.get(job.id)
        return fields is not None and (fields["state"], fields["claims"]) == (JobState.RUNNING, job.claims)

    def _handle(self, data: st.DataObject) -> Job:
        """Return a job as it was claimed; more often one that its worker still has."""
        held = [job for job in self.handles if self._has(job)]
        return data.draw(st.sampled_from(held or self.handles) | st.sampled_from(self.handles), label="handle")

    def _id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*sorted(self.model.jobs), "absent"]), label="id")


def plain(job: Job) -> Fields:
    """Return the fields of a job but for its lane, which is nobody's business."""
    fields = msgspec.structs.asdict(job)
    del fields["lane"]
    return fields


def test_jobs_are_those_of_a_model(explore: Explore) -> None:
    explore(JobsMachine)
