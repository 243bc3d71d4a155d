"""Jobs: queues of work in the same store, and the same transactions, as the data.

`s.jobs` of a session has the operations, `system.queue(name)` claims, and a `Worker` runs handlers. `SystemData` makes
the tables.
"""

from __future__ import annotations

from structable.datasets.system.jobs import Enqueued, Jobs
from structable.datasets.system.queues import Queue
from structable.datasets.tables.jobs import Job, JobState

from .worker import Handler, Worker

__all__ = ["Enqueued", "Handler", "Job", "JobState", "Jobs", "Queue", "Worker"]
