"""An exception from a signal handler at any point of the datasets' own code: nothing stays held, no thread is left."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import pytest

from structable.datasets import Leader, Message, Record, Session, SystemData, Topic, Worker
from structable.spi import connect
from structable.testing.conformance.interruptions import InterruptedByTestError, TraceFunction, _Tracer
from tests.waiting import until


class Event(Record):
    number: int


EVENTS = Topic("events", Event)
TTL = 300


@pytest.fixture(scope="module")
def system() -> Iterator[SystemData]:
    with connect("memory://") as storage:
        SystemData.create(storage)
        with SystemData.open(storage) as system:
            system.topics.create(EVENTS)
            with system.transaction() as s:
                for number in range(3):
                    s.publish(EVENTS, Event(number=number))
            yield system


class _ModuleTracer(_Tracer):
    """Raises at a point of some modules only; the stores' own points have their tests."""

    def __init__(self, modules: tuple[str, ...], at: int) -> None:
        super().__init__(frozenset({"structable"}), at)
        self._modules = modules

    def enter(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        """Trace the frames of these modules."""
        return super().enter(frame, event, argument) if frame.f_globals.get("__name__") in self._modules else None


def interrupted(work: Callable[[], object], at: int, *modules: str) -> str:
    """Interrupt a call at one of its points in some modules, and return the place; empty if it has fewer points."""
    tracer = _ModuleTracer(modules, at)
    sys.settrace(tracer.enter)
    try:
        work()
    except InterruptedByTestError:
        assert tracer.where
    finally:
        sys.settrace(None)
    return tracer.where


def at_each_point(interrupt: Callable[[int], str]) -> None:
    """Call a function with the number of each point, until it returns that there are no more."""
    at = 1
    while interrupt(at):
        at += 1
    assert at > 3


def threads(part: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if part in thread.name and thread.is_alive()]


def note(s: Session, messages: Sequence[Message[Event]]) -> None:
    before = s.external_positions.get("noted", "numbers") or ""
    s.external_positions.put("noted", "numbers", before + "".join(str(message.body.number) for message in messages))


def test_an_interrupted_consumer_goes_on_beating_and_leaves(system: SystemData) -> None:
    modules = ("structable.datasets.messaging.groups", "structable.datasets.coordination.beats")

    def interrupt(at: int) -> str:
        group = f"goes-on-{at}"
        system.run(lambda s: s.external_positions.put("noted", "numbers", ""))
        consumer = system.consumer(EVENTS, group=group, ttl=TTL)
        where = interrupted(lambda: consumer.process(note, limit=2, wait=0), at, *modules)
        while consumer.process(note, limit=2, wait=0):
            pass
        assert system.run(lambda s: s.external_positions.get("noted", "numbers")) == "012", where
        until(lambda: len(threads(repr(group))) == 1)
        consumer.close()
        until(lambda: not threads(repr(group)))
        return where

    at_each_point(interrupt)


def test_an_interrupted_close_of_a_consumer_is_completed_by_the_next(system: SystemData) -> None:
    modules = ("structable.datasets.messaging.consumer", "structable.datasets.messaging.fetching")

    def interrupt(at: int) -> str:
        group = f"closes-{at}"
        consumer = system.consumer(EVENTS, group=group, ttl=TTL)
        consumer.process(note, limit=1, wait=0)
        where = interrupted(consumer.close, at, *modules)
        consumer.close()
        with system.consumer(EVENTS, group=group, ttl=TTL) as other:
            assert other.process(note, wait=0) == 2, where
        until(lambda: not threads(repr(group)))
        return where

    at_each_point(interrupt)


def test_an_interrupted_leader_renews_no_lease(system: SystemData) -> None:
    modules = ("structable.datasets.coordination.leader", "structable.datasets.coordination.beats")

    def interrupt(at: int) -> str:
        leader = Leader(system, f"leads-{at}", ttl=TTL)
        where = interrupted(lambda: leader.run(lambda lease: None), at, *modules)
        until(lambda: not threads(f"'leads-{at}'"))
        return where

    at_each_point(interrupt)


def test_an_interrupted_acquisition_renews_no_lease(system: SystemData) -> None:
    def interrupt(at: int) -> str:
        name, lease = f"acquired-{at}", None

        def acquire() -> None:
            nonlocal lease
            lease = system.leases.acquire(name, "owner", TTL, keep=True)

        where = interrupted(acquire, at, "structable.datasets.coordination.beats")
        if lease is not None:
            lease.release()
        until(lambda: not threads(repr(name)))
        return where

    at_each_point(interrupt)


def test_an_interrupted_worker_ends_with_its_threads(system: SystemData) -> None:
    def interrupt(at: int) -> str:
        stop = threading.Event()
        system.run(lambda s: s.jobs.enqueue(f"works-{at}", None))
        worker = Worker(system, f"works-{at}", {"": lambda s, job: stop.set()}, threads=1)
        where = interrupted(lambda: worker.run(stop), at, "structable.datasets.jobs.worker")
        until(lambda: not threads("job"))
        return where

    at_each_point(interrupt)
