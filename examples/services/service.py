"""A process of the platform: asks for things, does what others asked for, and counts what was done.

Nothing polls tables. Requests are jobs, for whose signal the workers wait; what they did is published in a topic, for
whose messages the members of a group wait.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.synchronize import Semaphore

from structable.datasets import Leader, Lease, LeaseLostError, Message, Session, SystemData, Worker
from structable.spi import StorageUnavailableError, TransactionError, connect

from .requests import EVENTS, Event, count, handlers_of, request

_PAUSE = 0.05
_PAUSE_GROWTH = 4
"""The pause of a publisher, as a multiple of the time of its request, so that others keep up."""
_REQUESTS = ("deploy", "start", "start", "stop", "stop")
_TERM = 0.5
_TTL = 2
_WAIT = 1.0

_log = logging.getLogger("structable.examples")


def serve(url: str, queue: str, name: str, seconds: float, ready: Semaphore) -> None:
    """Publish requests for some seconds, and work until SIGTERM; `ready` is released once the process has begun."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    with connect(url) as storage, SystemData.open(storage) as system:
        ready.release()
        end = time.monotonic() + seconds
        asking = [
            threading.Thread(target=act, args=(system, queue, name, end), daemon=True) for act in (_publish, _lead)
        ]
        for thread in asking:
            thread.start()
        work(system, queue, name, stop)
        for thread in asking:
            thread.join()


def work(system: SystemData, queue: str, name: str, stop: threading.Event) -> None:
    """Run jobs and count events, until an event is set."""
    counting = threading.Thread(target=_count, args=(system, stop), name="consumer")
    counting.start()
    Worker(system, queue, handlers_of(name), threads=2).run(stop)
    counting.join()


def _publish(system: SystemData, queue: str, name: str, end: float) -> None:
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            system.run(lambda s: request(s, queue, name, random.choice(_REQUESTS)))
        except (StorageUnavailableError, TransactionError):
            _log.warning("a request of %s may be lost", name, exc_info=True)
        time.sleep(max(_PAUSE, _PAUSE_GROWTH * (time.monotonic() - begun)))


def _lead(system: SystemData, queue: str, name: str, end: float) -> None:
    """Whenever elected, ask for a deletion under the lease, then let another process lead."""

    def lead(lease: Lease) -> None:
        def begin(s: Session) -> None:
            lease.check(s.tx)  # a leader that was stopped for too long does nothing
            s.publish(EVENTS, Event(what="terms as leader", service=name, runs=0), key=name)

        def delete(s: Session) -> None:
            lease.check(s.tx)
            request(s, queue, name, "delete", unique_key="deletion")  # if none waits

        system.run(begin)
        time.sleep(min(_TERM, max(0.0, end - time.monotonic())))
        system.run(delete)

    while time.monotonic() < end:
        try:
            Leader(system, "janitor", owner=name, ttl=_TTL).run(lead)
        except (LeaseLostError, StorageUnavailableError, TransactionError):
            _log.warning("%s did not finish its term as leader", name, exc_info=True)


def _count(system: SystemData, stop: threading.Event) -> None:
    """Count the events, each exactly once, as a member of a group."""

    def handle(s: Session, events: Sequence[Message[Event]]) -> None:
        times = Counter((event.body.service, event.body.what) for event in events)
        for event in events:
            times[event.body.service, f"runs {event.body.what}"] += event.body.runs
        for (service, what), number in times.items():
            if number:
                count(s, service, what, number)

    with system.consumer(EVENTS, group="counters", ttl=_TTL) as consumer:
        while not stop.is_set():
            try:
                consumer.process(handle, wait=_WAIT)
            except (LeaseLostError, StorageUnavailableError, TransactionError):
                _log.warning("a member of the group continues after a failure", exc_info=True)
