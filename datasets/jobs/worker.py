"""`Worker`: claims the jobs of a queue and runs their handlers."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from structable.datasets.coordination.beating import member_name
from structable.datasets.coordination.polling import Polling
from structable.datasets.errors import LeaseLostError
from structable.datasets.session import Session
from structable.datasets.system_data import SystemData
from structable.datasets.tables.jobs import Job
from structable.spi import StorageUnavailableError, TransactionError

from .heartbeats import Heartbeats
from .waiting import Waiting

__all__ = ["Handler", "Worker"]

Handler = Callable[[Session, Job], object]

_log = logging.getLogger("structable.datasets")

_RESCUE_SECONDS = 5.0
_LEAST_SECONDS = 0.05
"""The least pause before the next claim, if the last one found nothing."""
_BUSY_SECONDS = 0.5
"""How often a worker whose threads are all busy looks whether it has to stop."""


class Worker:
    """Runs the jobs of a queue in threads; any number of workers, in any processes, may share a queue.

    A handler is called as `handler(s, job)` in a transaction, in which the job is completed with what it returns: all
    it writes by `s` happens exactly once, or not at all. The transaction is retried after conflicts, and a job whose
    worker dies is run again, so effects outside the transaction may happen twice. A handler that raises fails the job,
    and its transaction is rolled back; so does an absent handler, with `LookupError`.

    Parameters
    ----------
    system : SystemData
        The datasets.
    queue : str
        The queue.
    handlers : mapping of str to callable
        A handler for each kind of job; "" is the kind of jobs that were given none.
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
        """Run jobs until `stop` is set; then claim no more, and return when those that run have ended.

        A handler of a signal may set it. Jobs of stopped workers are rescued meanwhile, those of other queues as well.
        While a store cannot be reached, the worker waits.

        Raises
        ------
        StorageUnavailableError
            If the storage is closed.
        """
        polling, free = Polling(self._system.storage), threading.Semaphore(self._threads)
        with (
            Waiting(self._system, self._queue.name, stop) as waiting,
            Heartbeats(self._system) as heartbeats,
            ThreadPoolExecutor(self._threads, "job") as pool,
        ):
            while not stop.is_set():
                count = _acquired(free, self._threads)
                jobs = [] if stop.is_set() else self._claimed(count)
                for job in jobs:
                    heartbeats.add(job)
                    pool.submit(self._work, job, heartbeats, free)
                for _ in range(count - len(jobs)):
                    free.release()
                if jobs:
                    polling.found()
                elif count:
                    polling.wait(waiting, self._until_due())

    def _claimed(self, count: int) -> list[Job]:
        """Rescue jobs from time to time, and return at most `count` of the queue."""
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
        """Return for how many seconds no job of the queue will be due, unless a signal comes."""
        if not self._system.storage.wakes:
            return math.inf  # it looks each second
        try:
            seconds = self._queue.until_due()
        except (StorageUnavailableError, TransactionError):
            return math.inf  # the next claim says so
        return math.inf if seconds is None else max(_LEAST_SECONDS, seconds)

    def _work(self, job: Job, heartbeats: Heartbeats, free: threading.Semaphore) -> None:
        try:
            self._handle(job)
        except Exception:
            # It stays RUNNING without beats, and is rescued.
            _log.warning("the job %s of queue %r can neither be completed nor failed", job.id, job.queue, exc_info=True)
        finally:
            heartbeats.remove(job)
            free.release()

    def _handle(self, job: Job) -> None:
        def body(s: Session) -> None:
            handler = self._handlers.get(job.kind)
            if handler is None:
                kinds = ", ".join(repr(kind) for kind in self._handlers)
                raise LookupError(f"no handler for the kind {job.kind!r}; there are handlers for: {kinds or 'none'}")
            s.jobs.complete(job, handler(s, job))

        try:
            self._system.run(body)
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


def _acquired(free: threading.Semaphore, most: int) -> int:
    """Acquire all free threads, and return their number; wait a while for the first."""
    if not free.acquire(timeout=_BUSY_SECONDS):
        return 0
    count = 1
    while count < most and free.acquire(blocking=False):
        count += 1
    return count
