"""Jobs: order, unique keys, bounds, rescue by beats, and what conflicts with what."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from structable.datasets import (
    AlreadyExistsError,
    DocumentError,
    IllegalTransitionError,
    InvalidCursorError,
    Job,
    JobState,
    LeaseLostError,
    NotFoundError,
    Session,
    SystemData,
)
from structable.datasets.system import queues
from structable.datasets.system.context import Context
from structable.datasets.system.job_moves import move_all
from structable.spi import FieldSizeLimitError, Storage, TransactionConflictError
from structable.spi.authors import MAX_ROW_SIZE
from tests.datasets.conftest import Begin
from tests.datasets.support.clock import Clock
from tests.datasets.support.ticks import Ticks

NAIVE = dt.datetime(2026, 1, 5, 12)
AFTER_ALL = dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1)))


@pytest.fixture
def watching(shared_store: Storage, system: SystemData, clock: Clock, ticks: Ticks) -> SystemData:
    """Return the datasets with both clocks the test's."""
    return SystemData.open(shared_store, clock=clock, monotonic=ticks)


def claimed(system: SystemData, limit: int = 1) -> list[Job]:
    return system.queue("q").claim("w", limit)


def stored(system: SystemData, job: Job) -> Job:
    found = system.run(lambda s: s.jobs.get(job.id))
    assert found is not None
    return found


def overlapping(
    system: SystemData, begin: Begin, first: Callable[[Session], object], then: Callable[[Session], object]
) -> None:
    """Do something in a transaction whose snapshot was taken before the other one, which commits first."""
    with begin() as s:
        s.jobs.queues()  # takes the snapshot
        system.run(first)
        then(s)


class TestEnqueue:
    def test_job_is_there_if_the_transaction_commits(self, system: SystemData, begin: Begin) -> None:
        with begin() as s:
            s.jobs.enqueue("q", 1)
            s.tx.rollback()
        assert claimed(system) == []
        with begin() as s:
            made = s.jobs.enqueue("q", {"to": "ada"}, kind="mail")
        (job,) = claimed(system)
        assert (job.id, job.kind, job.args, made.created) == (made.id, "mail", {"to": "ada"}, True)

    @pytest.mark.parametrize(
        "enqueue",
        [
            pytest.param(lambda s: s.jobs.enqueue("", 1), id="queue"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, priority=4), id="priority"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, priority=True), id="priority of another type"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, max_attempts=0), id="attempts"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, timeout=0), id="timeout"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, due=NAIVE), id="naive time"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, due=AFTER_ALL), id="time after the year 9999"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, unique_key=""), id="unique key"),
            pytest.param(lambda s: s.jobs.enqueue("q", 1, kind="x" * 256), id="kind"),
        ],
    )
    def test_arguments_out_of_their_range(self, begin: Begin, enqueue: Callable[[Session], object]) -> None:
        with begin() as s:
            with pytest.raises(ValueError, match=r"(is|has) .* must"):
                enqueue(s)
            assert s.jobs.queues() == []

    def test_arguments_must_be_a_document(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(DocumentError):
                s.jobs.enqueue("q", {"x": float("nan")}, unique_key="k")
            assert s.jobs.enqueue("q", 1, unique_key="k").created

    def test_arguments_leave_room_for_what_is_written_later(self, system: SystemData) -> None:
        """Else a claim, a failure or a rescue would be refused, and hold the queue."""
        with pytest.raises(FieldSizeLimitError):
            system.run(lambda s: s.jobs.enqueue("q", "x" * (MAX_ROW_SIZE - 41_000)))
        system.run(lambda s: s.jobs.enqueue("q", "x" * (MAX_ROW_SIZE - 42_000), max_attempts=1))
        (job,) = system.queue("q").claim("w" * 255, 1)
        system.run(lambda s: s.jobs.fail(job, "\U0001f600" * 10_000))
        assert stored(system, job).state is JobState.DEAD

    def test_queue_adds_in_a_transaction_of_its_own(self, system: SystemData) -> None:
        queue = system.queue("q")
        keyed = queue.enqueue({"to": "ada"}, kind="mail", priority=1, unique_key="k", max_attempts=2, timeout=9)
        assert queue.enqueue(2, unique_key="k") == (keyed.id, False)
        with pytest.raises(ValueError, match="priority"):
            queue.enqueue(3, priority=4)
        with pytest.raises(FieldSizeLimitError):
            queue.enqueue("x" * (MAX_ROW_SIZE - 41_000))
        plain = queue.enqueue(4)
        found = [(job.id, job.args, job.kind, job.priority) for job in claimed(system, 9)]
        assert found == [(keyed.id, {"to": "ada"}, "mail", 1), (plain.id, 4, "", 2)]

    def test_completion_conflicts_with_a_found_key(self, system: SystemData, begin: Begin) -> None:
        """Else the writes of who found the open job might be seen by no handler."""
        with begin() as s:
            s.jobs.enqueue("q", 1, unique_key="k")
        (job,) = claimed(system)
        with pytest.raises(TransactionConflictError):
            overlapping(system, begin, lambda s: s.jobs.complete(job), lambda s: s.jobs.enqueue("q", 1, unique_key="k"))


class TestQueueCompletes:
    """`Queue.complete`, a transaction of its own."""

    def test_once(self, system: SystemData) -> None:
        queue = system.queue("q")
        queue.enqueue({"to": "ada"}, priority=0, unique_key="k")
        queue.enqueue(2)
        keyed, plain = claimed(system, 2)
        queue.complete(keyed, {"sent": True})
        queue.complete(plain)
        done = stored(system, keyed)
        assert (done.state, done.result, done.args) == (JobState.DONE, {"sent": True}, {"to": "ada"})
        assert stored(system, plain).state is JobState.DONE
        assert queue.enqueue(3, unique_key="k").created
        with pytest.raises(LeaseLostError):
            queue.complete(keyed)
        with pytest.raises(LeaseLostError):
            queue.complete(done)

    @pytest.mark.parametrize(
        "lose",
        [
            pytest.param(lambda s, job: s.jobs.cancel(job.id), id="cancelled"),
            pytest.param(lambda s, job: s.jobs.snooze(job, 0), id="snoozed"),
            pytest.param(lambda s, job: s.jobs.fail(job, "broken"), id="failed"),
        ],
    )
    @pytest.mark.parametrize("again", [False, True], ids=["", "claimed again"])
    def test_lost_job(
        self, system: SystemData, clock: Clock, lose: Callable[[Session, Job], object], again: bool
    ) -> None:
        """The clock stands still: a job that is claimed again may have the key that it had."""
        system.queue("q").enqueue(1)
        (job,) = claimed(system)
        system.run(lambda s: lose(s, job))
        if again:
            if stored(system, job).attempt:
                clock.tick(2)
            claimed(system)
        before = stored(system, job)
        with pytest.raises(LeaseLostError):
            system.queue("q").complete(job, "zombie")
        assert stored(system, job) == before

    def test_one_of_several_at_the_same_time(self, system: SystemData) -> None:
        """Each completion that did not come first finds the job lost."""
        system.queue("q").enqueue(1)
        (job,) = claimed(system)
        begin = threading.Barrier(4)

        def complete(number: int) -> int | None:
            begin.wait()
            try:
                system.queue("q").complete(job, number)
            except LeaseLostError:
                return None
            return number

        with ThreadPoolExecutor(4) as pool:
            done = [number for number in pool.map(complete, range(4)) if number is not None]
        assert done == [stored(system, job).result]

    def test_document(self, system: SystemData) -> None:
        system.queue("q").enqueue(1)
        (job,) = claimed(system)
        with pytest.raises(DocumentError):
            system.queue("q").complete(job, {"x": float("nan")})
        assert stored(system, job) == job


class TestClaim:
    def test_priority_then_time_then_id(self, system: SystemData, clock: Clock) -> None:
        def add(number: int, priority: int, seconds: int) -> None:
            due = clock.time + dt.timedelta(seconds=seconds)
            system.run(lambda s: s.jobs.enqueue("q", number, priority=priority, due=due))
            clock.tick(0.001)

        for number, (priority, seconds) in enumerate([(2, -1), (0, 60), (3, -9), (2, -2), (0, -5), (2, -1)]):
            add(number, priority, seconds)
        assert [job.args for job in claimed(system, 3)] == [4, 3, 0]
        assert [job.args for job in claimed(system, 10)] == [5, 2]
        clock.tick(60)
        assert [(job.args, job.attempt, job.state) for job in claimed(system, 10)] == [(1, 1, JobState.RUNNING)]

    def test_seconds_until_a_job_is_due(self, system: SystemData, clock: Clock) -> None:
        queue = system.queue("q")
        assert queue.until_due() is None
        due = [
            (clock.time + dt.timedelta(seconds=seconds), priority) for seconds, priority in ((60, 0), (30, 3), (90, 3))
        ]
        system.run(lambda s: [s.jobs.enqueue("q", 1, due=time, priority=priority) for time, priority in due])
        assert queue.until_due() == 30
        clock.tick(31)
        assert queue.until_due() == -1
        assert len(claimed(system, 10)) == 1
        assert queue.until_due() == 29

    def test_jobs_of_one_lane(
        self, system: SystemData, begin: Begin, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A claim first reads fewer jobs of each lane than it may take."""
        monkeypatch.setattr("structable.datasets.system.jobs.LANES", 1)
        with begin() as s:
            for number in range(9):
                s.jobs.enqueue("q", number, due=clock.time + dt.timedelta(seconds=number - 9))
        assert [job.args for job in claimed(system, 4)] == [0, 1, 2, 3]
        assert [job.args for job in claimed(system, 10)] == [4, 5, 6, 7, 8]

    def test_due_jobs_behind_delayed_ones(self, system: SystemData, begin: Begin, clock: Clock) -> None:
        """Each lane begins with delayed jobs of a higher priority."""
        with begin() as s:
            for _ in range(100):
                s.jobs.enqueue("q", "delayed", priority=0, due=clock.time + dt.timedelta(hours=1))
            s.jobs.enqueue("q", "low", priority=3)
            s.jobs.enqueue("q", "high", priority=1)
        assert [job.args for job in claimed(system, 1)] == ["high"]
        assert [job.args for job in claimed(system, 2)] == ["low"]

    def test_order_after_a_conflict(
        self, watching: SystemData, clock: Clock, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For a second after a conflict a claim looks at one lane, so it may leave out the first jobs."""

        def enqueue(s: Session) -> None:
            for number in range(64):
                s.jobs.enqueue("q", number, due=clock.time + dt.timedelta(seconds=number - 64))

        def meet_another(context: Context, moves: list[tuple[Job, Job]], changed: tuple[str, ...]) -> None:
            monkeypatch.setattr(queues, "move_all", move_all)
            assert [job.args for job in claimed(watching)] == [0]
            move_all(context, moves, changed)

        watching.run(enqueue)
        monkeypatch.setattr(queues, "move_all", meet_another)
        queue, left = watching.queue("q"), list(range(1, 64))
        took_first = []
        for _ in range(20):
            (job,) = queue.claim("w", 1)
            took_first.append(job.args == left[0])
            left = [number for number in left if number != job.args]
        assert not all(took_first)
        ticks.tick(1)
        assert [job.args for job in queue.claim("w", 5)] == left[:5]

    @pytest.mark.parametrize(("worker", "limit"), [("", 1), ("w", 0), ("w", 1001)])
    def test_arguments_out_of_their_range(self, system: SystemData, worker: str, limit: int) -> None:
        with pytest.raises(ValueError, match="must"):
            system.queue("q").claim(worker, limit)

    def test_name_of_a_queue(self, system: SystemData) -> None:
        with pytest.raises(ValueError, match="queue"):
            system.queue("")


class TestHandles:
    @pytest.mark.parametrize("act", ["complete", "fail", "snooze", "extend"])
    @pytest.mark.parametrize("taken", ["completed", "cancelled", "rescued", "claimed again"])
    def test_former_worker_does_nothing(
        self, watching: SystemData, clock: Clock, ticks: Ticks, act: str, taken: str
    ) -> None:
        watching.run(lambda s: s.jobs.enqueue("q", 1, timeout=1))
        (job,) = claimed(watching)
        match taken:
            case "completed":
                watching.run(lambda s: s.jobs.complete(job))
            case "cancelled":
                assert watching.run(lambda s: s.jobs.cancel(job.id))
                assert not watching.run(lambda s: s.jobs.cancel(job.id))
            case "rescued":
                rescued(watching, clock, ticks)
            case _:
                watching.run(lambda s: s.jobs.snooze(job, 0))
                (again,) = claimed(watching)
                assert (again.attempt, again.claims) == (1, 2)
        before = stored(watching, job)
        arguments: tuple[object, ...] = {"fail": ("x",), "snooze": (0,)}.get(act, ())
        with watching.transaction() as s, pytest.raises(LeaseLostError, match=job.id):
            getattr(s.jobs, act)(job, *arguments)
        assert stored(watching, job) == before

    def test_cancellation_conflicts_with_completion(self, system: SystemData, begin: Begin) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1))
        (job,) = claimed(system)
        with pytest.raises(TransactionConflictError):
            overlapping(system, begin, lambda s: s.jobs.cancel(job.id), lambda s: s.jobs.complete(job))
        assert stored(system, job).state is JobState.CANCELLED

    def test_heartbeat_does_not_conflict_with_completion(self, system: SystemData, begin: Begin) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1))
        (job,) = claimed(system)
        with begin() as s:
            s.external_positions.get("topic", "subscriber")  # takes the snapshot
            system.run(lambda other: other.jobs.extend(job))
            s.jobs.complete(job, {"rows": 3})
            system.run(lambda other: other.jobs.extend(job))
        assert stored(system, job).result == {"rows": 3}

    def test_result_must_be_a_document(self, system: SystemData, begin: Begin) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1, unique_key="k"))
        (job,) = claimed(system)
        with begin() as s:
            with pytest.raises(DocumentError):
                s.jobs.complete(job, float("inf"))
            assert not s.jobs.enqueue("q", 1, unique_key="k").created
        assert stored(system, job) == job

    def test_errors_are_kept_as_texts_of_any_store(self, system: SystemData) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1, max_attempts=1))
        (job,) = claimed(system)
        system.run(lambda s: s.jobs.fail(job, ValueError("a\0b\ud800" + "x" * 20_000)))
        dead = stored(system, job)
        assert dead.state is JobState.DEAD
        assert dead.error is not None
        assert dead.error.startswith("ValueError: a\\0b\\ud800xx")
        assert len(dead.error) < 10_020

    @pytest.mark.parametrize("seconds", [-1, float("nan"), True, 2.0**40])
    def test_seconds_out_of_their_range(self, system: SystemData, seconds: float) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1))
        (job,) = claimed(system)
        with pytest.raises(ValueError, match="seconds"):
            system.run(lambda s: s.jobs.snooze(job, seconds))


def rescued(system: SystemData, clock: Clock, ticks: Ticks) -> int:
    """Look, let the timeout of one second pass on both clocks, and look again."""
    assert system.run(lambda s: s.jobs.rescue()) == 0
    clock.tick(1)
    ticks.tick(1)
    return system.run(lambda s: s.jobs.rescue())


class TestRescue:
    def test_wall_clock_alone_takes_no_job(self, watching: SystemData, clock: Clock, ticks: Ticks) -> None:
        watching.run(lambda s: s.jobs.enqueue("q", 1, timeout=1))
        (job,) = claimed(watching)
        clock.tick(3600)
        for _ in range(2):
            assert watching.run(lambda s: s.jobs.rescue()) == 0
        watching.run(lambda s: s.jobs.extend(job))
        ticks.tick(10)
        assert watching.run(lambda s: s.jobs.rescue()) == 0
        ticks.tick(1)
        assert watching.run(lambda s: s.jobs.rescue()) == 1
        (again,) = claimed(watching)
        assert (again.id, again.attempt, again.error) == (job.id, 2, "the worker 'w' stopped")

    def test_last_attempt_is_dead(self, watching: SystemData, clock: Clock, ticks: Ticks) -> None:
        watching.run(lambda s: s.jobs.enqueue("q", 1, timeout=1, max_attempts=1, unique_key="k"))
        (job,) = claimed(watching)
        assert rescued(watching, clock, ticks) == 1
        assert stored(watching, job).state is JobState.DEAD
        assert watching.run(lambda s: s.jobs.enqueue("q", 1, unique_key="k")).created

    def test_beat_conflicts_with_rescue(self, watching: SystemData, clock: Clock, ticks: Ticks) -> None:
        watching.run(lambda s: s.jobs.enqueue("q", 1, timeout=1))
        (job,) = claimed(watching)
        watching.run(lambda s: s.jobs.rescue())
        clock.tick(1)
        ticks.tick(1)
        with pytest.raises(TransactionConflictError):
            overlapping(watching, watching.transaction, lambda s: s.jobs.extend(job), lambda s: s.jobs.rescue())
        assert stored(watching, job).state is JobState.RUNNING

    def test_ended_jobs_are_kept_a_day(self, system: SystemData, clock: Clock) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1))
        (job,) = claimed(system)
        system.run(lambda s: s.jobs.extend(job))
        system.run(lambda s: s.jobs.complete(job))
        clock.tick(86_400)
        system.run(lambda s: s.jobs.rescue())
        assert stored(system, job).state is JobState.DONE
        clock.tick(0.001)
        system.run(lambda s: s.jobs.rescue())
        assert system.run(lambda s: (s.jobs.get(job.id), s.jobs.queues())) == (None, [])
        assert system.storage.table("sys_job_beats").count() == 0


class TestRetry:
    def test_dead_job_has_all_its_attempts_again(self, system: SystemData) -> None:
        system.run(lambda s: s.jobs.enqueue("q", 1, max_attempts=1, unique_key="k"))
        (job,) = claimed(system)
        system.run(lambda s: s.jobs.fail(job, "broken"))
        assert system.run(lambda s: s.jobs.counts("q"))[JobState.DEAD] == 1
        other = system.run(lambda s: s.jobs.enqueue("q", 1, unique_key="k"))
        with pytest.raises(AlreadyExistsError):
            system.run(lambda s: s.jobs.retry(job.id))
        assert system.run(lambda s: s.jobs.cancel(other.id))
        system.run(lambda s: s.jobs.retry(job.id))
        (again,) = claimed(system)
        assert (again.id, again.attempt, again.claims) == (job.id, 1, 2)

    def test_job_that_is_not_dead(self, begin: Begin) -> None:
        with begin() as s:
            made = s.jobs.enqueue("q", 1)
            with pytest.raises(IllegalTransitionError, match="READY"):
                s.jobs.retry(made.id)

    @pytest.mark.parametrize("act", ["retry", "cancel"])
    def test_absent_job(self, begin: Begin, act: str) -> None:
        with begin() as s:
            assert s.jobs.get("absent") is None
            with pytest.raises(NotFoundError):
                getattr(s.jobs, act)("absent")


def test_pages_are_of_a_queue_and_a_state(begin: Begin) -> None:
    with begin() as s:
        ids = {s.jobs.enqueue("q", n).id for n in range(5)}
        s.jobs.enqueue("other", 1)
        first = s.jobs.page("q", JobState.READY, limit=3)
        assert first.next is not None
        rest = s.jobs.page("q", JobState.READY, cursor=first.next, limit=3)
        assert ({job.id for job in first.items + rest.items}, rest.next) == (ids, None)
        with pytest.raises(InvalidCursorError):
            s.jobs.page("other", JobState.READY, cursor=first.next)
        assert s.jobs.page("q", JobState.DONE).items == []
        assert s.jobs.queues() == ["other", "q"]
