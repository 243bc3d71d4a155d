"""The micro-batch of a streaming query that runs here: its query, run and number, from Spark's local properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyspark
from pyspark import SparkContext, TaskContext

from structable.spi import UnsupportedOperationError

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch: the number is one of its query, whose id is kept in the checkpoint."""

    query: str
    number: int

    @classmethod
    def of_task(cls) -> MicroBatch:
        """Return the micro-batch of the running task.

        Raises
        ------
        UnsupportedOperationError
            If Spark does not report it.
        """
        task = TaskContext.get()
        assert task is not None
        return _found(task.getLocalProperty, "the task of a streaming write")

    @classmethod
    def of_driver(cls, context: SparkContext) -> tuple[MicroBatch, str]:
        """Return the micro-batch whose `foreachBatch` function runs in this thread, and the run of its query.

        Raises
        ------
        UnsupportedOperationError
            If the thread runs no streaming query.
        """
        found = _found(
            context.getLocalProperty,
            "this thread, which is not that of a foreachBatch function (pyspark.inheritable_thread_target makes others "
            "inherit them)",
        )
        return found, context.getLocalProperty(_RUN) or ""

    def stream(self, name: str) -> str:
        """Return the stream that a write belongs to, by the name of the write within its query."""
        return f"{self.query}/{name}"


def check_trigger(trigger: object) -> None:
    """Check the trigger of a streaming query, or None."""
    if trigger is not None and not isinstance(trigger, Mapping):
        raise ValueError(
            f"trigger is {trigger!r}; it must be a dict of the arguments of DataStreamWriter.trigger, as in "
            "{'availableNow': True}"
        )


def _found(properties: Callable[[str], str | None], runner: str) -> MicroBatch:
    query, batch = properties(_QUERY), properties(_BATCH)
    if not query or batch is None:
        raise UnsupportedOperationError(
            f"Spark's local properties {_QUERY} ({query}) and {_BATCH} ({batch}) are not set in {runner}: without them "
            "a repeated micro-batch cannot be told from a new one, and nothing was written"
        )
    return MicroBatch(query, int(batch))


def require_streaming() -> None:
    """Raise UnsupportedOperationError below the version of PySpark that streams need."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise UnsupportedOperationError(
            f"streams need PySpark 4.2 or later, and this is {pyspark.__version__}: pip install 'pyspark>=4.2'"
        )
