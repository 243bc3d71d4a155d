"""`Worker`: handlers of jobs, each in the transaction that completes its job."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from structable.datasets import Job, JobState, Session, SystemData, Worker
from structable.datasets.coordination import polling
from structable.datasets.jobs import Handler
from structable.spi import StorageUnavailableError, connect
from tests.datasets.support.clock import Clock
from tests.waiting import until


@pytest.fixture
def system() -> Iterator[SystemData]:
    with connect("memory://") as storage:
        SystemData.create(storage)
        yield SystemData.open(storage)


def enqueue(system: SystemData, kind: str, **options: int) -> str:
    return system.run(lambda s: s.jobs.enqueue("q", {"n": 1}, kind=kind, **options)).id  # type: ignore[arg-type] # all int


def stored(system: SystemData, job: str) -> Job:
    found = system.run(lambda s: s.jobs.get(job))
    assert found is not None
    return found


def note(s: Session, text: str) -> None:
    s.external_positions.put("topic", "subscriber", text)


def noted(system: SystemData) -> str | None:
    return system.run(lambda s: s.external_positions.get("topic", "subscriber"))


@contextmanager
def working(system: SystemData, handlers: Mapping[str, Handler], threads: int = 4) -> Iterator[threading.Event]:
    """Run a worker in a thread, and stop it at the end."""
    stop = threading.Event()
    running = threading.Thread(target=Worker(system, "q", handlers, threads).run, args=(stop,))
    running.start()
    try:
        yield stop
    finally:
        stop.set()
        running.join()


def test_handlers_are_chosen_by_kind_and_their_results_are_kept(system: SystemData) -> None:
    jobs = [enqueue(system, kind) for kind in ("", "mail", "mail")]
    with working(system, {"": lambda s, job: None, "mail": lambda s, job: {"got": job.args}}):
        until(lambda: all(stored(system, job).state is JobState.DONE for job in jobs))
    assert [stored(system, job).result for job in jobs] == [None, {"got": {"n": 1}}, {"got": {"n": 1}}]


def test_kind_without_a_handler_fails_and_others_go_on(system: SystemData) -> None:
    odd = enqueue(system, "odd", priority=0)
    known = enqueue(system, "known")
    with working(system, {"known": lambda s, job: None}, threads=1):
        until(lambda: stored(system, known).state is JobState.DONE)
    failed = stored(system, odd)
    assert (failed.state, failed.attempt) == (JobState.READY, 1)
    assert failed.error == "LookupError: no handler for the kind 'odd'; there are handlers for: 'known'"


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), float("nan")], ids=repr)
def test_failed_handler_writes_nothing(system: SystemData, error: BaseException | float) -> None:
    def handle(s: Session, job: Job) -> object:
        note(s, "half")
        if isinstance(error, BaseException):
            raise error
        return error  # no document

    job = enqueue(system, "", max_attempts=1)
    with working(system, {"": handle}):
        until(lambda: stored(system, job).state is JobState.DEAD)
    assert noted(system) is None
    name = type(error).__name__ if isinstance(error, BaseException) else "DocumentError"
    assert str(stored(system, job).error).startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("move", "state"),
    [
        (lambda s, job: s.jobs.snooze(job, 60), JobState.READY),
        (lambda s, job: s.jobs.fail(job, "later"), JobState.READY),
        (lambda s, job: s.jobs.cancel(job.id), JobState.CANCELLED),
        (lambda s, job: s.jobs.complete(job, "done"), JobState.DONE),
    ],
    ids=["snooze", "fail", "cancel", "complete"],
)
def test_handler_that_moves_its_job_itself(system: SystemData, move: Handler, state: JobState) -> None:
    def handle(s: Session, job: Job) -> None:
        note(s, "handled")
        move(s, job)

    job = enqueue(system, "")
    with working(system, {"": handle}):
        until(lambda: noted(system) == "handled")
    assert stored(system, job).state is state


def test_stopping_worker_ends_what_runs_and_claims_no_more(system: SystemData) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handle(s: Session, job: Job) -> None:
        began.set()
        go_on.wait()

    first, second = enqueue(system, "", priority=0), enqueue(system, "")
    with working(system, {"": handle}, threads=1) as stop:
        began.wait()
        stop.set()
        go_on.set()
    assert (stored(system, first).state, stored(system, second).state) == (JobState.DONE, JobState.READY)


def test_running_job_beats_and_its_cancellation_undoes_the_handler(system: SystemData) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handle(s: Session, job: Job) -> None:
        note(s, "handled")
        began.set()
        go_on.wait()

    job = enqueue(system, "", timeout=1)
    with working(system, {"": handle}):
        began.wait()
        until(lambda: system.storage.table("sys_job_beats").count() == 1)
        assert system.run(lambda s: s.jobs.cancel(job))
        go_on.set()
    assert (stored(system, job).state, noted(system)) == (JobState.CANCELLED, None)


def test_job_of_a_stopped_worker_is_taken_over(system: SystemData) -> None:
    job = enqueue(system, "", timeout=1)
    assert system.queue("q").claim("stopped", 1)
    with working(system, {"": lambda s, job: None}):
        until(lambda: stored(system, job).state is JobState.DONE)
    assert stored(system, job).attempt == 2


@pytest.mark.parametrize("threads", [0, True, 1.5])
def test_number_of_threads(system: SystemData, threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        Worker(system, "q", {}, threads)


def test_closed_storage_ends_the_worker(system: SystemData) -> None:
    system.storage.close()
    with pytest.raises(StorageUnavailableError):
        Worker(system, "q", {}).run(threading.Event())


def test_waiting_worker_is_woken_by_what_becomes_due(system: SystemData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_SHORTEST", 3600.0)
    dead = enqueue(system, "", max_attempts=1)
    failures = [ValueError("broken")]

    def handle(s: Session, job: Job) -> None:
        if failures:
            raise failures.pop()

    with working(system, {"": handle}, threads=1):
        until(lambda: stored(system, dead).state is JobState.DEAD)
        other = system.queue("q").enqueue({}).id
        until(lambda: stored(system, other).state is JobState.DONE)
        system.run(lambda s: s.jobs.retry(dead))
        until(lambda: stored(system, dead).state is JobState.DONE)


def test_waiting_worker_looks_again_when_a_delayed_job_is_due(
    system: SystemData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "_SHORTEST", 3600.0)

    def delayed() -> str:
        due = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.3)
        return system.run(lambda s: s.jobs.enqueue("q", {}, due=due)).id

    first = delayed()
    with working(system, {"": lambda s, job: None}, threads=1):
        until(lambda: stored(system, first).state is JobState.DONE)
        second = delayed()
        until(lambda: stored(system, second).state is JobState.DONE)


@pytest.mark.parametrize(("open_for", "signalled"), [(1, False), (6, True)])
def test_commit_signals_delayed_jobs_that_are_due_by_then(open_for: int, signalled: bool) -> None:
    """A worker looks by itself every 5 seconds: a job is signalled if that would be too late as of the commit."""
    clock = Clock()
    with connect("memory://") as storage:
        SystemData.create(storage)
        system = SystemData.open(storage, clock=clock)
        with storage.listen(["sys_jobs/q"]) as listener:
            with system.transaction() as s:
                s.jobs.enqueue("q", {}, due=clock.time + dt.timedelta(seconds=10))
                clock.tick(open_for)
            assert listener.wait(0) is signalled

            def body(s: Session) -> None:
                s.jobs.enqueue("q", {}, due=clock.time + dt.timedelta(seconds=10))
                clock.tick(open_for)

            system.run(body)
            assert listener.wait(0) is signalled

            def failing(s: Session) -> None:
                body(s)
                clock.tick(10)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                system.run(failing)
            assert not listener.wait(0)

            with storage.transaction() as tx:  # whose end `bind` does not see
                body(system.bind(tx))
            assert listener.wait(0)
