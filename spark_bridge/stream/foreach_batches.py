"""`foreach_batch`: writes micro-batches exactly once from `writeStream.foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from structable.spark_bridge.base.micro_batches import MicroBatch, require_streaming
from structable.spark_bridge.base.options import write_mode
from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.base.types import check_write_schema
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.write.arguments import checked_name
from structable.spark_bridge.write.arrangement import Arrangement
from structable.spark_bridge.write.jobs import Reshape, RowCount, run_job
from structable.spi import TableSpecification, WriteMode
from structable.spi.authors import requested_job


def foreach_batch(
    url: str, table: str, mode: str = "upsert", name: str = "", **connection_options: object
) -> Callable[[DataFrame, int], None]:
    """Return a function for `df.writeStream.foreachBatch` that writes each micro-batch to a table, exactly once.

    It suits every output mode and stateful queries, and may be called within a `foreachBatch` function of one's own,
    with the micro-batch's DataFrame or one derived from it and the number of the micro-batch. A micro-batch that Spark
    repeats is found in the store, and then nothing of it is written; it is read, by which Spark's state moves on.

    Parameters
    ----------
    url : str
        The store.
    table : str
        The table.
    mode : str
        A mode as in `df.write`; see `docs/spark.md`.
    name : str
        Tells apart several writes of one micro-batch to one table; keep it when the query is restarted.
    **connection_options : object
        Connection options of the store.

    Returns
    -------
    callable
        Takes a DataFrame and the number of the micro-batch. It raises ValueError if the table was written under this
        name before in the same run of the micro-batch, and UnsupportedOperationError outside of a micro-batch.

    Raises
    ------
    ValueError
        If an argument is invalid.
    """
    require_streaming()
    return _ForeachBatch(TableRef(url, table, **connection_options), write_mode(mode, "mode"), checked_name(name))


@dataclass(frozen=True, slots=True)
class _ForeachBatch:
    table: TableRef
    mode: WriteMode
    name: str

    def __call__(self, frame: DataFrame, batch: int) -> None:
        session, store = frame.sparkSession, self.table.store
        micro_batch, run = MicroBatch.of_driver(session.sparkContext)
        if micro_batch.number != batch:
            raise ValueError(f"batch is {batch!r}, and this is micro-batch {micro_batch.number}; pass its number on")

        def prepare(frame: DataFrame) -> tuple[TableSpecification, DataFrame, Reshape]:
            spec = coordinator_of(session).client.describe(store, self.table.name)
            check_write_schema(spec, frame.schema, self.mode)
            return spec, Arrangement(tuple(frame.columns)).apply(spec, frame), RowCount()

        stream = micro_batch.stream(self.name)
        run_job(store, requested_job(self.table.name, self.mode, stream=stream, batch=batch), frame, prepare, run=run)
