"""The keeper: lives in the driver's process, and holds the snapshots and connections of the application's jobs.

Spark plans a read in a Python process that it ends when it likes, and tells nobody when a query is over. So that
process asks the keeper to plan, and the keeper holds the plan for as long as somebody reads it, and for the length of a
lease afterwards, which ends early when the query has ended. A reader holds a connection to the keeper while it reads;
the end of the reader ends that too.
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

from .channel import Channel, Door, receive, send
from .held_plans import Executions, HeldPlan, Reader
from .keeper_client import HELD, KeeperClient, PlannedScan
from .options import ReadOptions, StoreAddress, WriteOptions
from .stores import OpenStores

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)

_WATCH_SECONDS = 0.5
_IDLE_STORE_SECONDS = 60.0
_COMMIT_SECONDS = 60.0
# Of the 32 places that a connection has for plans, transactions and scans, this many are for plans.
_PLANS_PER_LANE = 24


class Keeper:
    """Plans scans and ends write jobs for an application, and holds what these need.

    Parameters
    ----------
    parallelism : callable
        Returns the number of splits where a read does not give it.
    running : callable
        Tells whether the application still runs; when it does not, the keeper closes itself.
    executions : Executions
        Tells which of its queries run.
    bind, host : str
        The address to listen on for executors, and the name by which they reach it.
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
        self._plans: dict[str, HeldPlan] = {}
        self._stores = OpenStores(_IDLE_STORE_SECONDS)
        self._closed = threading.Event()
        self._process = os.getpid()
        secret = secrets.token_bytes(32)
        self._planners = Door("127.0.0.1", secret, self._serve_planner)
        self._readers = Door(bind, secret, self._serve_reader)
        self.client = KeeperClient(("127.0.0.1", self._planners.port), (host, self._readers.port), secret)
        self._operations: dict[str, Callable[..., object]] = {
            "describe": self._describe,
            "plan": self._plan,
            "begin_write": self._begin_write,
            "commit_write": self._commit_write,
            "abort_write": self._abort_write,
            "leave_write": self._leave_write,
        }
        threading.Thread(target=self._watch, name="structable-keeper-watch", daemon=True).start()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        """Whether the keeper was closed."""
        return self._closed.is_set()

    def close(self) -> None:
        """Give up all snapshots and connections; idempotent. In a process forked from the driver's it does nothing."""
        if self._closed.is_set() or os.getpid() != self._process:
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._planners.close()
        self._readers.close()
        with self._lock:
            plans = list(self._plans.values())
            self._plans.clear()
        for held in plans:
            held.plan.close()
        self._stores.close()

    def plans(self) -> int:
        """Return the number of snapshots that are held."""
        with self._lock:
            return len(self._plans)

    def _serve_planner(self, channel: Channel) -> None:
        try:
            operation, arguments = cast(tuple[str, tuple[object, ...]], receive(channel))
            answer: tuple[bool, object] = True, self._operations[operation](*arguments)
        except EOFError:
            return  # the asker ended before it asked
        except Exception as error:  # it is the asker's
            answer = False, _portable(error)
        with contextlib.suppress(OSError):  # the asker ended; a plan made for it has its lease
            try:
                send(channel, answer)
            except UnsupportedOperationError as error:
                send(channel, (False, error))

    def _serve_reader(self, channel: Channel) -> None:
        # Only text is read from executors, which may be elsewhere: never a pickle.
        try:
            plan_id, _, text = channel.recv_bytes(maxlength=100).decode("ascii", "replace").partition(" ")
            reader = Reader.from_text(text)
        except (OSError, EOFError):
            return  # no reader's message, or its process has ended
        except ValueError:
            plan_id, reader = "", Reader(0, None, 0)
        with self._lock:
            held = self._plans.get(plan_id)
            if held is not None and held.expired(time.monotonic()):
                held = None
            if held is not None:
                held.admit()
        try:
            if held is not None:
                # Asked before it reads, when its query cannot have ended by that.
                late = reader.execution is None or not self._executions.runs(reader.execution)
                with self._lock:
                    held.note(reader, late=late)
            with contextlib.suppress(OSError):  # it is gone: the reader's way to say that it has finished
                channel.send_bytes(b"ended" if held is None else HELD)
                channel.poll(None)  # until the reader closes its end, or its process ends
        finally:
            if held is not None:
                with self._lock:
                    held.leave(reader)

    def _describe(self, store: StoreAddress, table: str) -> TableSpecification:
        with self._stores.using(store) as storage:
            return storage.admin.get_specification(table)

    def _plan(
        self, options: ReadOptions, columns: tuple[str, ...], where: Filter | None, execution: int | None
    ) -> PlannedScan:
        lane = self._lane(options.store)
        splits = options.splits or max(1, self._parallelism())
        plan_id = uuid.uuid4().hex
        with self._stores.using(options.store, lane) as storage:
            plan = storage.plan_scan(options.table, where=where, columns=columns, splits=splits)
            self._stores.retain(options.store, lane)
            with self._lock:
                self._plans[plan_id] = HeldPlan(plan, options, lane, execution)
        return PlannedScan(plan_id, plan.splits)

    def _begin_write(self, options: WriteOptions, job_id: str) -> WriteJob:
        with self._stores.using(options.store) as storage:
            job = storage.begin_write(options.table, mode=options.mode, job_id=job_id)
        # Kept open until the job ends: executors may be staging through this connection's server.
        self._stores.retain(options.store)
        return job

    def _commit_write(self, store: StoreAddress, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        with self._stores.using(store) as storage:
            result, tries = _commit(storage, job, staged)
        self._stores.release(store)
        if not result and tries == 1:
            _log.warning(
                "table %r: the job %r (option jobId) had been committed before; nothing was written",
                job.table,
                job.job_id,
            )
        return result

    def _abort_write(self, store: StoreAddress, job: WriteJob) -> None:
        try:
            with self._stores.using(store) as storage:
                _warn_if_committed(storage, job)
                storage.abort_write(job)
        finally:
            self._stores.release(store)

    def _leave_write(self, store: StoreAddress, job: WriteJob) -> None:
        try:
            with self._stores.using(store) as storage:
                _warn_if_committed(storage, job)
        finally:
            self._stores.release(store)

    def _lane(self, store: StoreAddress) -> int:
        """Return a connection with room for a plan.

        When one is full, the snapshot is given up that has been idle for longest, of ended queries first; where all may
        be needed, as in a query of many scans, there will be another connection.
        """
        now = time.monotonic()
        with self._lock:
            plans = {plan_id: held for plan_id, held in self._plans.items() if held.options.store == store}
            idle = [plan_id for plan_id, held in plans.items() if held.dispensable(now)]
            if len(plans) >= _PLANS_PER_LANE and idle:
                given_up = self._plans.pop(min(idle, key=lambda plan_id: plans[plan_id].need()))
            else:
                used = Counter(held.lane for held in plans.values())
                return next(lane for lane in itertools.count() if used[lane] < _PLANS_PER_LANE)
        self._give_up(given_up)
        return given_up.lane

    def _give_up(self, held: HeldPlan) -> None:
        try:
            held.plan.close()
        finally:
            self._stores.release(held.options.store, held.lane)

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            if not self._running():
                self.close()
                return
            try:
                self._expire()
                self._stores.close_idle()
            except Exception:  # a store's; the others' snapshots must still end
                _log.exception("a snapshot or a connection could not be closed")

    def _expire(self) -> None:
        with self._lock:
            plans = list(self._plans.values())
        for held in plans:
            visits = held.visits
            over = held.is_over(self._executions)
            with self._lock:
                if held.visits == visits:
                    held.mark(over=over)
        now = time.monotonic()
        with self._lock:
            ended = [plan_id for plan_id, held in self._plans.items() if held.expired(now)]
            expired = [self._plans.pop(plan_id) for plan_id in ended]
        for held in expired:
            self._give_up(held)


def _commit(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> tuple[CommitResult, int]:
    """Commit a job, again where that may help, and return in how many tries."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    pause = 0.01
    for tries in itertools.count(1):
        try:
            return storage.commit_write(job, staged), tries
        except (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError):
            # A job that was committed is not committed again, so that even an unknown outcome is safe to retry.
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(random.uniform(0.0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("the count has no end")


def _warn_if_committed(storage: Storage, job: WriteJob) -> None:
    """Log that a job is committed which Spark takes for failed: the process died before it reported the commit."""
    try:
        committed = storage.begin_write(job.table, mode=job.mode, job_id=job.job_id).committed
    except StructableError:
        return  # what ended the job may be the reason, and comes out by itself
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
