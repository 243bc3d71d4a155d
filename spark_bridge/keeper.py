"""The keeper: lives in the driver's process, and holds the snapshots and connections of the application's jobs.

Spark plans a read in a Python process that it ends when it likes, and tells nobody when a query is over. So that
process asks the keeper to plan, and the keeper holds the plan for as long as somebody reads it, and for the length of a
lease afterwards. A reader holds a connection to the keeper while it reads; whatever ends the reader ends that too.
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
from dataclasses import dataclass
from typing import cast

from structable.spi import (
    CommitOutcomeUnknownError,
    Filter,
    ScanPlan,
    StagedWrite,
    StorageUnavailableError,
    StructableError,
    TableSpecification,
    TransactionConflictError,
    WriteJob,
)

from .channel import Channel, Door
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
# A plan so young may be about to be read for the first time.
_YOUNG_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class _HeldPlan:
    plan: ScanPlan
    store: StoreAddress
    lane: int
    lease: float
    idle_since: float
    readers: int = 0
    was_read: bool = False


class Keeper:
    """Plans scans and ends write jobs for an application, and holds what these need.

    Parameters
    ----------
    parallelism : callable
        Returns the number of splits where a read does not give it.
    running : callable
        Tells whether the application still runs; when it does not, the keeper closes itself.
    bind, host : str
        The address to listen on for executors, and the name by which they reach it.
    """

    def __init__(
        self,
        parallelism: Callable[[], int],
        running: Callable[[], bool],
        bind: str = "127.0.0.1",
        host: str = "127.0.0.1",
    ) -> None:
        self._parallelism = parallelism
        self._running = running
        self._lock = threading.Lock()
        self._plans: dict[str, _HeldPlan] = {}
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
            operation, arguments = cast(tuple[str, tuple[object, ...]], channel.recv())
            answer: tuple[bool, object] = True, self._operations[operation](*arguments)
        except EOFError:
            return  # the asker ended before it asked
        except Exception as error:  # it is the asker's
            answer = False, _portable(error)
        with contextlib.suppress(OSError):  # the asker ended; a plan made for it has its lease
            channel.send(answer)

    def _serve_reader(self, channel: Channel) -> None:
        # Only text is read from executors, which may be elsewhere: never a pickle.
        try:
            plan_id = channel.recv_bytes(maxlength=100).decode("ascii", "replace")
        except (OSError, EOFError):
            return  # no reader's message, or its process has ended
        with self._lock:
            held = self._plans.get(plan_id)
            if held is not None and held.readers == 0 and _expired(held, time.monotonic()):
                held = None
            if held is not None:
                held.readers += 1
                held.was_read = True
        with contextlib.suppress(OSError):  # it is gone: the reader's way to say that it has finished
            channel.send_bytes(b"ended" if held is None else HELD)
            channel.poll(None)  # until the reader closes its end, or its process ends
        if held is not None:
            with self._lock:
                held.readers -= 1
                held.idle_since = time.monotonic()

    def _describe(self, store: StoreAddress, table: str) -> TableSpecification:
        with self._stores.using(store) as storage:
            return storage.admin.get_specification(table)

    def _plan(self, options: ReadOptions, columns: tuple[str, ...], where: Filter | None) -> PlannedScan:
        lane = self._lane(options.store)
        splits = options.splits or max(1, self._parallelism())
        plan_id = uuid.uuid4().hex
        with self._stores.using(options.store, lane) as storage:
            plan = storage.plan_scan(options.table, where=where, columns=columns, splits=splits)
            self._stores.retain(options.store, lane)
            with self._lock:
                self._plans[plan_id] = _HeldPlan(plan, options.store, lane, options.lease, time.monotonic())
        return PlannedScan(plan_id, plan.splits)

    def _begin_write(self, options: WriteOptions, job_id: str) -> WriteJob:
        with self._stores.using(options.store) as storage:
            job = storage.begin_write(options.table, mode=options.mode, job_id=job_id)
        # Kept open until the job ends: executors may be staging through this connection's server.
        self._stores.retain(options.store)
        return job

    def _commit_write(self, store: StoreAddress, job: WriteJob, staged: list[StagedWrite]) -> None:
        deadline = time.monotonic() + _COMMIT_SECONDS
        pause = 0.01
        with self._stores.using(store) as storage:
            while True:
                try:
                    storage.commit_write(job, staged)
                    break
                except (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError):
                    # A job that was committed is not committed again, so that even an unknown outcome is safe to retry.
                    if time.monotonic() + pause > deadline:
                        raise
                time.sleep(random.uniform(0.0, pause))
                pause = min(pause * 2, 2.0)
        self._stores.release(store)

    def _abort_write(self, store: StoreAddress, job: WriteJob) -> None:
        try:
            with self._stores.using(store) as storage:
                storage.abort_write(job)
        finally:
            self._stores.release(store)

    def _leave_write(self, store: StoreAddress) -> None:
        self._stores.release(store)

    def _lane(self, store: StoreAddress) -> int:
        """Return a connection with room for a plan.

        When one is full, the snapshot is given up that has been idle for longest; where all may be needed, as in a
        query of many scans, there will be another connection.
        """
        now = time.monotonic()
        with self._lock:
            plans = [(held.idle_since, plan_id) for plan_id, held in self._plans.items() if held.store == store]
            idle = [entry for entry in plans if _dispensable(self._plans[entry[1]], now)]
            if len(plans) >= _PLANS_PER_LANE and idle:
                given_up = self._plans.pop(min(idle)[1])
            else:
                used = Counter(held.lane for held in self._plans.values() if held.store == store)
                return next(lane for lane in itertools.count() if used[lane] < _PLANS_PER_LANE)
        self._give_up(given_up)
        return given_up.lane

    def _give_up(self, held: _HeldPlan) -> None:
        try:
            held.plan.close()
        finally:
            self._stores.release(held.store, held.lane)

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
        now = time.monotonic()
        with self._lock:
            ended = [plan_id for plan_id, held in self._plans.items() if held.readers == 0 and _expired(held, now)]
            plans = [self._plans.pop(plan_id) for plan_id in ended]
        for held in plans:
            self._give_up(held)


def _dispensable(held: _HeldPlan, now: float) -> bool:
    return held.readers == 0 and (held.was_read or now - held.idle_since > _YOUNG_SECONDS)


def _expired(held: _HeldPlan, now: float) -> bool:
    return now - held.idle_since > held.lease


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return StructableError(f"{type(error).__name__}: {error}")
    return error
