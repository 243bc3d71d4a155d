"""`Heartbeats`: a thread that extends the jobs of a worker while their handlers run."""

from __future__ import annotations

import logging
import threading
import time
from typing import Self

from structable.datasets.errors import LeaseLostError
from structable.datasets.system_data import SystemData
from structable.datasets.tables.jobs import Job

__all__ = ["Heartbeats"]

_log = logging.getLogger("structable.datasets")


class Heartbeats:
    """Extends each job three times in its timeout. A context manager, whose end ends the thread."""

    def __init__(self, system: SystemData) -> None:
        self._system = system
        self._next: dict[str, tuple[float, Job]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._beat, name="heartbeats of jobs", daemon=True)

    def add(self, job: Job) -> None:
        """Begin to extend a job."""
        with self._changed:
            self._next[job.id] = (time.monotonic() + job.timeout / 3, job)
            self._changed.notify()

    def remove(self, job: Job) -> None:
        """Extend it no more."""
        with self._changed:
            if job.id in self._next and self._next[job.id][1].claims == job.claims:
                del self._next[job.id]

    def _beat(self) -> None:
        while (job := self._wait()) is not None:
            try:
                self._extend(job)
            except LeaseLostError:
                _log.warning("the job %s of queue %r was rescued or cancelled while it ran", job.id, job.queue)
                self.remove(job)
            except Exception:
                # The next beat may succeed; if none does, the job is rescued, and its completion fails.
                _log.warning("the job %s of queue %r could not be extended", job.id, job.queue, exc_info=True)

    def _extend(self, job: Job) -> None:
        self._system.run(lambda s: s.jobs.extend(job))

    def _wait(self) -> Job | None:
        """Return a job whose beat is due, once it is; None at the end."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                first, job = min(self._next.values(), key=lambda one: one[0], default=(now + 3600, None))
                if job is not None and first <= now:
                    self._next[job.id] = (now + job.timeout / 3, job)
                    return job
                self._changed.wait(first - now)
            return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
