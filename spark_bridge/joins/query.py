"""Foreign-key joins on Spark: `start_join`, `join_available`, and `open_join` for programs with their own queries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from structable.spark_bridge.base.micro_batches import check_trigger, require_streaming
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spi import UnsupportedOperationError, mask_url

from .definition import ForeignKeyJoin
from .distributed import SparkSteps
from .feed_moves import feed_moves
from .progress import JoinProgress
from .rebuild import LargeSteps
from .worker import PASSING, JoinWorker

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_log = logging.getLogger("structable.joins")

_SHORTEST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


def start_join(
    spark: SparkSession,
    join: ForeignKeyJoin,
    *,
    trigger: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    small: int = 10_000,
    large: int = 1_000_000,
) -> StreamingQuery:
    """Start a streaming query that keeps the result of a join up to date.

    The query catches up first, and then takes a step whenever the feed of one of the tables moves. Its steps, small and
    large, are like those of a `JoinWorker`, and any number of queries and workers may run one join; `open_join` says
    which work Spark does. After a transient error, such as an unreachable store, the step is tried again; any other
    error ends the query.

    Parameters
    ----------
    spark : SparkSession
        A session of this process.
    join : ForeignKeyJoin
        The join.
    trigger : mapping, optional
        The arguments of `DataStreamWriter.trigger`. With `{"availableNow": True}` the query ends once it has caught up.
    checkpoint : str, optional
        The folder of the query's checkpoint, a temporary one if not given. It holds nothing of the join, and may be
        deleted: the positions are recorded in the result's store.
    small, large : int
        As of `open_join`.

    Raises
    ------
    ValueError
        For invalid arguments.
    Exception
        As `open_join` does; nothing was created.
    """
    require_streaming()
    check_trigger(trigger)
    if checkpoint is not None and (not isinstance(checkpoint, str) or not checkpoint):
        raise ValueError(f"checkpoint is {checkpoint!r}; it must be the folder of the query's checkpoint")
    worker = open_join(spark, join, small=small, large=large)
    try:
        writer = feed_moves(spark, join.left, join.right).writeStream
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger)  # type: ignore[call-overload]

        def step(_: DataFrame, batch: int) -> None:
            _catch_up(worker)

        query = writer.foreachBatch(step).start()
    except BaseException:
        worker.close()
        raise
    threading.Thread(
        target=_close_after, args=(query, worker), name=f"structable-join-{join.name}", daemon=True
    ).start()
    return query


def join_available(
    spark: SparkSession, join: ForeignKeyJoin, *, small: int = 10_000, large: int = 1_000_000
) -> JoinProgress:
    """Bring the result of a join up to every commit before this call; return the sum of the steps.

    Parameters
    ----------
    spark : SparkSession
        A session of this process.
    join : ForeignKeyJoin
        The join.
    small, large : int
        As of `open_join`.

    Raises
    ------
    Exception
        As `open_join` and `JoinWorker.run_available` do.
    """
    with open_join(spark, join, small=small, large=large) as worker:
        return worker.run_available()


def open_join(
    spark: SparkSession,
    join: ForeignKeyJoin,
    *,
    small: int = 10_000,
    large: int = 1_000_000,
    meter: Meter | None = None,
) -> JoinWorker:
    """Return a `JoinWorker` whose large steps and rebuilds run as DataFrames, to be stepped by the program.

    For a `foreachBatch` function that writes tables of the join: open the worker before the query starts, call
    `run_available()` in the function after the writes, in the same thread, and `close()` the worker after the query.
    Each call joins every commit before it, by this micro-batch and by others. A micro-batch that Spark
    repeats finds nothing to do, or continues where the killed one stopped. The worker keeps its connections, and is
    safe for threads.

    A large step takes one snapshot of each store and reads the tables and the result in Spark's tasks, which stage the
    differences. If it affects at most 50,000 left rows, or one in twenty, the driver joins these rows by
    itself instead; with few changes, which affect more, the tasks read the left rows that refer to changed ones, and
    nothing else.

    Parameters
    ----------
    spark : SparkSession
        A session of this process.
    join : ForeignKeyJoin
        The join; its joiner must be importable in Spark's Python processes.
    small : int
        The maximum number of affected rows of a step in one transaction in the driver; a larger step is a write job.
    large : int
        The maximum number of changes of a table in a step; with more, the whole join is compared with the result.
    meter : opentelemetry.metrics.Meter, optional
        As of `JoinWorker`.

    Raises
    ------
    UnsupportedOperationError
        If the session is one of Spark Connect, or a store belongs to this process alone.
    Exception
        As `JoinWorker` does, with all faults of the definition; nothing was created.
    """
    coordinator_of(spark)
    return _SparkWorker(spark, join, small=small, large=large, meter=meter)


class _SparkWorker(JoinWorker):
    def __init__(
        self, spark: SparkSession, join: ForeignKeyJoin, *, small: int, large: int, meter: Meter | None
    ) -> None:
        self._spark = spark
        super().__init__(join, small=small, large=large, meter=meter)
        for ref, storage in (
            (join.left, self._stores.left),
            (join.right, self._stores.right),
            (join.result, self._stores.result),
        ):
            if not storage.capabilities.multi_process:
                self.close()
                raise UnsupportedOperationError(
                    f"join {join.name!r}: table {ref.name!r} is in {mask_url(ref.url)}, which Spark's tasks cannot "
                    "read; join it by a JoinWorker"
                )

    def _large_steps(self, large: int) -> LargeSteps:
        return SparkSteps(self._spark, large)


def _catch_up(worker: JoinWorker) -> None:
    """Handle transient errors as `JoinWorker.run` does."""
    pause = _SHORTEST_PAUSE
    while True:
        try:
            worker.run_available()
            return
        except PASSING as error:
            pause = min(2 * pause, _LONGEST_PAUSE)
            _log.warning("join %r: a step failed and is tried again in %.1f s: %s", worker.join.name, pause, error)
            time.sleep(pause)


def _close_after(query: StreamingQuery, worker: JoinWorker) -> None:
    try:
        query.awaitTermination()
    except Exception as error:  # the query's own error, which its user finds there; or the session has ended
        _log.debug("join %r: the query ended: %s", worker.join.name, error)
    finally:
        worker.close()
