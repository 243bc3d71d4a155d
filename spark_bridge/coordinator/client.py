"""The way from planning processes and executors to the coordinator in the driver's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from typing import cast

from pyspark.sql.types import StructType

from structable.spark_bridge.base.errors import snapshot_closed
from structable.spark_bridge.base.options import ReadOptions
from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import (
    Aggregation,
    CommitResult,
    FeedPosition,
    Filter,
    ScanSplit,
    StagedWrite,
    StorageUnavailableError,
    TableSpecification,
    TableStatistics,
    WriteJob,
)

from .channel import Address, Channel, open_channel, receive, send
from .feed_streams import Advance, FeedStream, FirstSnapshot
from .held_plans import PlannedSplits, SplitTask
from .replanning import Rerun
from .stream_offsets import StreamOffset, StreamStart

FIRST_SNAPSHOT = "first_snapshot"
"""The operation whose answer is a plan that is held as long as the connection."""
HELD = b"held"
AGAIN = "again"
"""The first word in the message of a task that belongs to another execution than its plan."""

_log = logging.getLogger("structable.spark")


class HeldFirstSnapshot:
    """A first snapshot of a stream, which the coordinator holds until this is closed or its process ends."""

    def __init__(self, snapshot: FirstSnapshot, channel: Channel) -> None:
        self.snapshot = snapshot
        self._channel = channel

    def close(self) -> None:
        """Give the snapshot up; idempotent."""
        self._channel.close()


@dataclass(frozen=True, slots=True)
class CoordinatorClient:
    """Reaches the coordinator from any process of the application; picklable.

    Processes on the driver's machine plan at one address, executors read at another.
    """

    planners: Address
    readers: Address
    secret: bytes = field(repr=False)

    def describe(self, store: StoreClient, table: str) -> TableSpecification:
        return cast(TableSpecification, self._ask("describe", store, table))

    def aggregates(self, store: StoreClient) -> bool:
        """Return whether plans of a store take aggregates."""
        return cast(bool, self._ask("aggregates", store))

    def statistics(self, store: StoreClient, table: str) -> TableStatistics | None:
        """Return the size of a table, or None if its store does not know it."""
        return cast("TableStatistics | None", self._ask("statistics", store, table))

    def plan(
        self,
        options: ReadOptions,
        columns: tuple[str, ...] | Aggregation,
        where: Filter | None,
        execution: int | None = None,
        digest: bytes | None = None,
    ) -> PlannedSplits:
        """Take a snapshot, which the coordinator holds until it has not been read for `options.lease` seconds.

        Once the execution has ended, and all others whose tasks read the snapshot, it is held for another
        `options.grace` seconds, renewed by reading. With a `digest` (`replanning.digest_of`) tasks may have the scan
        `planned_again`.
        """
        return cast(PlannedSplits, self._ask("plan", options, columns, where, execution, digest))

    def plan_changes(self, options: ReadOptions, columns: Sequence[str], zone: str | None) -> tuple[ScanSplit, ...]:
        """Divide the range of a table's change feed, and hold nothing; times without an offset are of the time zone."""
        return cast(tuple[ScanSplit, ...], self._ask("plan_changes", options, tuple(columns), zone))

    def run_catalog_command(self, request: object) -> StructType:
        """Carry out a request of a catalog, see `catalog.commands`; the answer is in the schema and its metadata."""
        return cast(StructType, self._ask("run_catalog_command", request))

    def zone(self, session: str) -> str | None:
        """Return the time zone of a session, if that is known."""
        return cast("str | None", self._ask("zone", session))

    def latest(self, store: StoreClient, table: str) -> FeedPosition:
        """Return the newest position of a table's feed."""
        return cast(FeedPosition, self._ask("latest", store, table))

    def advance_stream(self, stream: FeedStream, request: Advance) -> FeedPosition | None:
        """Return the end of a stream's next micro-batch, or None if there need be none."""
        return cast("FeedPosition | None", self._ask("advance_stream", stream, request))

    def plan_stream(
        self, stream: FeedStream, start: StreamStart | StreamOffset, end: FeedPosition
    ) -> tuple[ScanSplit, ...]:
        """Divide the changes of a micro-batch, and hold nothing."""
        return cast(tuple[ScanSplit, ...], self._ask("plan_stream", stream, start, end))

    def first_snapshot(self, stream: FeedStream, position: FeedPosition | None = None) -> HeldFirstSnapshot:
        """Take the first snapshot of a stream, or rebuild the one that was taken at a position."""
        channel = self._open()
        try:
            return HeldFirstSnapshot(cast(FirstSnapshot, _answer(channel, FIRST_SNAPSHOT, (stream, position))), channel)
        except BaseException:
            channel.close()
            raise

    def begin_write(self, store: StoreClient, job: WriteJob, *, run: str | None = None) -> WriteJob:
        """Begin a write job that was requested; a batch of a stream once in a run of its query, else ValueError."""
        if run is None:
            return cast(WriteJob, self._ask("begin_write", store, job))
        return cast(WriteJob, self._ask("begin_in_run", store, job, run))

    def commit_write(self, store: StoreClient, job: WriteJob, staged: Sequence[StagedWrite]) -> CommitResult:
        """Commit a write job, with retries. The driver logs a warning if the job had been committed before."""
        return cast(CommitResult, self._ask("commit_write", store, job, list(staged)))

    def commit_batch(self, store: StoreClient, job: WriteJob, staged: Sequence[StagedWrite]) -> CommitResult:
        """Commit a batch of a stream that began in tasks, with retries."""
        return cast(CommitResult, self._ask("commit_batch", store, job, list(staged)))

    def abort_write(self, store: StoreClient, job: WriteJob) -> None:
        self._ask("abort_write", store, job)

    def abort_batch(self, store: StoreClient, job: WriteJob) -> None:
        """Drop the staged rows of a batch of a stream that began in tasks, unless it is committed."""
        self._ask("abort_batch", store, job)

    def leave_write(self, store: StoreClient, job: WriteJob) -> None:
        """End this application's part in a write job, neither committed nor aborted."""
        self._ask("leave_write", store, job)

    @contextmanager
    def holding(self, plan_id: str, options: ReadOptions, reader: SplitTask) -> Iterator[None]:
        """Keep a plan's snapshot open for a `with` block, however long it takes.

        Raises `TransactionClosedError` if the coordinator has closed the plan.
        """
        try:
            channel = open_channel(self.readers, self.secret)
        except (OSError, EOFError, AuthenticationError) as error:
            # Without the coordinator the snapshot lasts at least for its lease, and the store rejects later reads.
            _log.warning(
                "table %r: the lease of a snapshot cannot be renewed at %s:%s: %r", options.table, *self.readers, error
            )
            yield
            return
        with channel:
            channel.send_bytes(f"{plan_id} {reader.to_text()}".encode())
            try:
                held = channel.recv_bytes() == HELD
            except (OSError, EOFError):
                held = False
            if not held:
                raise snapshot_closed(options)
            yield

    def planned_again(self, rerun: Rerun, scan: bytes) -> PlannedSplits | None:
        """Return the plan of this execution for a task, with the splits that are its share; None if it has none.

        The task then reads its own splits. Raises what planning raises, and `TransactionClosedError` if the plan is
        closed.
        """
        with _opened(self.readers, self.secret) as channel:
            with _answering():
                channel.send_bytes(f"{AGAIN} {rerun.to_text()}".encode())
                channel.send_bytes(scan)
            return cast("PlannedSplits | None", _received(channel))

    def _ask(self, operation: str, *arguments: object) -> object:
        with self._open() as channel:
            return _answer(channel, operation, arguments)

    def _open(self) -> Channel:
        return _opened(self.planners, self.secret)


def _opened(address: Address, secret: bytes) -> Channel:
    with _answering():
        return open_channel(address, secret)


def _answer(channel: Channel, operation: str, arguments: tuple[object, ...]) -> object:
    with _answering():
        send(channel, (operation, arguments))
    return _received(channel)


def _received(channel: Channel) -> object:
    with _answering():
        done, answer = cast(tuple[bool, object], receive(channel))
    if done:
        return answer
    raise cast(Exception, answer)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, AuthenticationError) as error:
        raise StorageUnavailableError(
            f"the coordinator in the driver does not answer ({error!r}); it ends with the application, "
            "and register(spark) starts a new one"
        ) from None
