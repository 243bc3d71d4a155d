"""`Worker`: claims the jobs of a queue and runs their handlers."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Self

from structable.datasets.coordination.beats import member_name
from structable.datasets.coordination.polling import Polling
from structable.datasets.errors import LeaseLostError
from structable.datasets.session import Session
from structable.datasets.system.context import Context
from structable.datasets.system.job_moves import queue_channel
from structable.datasets.system.jobs import Jobs
from structable.datasets.system_data import SystemData
from structable.datasets.tables.jobs import Job
from structable.spi import Listener, StorageUnavailableError, TransactionError
from structable.spi.authors import wait_for_any

Handler = Callable[[Session, Job], object]

_log = logging.getLogger("structable.datasets")

_RESCUE_SECONDS = 5.0
_LEAST_SECONDS = 0.05
"""The shortest pause before the next claim, in seconds, if the last one found nothing."""
_BUSY_SECONDS = 0.5
"""The interval, in seconds, at which a worker with no free thread checks whether it has to stop."""


class Worker:
    """Runs the jobs of a queue in threads; any number of workers, in any processes, may share a queue.

    A handler is called as `handler(s, job)` in a transaction, which also completes the job with its result: all its
    writes through `s` happen exactly once, or not at all. The transaction is retried after conflicts, and a job whose
    worker dies is run again, so effects outside the transaction may happen twice. A handler that raises fails the job,
    and its transaction is rolled back; a missing handler fails the job with `LookupError`. A job that the handler
    itself snoozes, fails, cancels or completes by `s.jobs` is not completed again.

    Parameters
    ----------
    system : SystemData
        The datasets.
    queue : str
        The queue.
    handlers : mapping of str to callable
        A handler for each kind of job; "" is the kind of jobs without one.
    threads : int
        The number of jobs that run at once.

    Raises
    ------
    ValueError
        If there are no threads, or the queue has no valid name.
    """

    def __init__(self, system: SystemData, queue: str, handlers: Mapping[str, Handler], threads: int = 4) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ValueError(f"threads is {threads!r}; it must be an integer from 1")
        self.name = member_name()
        self._system = system
        self._queue = system.queue(queue)
        self._handlers = dict(handlers)
        self._threads = threads
        self._rescue_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Run jobs until `stop` is set; then claim no more, and return when the running jobs have ended.

        A signal handler may set it. The worker also rescues jobs of stopped workers, in other queues as well. While the
        store is unreachable, it waits.

        Raises
        ------
        StorageUnavailableError
            If the storage is closed.
        """
        polling, free = Polling(self._system.storage), SimpleQueue[None]()
        for _ in range(self._threads):
            free.put(None)
        heartbeats = _JobExtender(self._system)
        try:
            with (
                _Waiting(self._system, self._queue.name, stop) as waiting,
                ThreadPoolExecutor(self._threads, "job") as pool,
            ):
                heartbeats.thread.start()
                while not stop.is_set():
                    count = _acquired(free, self._threads)
                    jobs = [] if stop.is_set() else self._claimed(count)
                    for job in jobs:
                        heartbeats.changes.put((job, True))
                        pool.submit(self._work, job, heartbeats, free)
                    for _ in range(count - len(jobs)):
                        free.put(None)
                    if jobs:
                        polling.found()
                    elif count:
                        polling.wait(waiting, self._until_due())
        finally:
            heartbeats.changes.put(None)  # first, and in C: no signal's exception comes before it
            if heartbeats.thread.is_alive():  # not if its start was interrupted
                heartbeats.thread.join()

    def _claimed(self, count: int) -> list[Job]:
        """Rescue jobs from time to time; claim and return at most `count` jobs of the queue."""
        try:
            if time.monotonic() >= self._rescue_at:
                self._rescue_at = time.monotonic() + _RESCUE_SECONDS
                while self._system.run(lambda s: s.jobs.rescue()):
                    pass
            return self._queue.claim(self.name, count) if count else []
        except (StorageUnavailableError, TransactionError):
            if self._system.storage.closed:
                raise
            _log.warning("the queue %r could not be read; trying again", self._queue.name, exc_info=True)
            return []

    def _until_due(self) -> float:
        """Return the seconds until a job of the queue is due, unless a signal comes first."""
        if not self._system.storage.wakes:
            return math.inf  # without signals the worker looks each second
        try:
            seconds = self._queue.until_due()
        except (StorageUnavailableError, TransactionError):
            return math.inf  # the next claim reports it
        return math.inf if seconds is None else max(_LEAST_SECONDS, seconds)

    def _work(self, job: Job, heartbeats: _JobExtender, free: SimpleQueue[None]) -> None:
        try:
            self._handle(job)
        except Exception:
            # It stays RUNNING without beats, and is rescued.
            _log.warning("the job %s of queue %r can neither be completed nor failed", job.id, job.queue, exc_info=True)
        finally:
            heartbeats.changes.put((job, False))
            free.put(None)

    def _handle(self, job: Job) -> None:
        def body(context: Context) -> None:
            handler = self._handlers.get(job.kind)
            if handler is None:
                kinds = ", ".join(repr(kind) for kind in self._handlers)
                raise LookupError(f"no handler for the kind {job.kind!r}; there are handlers for: {kinds or 'none'}")
            result = handler(Session(context), job)
            if job.id not in context.moved_jobs:
                Jobs(context).complete(job, result)

        try:
            self._system._run_in_context(body)
        except LeaseLostError as error:
            if error.lease != job.id:
                self._fail(job, error)
                return
            _log.warning("the job %s of queue %r was rescued or cancelled while it ran", job.id, job.queue)
        except BaseException as error:  # a handler's SystemExit would only end this thread
            self._fail(job, error)

    def _fail(self, job: Job, error: BaseException) -> None:
        _log.warning("the job %s of queue %r failed", job.id, job.queue, exc_info=error)
        try:
            self._system.run(lambda s: s.jobs.fail(job, error))
        except LeaseLostError:
            # It was taken from this worker, or a commit whose outcome was unknown had completed it.
            _log.warning("the job %s of queue %r had ended, or was taken from this worker", job.id, job.queue)


class _Waiting:
    """Waits for a signal of a queue, or for an event. A context manager, for one thread.

    A job that becomes due by the clock alone sends no signal.
    """

    def __init__(self, system: SystemData, queue: str, stop: threading.Event) -> None:
        self._storage = system.storage
        self._channel = queue_channel(system.prefix, queue)
        self._stop = stop
        self._listener: Listener | None = None

    def wait(self, timeout: float, /) -> bool:
        """Return True at the first signal or once the event is set, and False when the time is over."""
        if self._listener is None:
            try:
                self._listener = self._storage.listen([self._channel])
            except StorageUnavailableError:
                if self._storage.closed:
                    raise
                _log.warning("signals of %r cannot be had; trying again", self._channel, exc_info=True)
                return self._stop.wait(timeout)
            return True  # the listener misses an earlier commit: look again
        return wait_for_any([self._listener], self._stop, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._listener is not None:
            self._listener.close()


class _JobExtender:
    """Extends each job three times in its timeout, by a thread that owns all state: no lock can stay taken.

    Attributes
    ----------
    changes : queue of (job, whether it runs) or None
        Tells the thread of jobs that begin and end; None ends the thread.
    thread : threading.Thread
        The thread, to be started.
    """

    def __init__(self, system: SystemData) -> None:
        self._system = system
        self._next: dict[str, tuple[float, Job]] = {}
        self.changes: SimpleQueue[tuple[Job, bool] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="heartbeats of jobs", daemon=True)

    def _run(self) -> None:
        while True:
            due, job = min(self._next.values(), key=lambda one: one[0], default=(0.0, None))
            try:
                change = self.changes.get(timeout=None if job is None else max(0.0, due - time.monotonic()))
            except Empty:
                assert job is not None
                self._beat(job)
                continue
            if change is None:
                return
            changed, runs = change
            if runs:
                self._schedule(changed)
            else:
                self._remove(changed)

    def _schedule(self, job: Job) -> None:
        self._next[job.id] = (time.monotonic() + job.timeout / 3, job)

    def _remove(self, job: Job) -> None:
        if job.id in self._next and self._next[job.id][1].claims == job.claims:
            del self._next[job.id]

    def _beat(self, job: Job) -> None:
        self._schedule(job)
        try:
            self._extend(job)
        except LeaseLostError:
            _log.warning("the job %s of queue %r was rescued or cancelled while it ran", job.id, job.queue)
            self._remove(job)
        except Exception:
            # The next beat may succeed; if none does, the job is rescued, and its completion fails.
            _log.warning("the job %s of queue %r could not be extended", job.id, job.queue, exc_info=True)

    def _extend(self, job: Job) -> None:
        self._system.run(lambda s: s.jobs.extend(job))


def _acquired(free: SimpleQueue[None], most: int) -> int:
    """Acquire all free threads, and return their number; wait a while for the first."""
    # Not a semaphore, which is Python: a signal's exception in it would leave its lock taken.
    count = 0
    with suppress(Empty):  # the others are busy
        while count < most:
            free.get(timeout=0 if count else _BUSY_SECONDS)
            count += 1
    return count
