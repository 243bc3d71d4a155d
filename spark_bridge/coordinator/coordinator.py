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
import secrets
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import cast

from structable.spark_bridge.base.errors import snapshot_closed
from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import (
    Aggregation,
    FeedPosition,
    Filter,
    ScanSplit,
    StructableError,
    TableSpecification,
    TableStatistics,
    UnsupportedOperationError,
)

from .channel import Channel, ChannelServer, receive, send
from .client import AGAIN, FIRST_SNAPSHOT, HELD, CoordinatorClient
from .feed_streams import Advance, FeedStream, FirstSnapshot, advance, first_snapshot, plan_changes
from .held_plans import Executions, HeldPlan, PlannedSplits, SplitTask
from .query_snapshots import QuerySnapshots
from .replanning import Replanning, Rerun, unpickled_scan
from .stores import OpenStores
from .stream_offsets import StreamOffset, StreamStart
from .write_jobs import OpenWriteJobs

_log = logging.getLogger("structable.spark")

WATCH_SECONDS = 0.5
IDLE_STORE_SECONDS = 60.0
# A connected storage has room for 32 plans, transactions and scans; this many may be plans.
PLANS_PER_CONNECTION = 24


class Coordinator:
    """Plans scans and ends write jobs for an application, and holds their snapshots and connections.

    `parallelism` returns the number of splits for reads that do not specify it; the coordinator closes itself when
    `running` returns false. `zone` returns the time zone of a session. `bind` is the address to listen on for
    executors, and `host` the name by which they reach it.
    """

    def __init__(
        self,
        parallelism: Callable[[], int],
        running: Callable[[], bool],
        executions: Executions,
        zone: Callable[[str], str | None] = lambda session: None,
        bind: str = "127.0.0.1",
        host: str = "127.0.0.1",
    ) -> None:
        self._parallelism = parallelism
        self._running = running
        self._executions = executions
        self._lock = threading.Lock()
        self.held: dict[str, HeldPlan] = {}
        """The plans by their ids; guarded by the lock."""
        self.stores = OpenStores(IDLE_STORE_SECONDS)
        self._snapshots = QuerySnapshots(self.stores)
        self._replanning = Replanning(executions, self._plan)
        jobs = OpenWriteJobs(self.stores)
        self._closed = threading.Event()
        self._process = os.getpid()
        self._secret = secret = secrets.token_bytes(32)
        self._planners = ChannelServer("127.0.0.1", secret, self._serve_planner)
        self._readers = ChannelServer(bind, secret, self._serve_reader)
        self.client = CoordinatorClient(("127.0.0.1", self._planners.port), (host, self._readers.port), secret)
        self.operations: dict[str, Callable[..., object]] = {
            "aggregates": self._aggregates,
            "describe": self._describe,
            "statistics": self._statistics,
            "plan": self._plan,
            "plan_changes": self._plan_changes,
            "zone": zone,
            "latest": self._latest,
            "advance_stream": self._advance_stream,
            "plan_stream": self._plan_stream,
            FIRST_SNAPSHOT: self._first_snapshot,
            "begin_write": jobs.begin,
            "begin_in_run": jobs.begin_in_run,
            "commit_write": jobs.commit,
            "commit_batch": jobs.commit_batch,
            "abort_write": jobs.abort,
            "abort_batch": jobs.abort_batch,
            "leave_write": jobs.leave,
        }
        self._questions: ChannelServer | None = None
        threading.Thread(target=self._watch, name="structable-coordinator-watch", daemon=True).start()
        atexit.register(self.close)

    def answer_driver(self, serve: Callable[[Channel], None]) -> None:
        """Answer questions of the driver's JVM from now on, each by `serve`; idempotent."""
        with self._lock:
            if self._questions is None:
                self._questions = ChannelServer("127.0.0.1", self._secret, serve)

    @property
    def driver_address(self) -> tuple[str, int, bytes]:
        """Host, port and secret for questions of the driver's JVM, which `answer_driver` lets it ask."""
        assert self._questions is not None
        return "127.0.0.1", self._questions.port, self._secret

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
        if self._questions is not None:
            self._questions.close()
        with self._lock:
            plans = list(self.held.values())
            self.held.clear()
        for held in plans:
            held.plan.close()
        self._snapshots.close()
        self.stores.close()

    def shared_snapshots(self) -> int:
        return len(self._snapshots)

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
        try:
            with contextlib.suppress(OSError):  # the client ended; its plan expires with the lease
                try:
                    send(channel, answer)
                except UnsupportedOperationError as error:
                    send(channel, (False, error))
                if isinstance(answer[1], FirstSnapshot):
                    channel.poll(None)  # until the query needs it no more, or its process ends
        finally:
            if isinstance(answer[1], FirstSnapshot):
                self._drop(answer[1].plan_id)

    def _serve_reader(self, channel: Channel) -> None:
        # Executors may be on other machines: from them only text is read, never a pickle.
        try:
            plan_id, _, text = channel.recv_bytes(maxlength=200).decode("ascii", "replace").partition(" ")
            if plan_id == AGAIN:
                self._serve_rerun(channel, text)
                return
            reader = SplitTask.from_text(text)
        except (OSError, EOFError):
            return  # not a reader's message, or the process ended
        except ValueError:
            plan_id, reader = "", SplitTask(0, None, 0)
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

    def _serve_rerun(self, channel: Channel, text: str) -> None:
        scan = channel.recv_bytes()
        try:
            answer: tuple[bool, object] = True, self._planned_again(Rerun.from_text(text), scan)
        except Exception as error:  # the task raises it
            answer = False, _portable(error)
        send(channel, answer)

    def _planned_again(self, rerun: Rerun, scan: bytes) -> PlannedSplits | None:
        with self._lock:
            held = self.held.get(rerun.plan_id)
        unclaimed = held is not None and held.execution is None
        plan_id = self._replanning.replanned(rerun, scan, unclaimed=unclaimed)
        if plan_id is None:
            return None
        with self._lock:
            held = self.held.get(plan_id)
        if held is None:
            raise snapshot_closed(unpickled_scan(scan)[0])
        return PlannedSplits(plan_id, held.plan.splits[rerun.part :: rerun.parts], order=held.order)

    def _describe(self, store: StoreClient, table: str) -> TableSpecification:
        with self.stores.using(store) as storage:
            return storage.admin.get_specification(table)

    def _aggregates(self, store: StoreClient) -> bool:
        with self.stores.using(store) as storage:
            return storage.capabilities.aggregates

    def _statistics(self, store: StoreClient, table: str) -> TableStatistics | None:
        with self.stores.using(store) as storage:
            try:
                return storage.statistics(table)
            except UnsupportedOperationError:
                return None

    def _plan(
        self,
        options: ReadOptions,
        columns: tuple[str, ...] | Aggregation,
        where: Filter | None,
        execution: int | None,
        digest: bytes | None = None,
        *,
        attended: bool = False,
    ) -> PlannedSplits:
        connection = self._snapshots.connection_of(execution, options.store, self._connection_with_room(options.store))
        splits = self._splits(options)
        plan_id = uuid.uuid4().hex
        with self.stores.using(options.store, connection) as storage:
            state, connection = self._snapshots.of(execution, options.store, storage, connection)
            if isinstance(columns, Aggregation):
                plan = state.plan_scan(options.table, where=where, splits=splits, aggregate=columns)
            else:
                plan = state.plan_scan(options.table, where=where, columns=columns, splits=splits)
            order = storage.admin.get_specification(options.table).primary_key if plan.ordered else ()
            self.stores.retain(options.store, connection)
            with self._lock:
                held = self.held[plan_id] = HeldPlan(plan, options, connection, execution, order)
                if attended:
                    held.admit()
        if digest is not None:
            self._replanning.remember(plan_id, execution, digest)
        return PlannedSplits(plan_id, plan.splits, plan.position, order)

    def _plan_changes(self, options: ReadOptions, columns: tuple[str, ...], zone: str | None) -> tuple[ScanSplit, ...]:
        assert options.feed is not None
        with self.stores.using(options.store) as storage:
            feed = storage.changes(options.table)
            since, until = options.feed.range_of(feed, zone)
            plan = feed.plan(since, until, columns=columns, splits=self._splits(options), net=options.feed.net)
        return plan.splits

    def _latest(self, store: StoreClient, table: str) -> FeedPosition:
        with self.stores.using(store) as storage:
            return storage.changes(table).latest()

    def _advance_stream(self, stream: FeedStream, request: Advance) -> FeedPosition | None:
        with self.stores.using(stream.options.store) as storage:
            return advance(stream, storage, request)

    def _plan_stream(
        self, stream: FeedStream, start: StreamStart | StreamOffset, end: FeedPosition
    ) -> tuple[ScanSplit, ...]:
        with self.stores.using(stream.options.store) as storage:
            return plan_changes(stream, storage, start, end, self._splits(stream.options))

    def _first_snapshot(self, stream: FeedStream, position: FeedPosition | None) -> FirstSnapshot:
        planned = self._plan(stream.options, stream.snapshot_columns(position), None, None, attended=True)
        try:
            with self.stores.using(stream.options.store) as storage:
                return first_snapshot(stream, storage, planned, position, self._splits(stream.options))
        except BaseException:
            self._drop(planned.plan_id)
            raise

    def _drop(self, plan_id: str) -> None:
        """Close a plan, unless the coordinator did."""
        with self._lock:
            held = self.held.pop(plan_id, None)
        if held is not None:
            self._close(held)

    def _splits(self, options: ReadOptions) -> int:
        return options.splits or max(1, self._parallelism())

    def _connection_with_room(self, store: StoreClient) -> int:
        """Return the number of a connection with room for a plan.

        When a connection is full, the snapshot idle for longest is closed, snapshots of ended queries first. If all may
        be needed, as in a query of many scans, another connection is opened.
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
        with self._lock:
            planned = {held.execution for held in self.held.values()}
        self._snapshots.expire(self._executions, planned)


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return StructableError(f"{type(error).__name__}: {error}")
    return error
