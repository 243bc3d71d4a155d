"""The coordinator: holds the snapshots and connections of an application's jobs, in the driver's process.

Spark plans a read in a Python process of any lifetime and reports the end of a query to no data source. That process
therefore asks the coordinator for the plan. The coordinator holds it while tasks read it, and for a lease afterwards
that ends early when the query has ended. A task keeps a connection to the coordinator open while it reads, so the end
of its process releases the plan.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import pickle
import random
import secrets
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import cast

from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Filter,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    WriteJob,
)

from .channel import Channel, Listener, receive, send
from .coordinator_client import HELD, CoordinatorClient, PlannedScan
from .held_plans import Executions, HeldPlan, Reader
from .options import ReadOptions, WriteOptions
from .store_client import StoreClient
from .stores import OpenStores

__all__ = ["Coordinator", "commit_with_retries"]

_log = logging.getLogger("structable.spark")

WATCH_SECONDS = 0.5
IDLE_STORE_SECONDS = 60.0
_COMMIT_SECONDS = 60.0
# A connection has room for 32 plans, transactions and scans; this many may be plans.
PLANS_PER_CONNECTION = 24


class Coordinator:
    """Plans scans and ends write jobs for an application, and holds their snapshots and connections.

    `parallelism` returns the number of splits for reads that do not specify it; the coordinator closes itself when
    `running` returns false. `bind` is the address to listen on for executors, and `host` the name by which they reach
    it.
    """

    def __init__(
        self,
        parallelism: Callable[[], int],
        running: Callable[[], bool],
        executions: Executions,
        bind: str = "127.0.0.1",
        host: str = "127.0.0.1",
    ) -> None:
        self._parallelism = parallelism
        self._running = running
        self._executions = executions
        self._lock = threading.Lock()
        self.held: dict[str, HeldPlan] = {}
        """By their ids; guarded by the lock."""
        self.stores = OpenStores(IDLE_STORE_SECONDS)
        self._closed = threading.Event()
        self._process = os.getpid()
        secret = secrets.token_bytes(32)
        self._planners = Listener("127.0.0.1", secret, self._serve_planner)
        self._readers = Listener(bind, secret, self._serve_reader)
        self.client = CoordinatorClient(("127.0.0.1", self._planners.port), (host, self._readers.port), secret)
        self.operations: dict[str, Callable[..., object]] = {
            "describe": self._describe,
            "plan": self._plan,
            "begin_write": self._begin_write,
            "commit_write": self._commit_write,
            "abort_write": self._abort_write,
            "leave_write": self._leave_write,
        }
        threading.Thread(target=self._watch, name="structable-coordinator-watch", daemon=True).start()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Close all snapshots and connections; idempotent. Does nothing in a process forked from the driver's."""
        if self._closed.is_set() or os.getpid() != self._process:
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._planners.close()
        self._readers.close()
        with self._lock:
            plans = list(self.held.values())
            self.held.clear()
        for held in plans:
            held.plan.close()
        self.stores.close()

    def plans(self) -> int:
        with self._lock:
            return len(self.held)

    def _serve_planner(self, channel: Channel) -> None:
        try:
            operation, arguments = cast(tuple[str, tuple[object, ...]], receive(channel))
            answer: tuple[bool, object] = True, self.operations[operation](*arguments)
        except EOFError:
            return  # the client ended before it sent a request
        except Exception as error:  # the client raises it
            answer = False, _portable(error)
        with contextlib.suppress(OSError):  # the client ended; its plan expires with the lease
            try:
                send(channel, answer)
            except UnsupportedOperationError as error:
                send(channel, (False, error))

    def _serve_reader(self, channel: Channel) -> None:
        # Executors may be on other machines: from them only text is read, never a pickle.
        try:
            plan_id, _, text = channel.recv_bytes(maxlength=100).decode("ascii", "replace").partition(" ")
            reader = Reader.from_text(text)
        except (OSError, EOFError):
            return  # not a reader's message, or the process ended
        except ValueError:
            plan_id, reader = "", Reader(0, None, 0)
        with self._lock:
            held = self.held.get(plan_id)
            if held is not None and held.expired(time.monotonic()):
                held = None
            if held is not None:
                held.admit()
        try:
            if held is not None:
                # Asked before the task reads: its query cannot have ended because this read ended.
                late = reader.execution is None or not self._executions.runs(reader.execution)
                with self._lock:
                    held.record(reader, late=late)
            with contextlib.suppress(OSError):  # the reader closed its end: it has finished
                channel.send_bytes(b"ended" if held is None else HELD)
                channel.poll(None)  # until the reader closes its end or its process ends
        finally:
            if held is not None:
                with self._lock:
                    held.leave(reader)

    def _describe(self, store: StoreClient, table: str) -> TableSpecification:
        with self.stores.using(store) as storage:
            return storage.admin.get_specification(table)

    def _plan(
        self, options: ReadOptions, columns: tuple[str, ...], where: Filter | None, execution: int | None
    ) -> PlannedScan:
        connection = self._connection_with_room(options.store)
        splits = options.splits or max(1, self._parallelism())
        plan_id = uuid.uuid4().hex
        with self.stores.using(options.store, connection) as storage:
            plan = storage.plan_scan(options.table, where=where, columns=columns, splits=splits)
            self.stores.retain(options.store, connection)
            with self._lock:
                self.held[plan_id] = HeldPlan(plan, options, connection, execution)
        return PlannedScan(plan_id, plan.splits)

    def _begin_write(self, options: WriteOptions, job_id: str) -> WriteJob:
        with self.stores.using(options.store) as storage:
            job = storage.begin_write(options.table, mode=options.mode, job_id=job_id)
        # Kept open until the job ends: executors may be staging through this process's server.
        self.stores.retain(options.store)
        return job

    def _commit_write(self, store: StoreClient, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        with self.stores.using(store) as storage:
            result, tries = commit_with_retries(storage, job, staged)
        self.stores.release(store)
        if not result and tries == 1:
            _log.warning(
                "table %r: the job %r (option jobId) had been committed before; nothing was written",
                job.table,
                job.job_id,
            )
        return result

    def _abort_write(self, store: StoreClient, job: WriteJob) -> None:
        try:
            with self.stores.using(store) as storage:
                _warn_if_committed(storage, job)
                storage.abort_write(job)
        finally:
            self.stores.release(store)

    def _leave_write(self, store: StoreClient, job: WriteJob) -> None:
        try:
            with self.stores.using(store) as storage:
                _warn_if_committed(storage, job)
        finally:
            self.stores.release(store)

    def _connection_with_room(self, store: StoreClient) -> int:
        """Return the number of a connection with room for a plan.

        When a connection is full, the snapshot idle for longest is closed, those of ended queries first. If all may be
        needed, as in a query of many scans, another connection is opened.
        """
        now = time.monotonic()
        with self._lock:
            plans = {plan_id: held for plan_id, held in self.held.items() if held.options.store == store}
            idle = [plan_id for plan_id, held in plans.items() if held.dispensable(now)]
            if len(plans) >= PLANS_PER_CONNECTION and idle:
                closed_early = self.held.pop(min(idle, key=lambda plan_id: plans[plan_id].need()))
            else:
                used = Counter(held.connection for held in plans.values())
                return next(connection for connection in itertools.count() if used[connection] < PLANS_PER_CONNECTION)
        self._close(closed_early)
        return closed_early.connection

    def _close(self, held: HeldPlan) -> None:
        try:
            held.plan.close()
        finally:
            self.stores.release(held.options.store, held.connection)

    def _watch(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            if not self._running():
                self.close()
                return
            try:
                self.expire()
                self.stores.close_idle()
            except Exception:  # of one store; snapshots of the others must still end
                _log.exception("a snapshot or a connection could not be closed")

    def expire(self) -> None:
        """Close the snapshots whose lease or grace is over; a background thread does so continuously."""
        with self._lock:
            plans = list(self.held.values())
        for held in plans:
            visits = held.visits
            over = held.is_over(self._executions)
            with self._lock:
                if held.visits == visits:
                    held.mark(over=over)
        now = time.monotonic()
        with self._lock:
            ended = [plan_id for plan_id, held in self.held.items() if held.expired(now)]
            expired = [self.held.pop(plan_id) for plan_id in ended]
        for held in expired:
            _log.info("table %r: closing a snapshot, %s", held.options.table, held.reason(now))
            self._close(held)


def commit_with_retries(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> tuple[CommitResult, int]:
    """Commit a job with retries; return the result and the number of tries."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    pause = 0.01
    for tries in itertools.count(1):
        try:
            return storage.commit_write(job, staged), tries
        except (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError):
            # A committed job is never committed twice, so even an unknown outcome is safe to retry.
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(random.uniform(0.0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("itertools.count() has no end")


def _warn_if_committed(storage: Storage, job: WriteJob) -> None:
    """Log a committed job that Spark reports as failed: its process died before it reported the commit."""
    try:
        committed = storage.begin_write(job.table, mode=job.mode, job_id=job.job_id).committed
    except StructableError:
        return  # probably the cause of the job's end, and reported as such
    if committed and not job.committed:
        _log.warning(
            "table %r: the job %r was committed and its rows are visible, although Spark reports a failure",
            job.table,
            job.job_id,
        )


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return StructableError(f"{type(error).__name__}: {error}")
    return error
