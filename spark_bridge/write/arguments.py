"""The arguments that `send_to` and `send_update_to` share, checked, and the start of the writing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType, VariantType

from structable.spark_bridge.base.micro_batches import MicroBatch, check_trigger, require_streaming
from structable.spark_bridge.base.table_ref import TableRef, require_ref
from structable.spark_bridge.base.types import refuse, write_problems
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spi import InvalidFieldError, TableSpecification, WriteMode
from structable.spi.authors import requested_job

from .arrangement import Arrangement
from .jobs import Reshape, WriteSummary, run_job

_NO_QUERY = "0" * 36
"""The length of the id of a query."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A checked request: the mode of its job, and the treatment of the rows of a batch DataFrame or micro-batch."""

    mode: WriteMode
    arrangement: Arrangement
    reshape: Reshape
    on_missing: Literal["fail", "skip"] = "fail"


class Planner(Protocol):
    """Checks a DataFrame against a table, and plans the writing of its rows."""

    def __call__(self, spec: TableSpecification, schema: StructType, *, streaming: bool) -> Sending: ...


@dataclass(frozen=True, slots=True)
class Request:
    """The table that rows go to, and the name of the write; checked when it is made.

    Raises
    ------
    TypeError
        If the table is not a `TableRef`.
    ValueError
        For arguments that do not go together.
    """

    frame: DataFrame
    table: TableRef
    name: str | None
    checkpoint: str | None
    trigger: Mapping[str, object] | None
    job_id: str | None

    def __post_init__(self) -> None:
        require_ref(self.table, "table")
        if not self.frame.isStreaming:
            for argument in ("name", "checkpoint", "trigger"):
                if getattr(self, argument) is not None:
                    raise ValueError(
                        f"{argument} is {getattr(self, argument)!r}, and the DataFrame is not a streaming one; name "
                        "its write with job_id"
                    )
            if self.job_id is not None:
                requested_job(self.table.name, WriteMode.UPSERT, self.job_id)
            return
        require_streaming()
        if self.job_id is not None:
            raise ValueError(
                f"job_id is {self.job_id!r}, and the DataFrame is a streaming one, whose micro-batches have numbers of "
                "their own; leave it out"
            )
        for argument in ("name", "checkpoint"):
            if not isinstance(getattr(self, argument), str) or not getattr(self, argument):
                raise ValueError(
                    f"{argument} is {getattr(self, argument)!r}; a streaming DataFrame needs "
                    + ("a name for its writes" if argument == "name" else "the folder of the query's checkpoint")
                )
        checked_name(self.name)
        check_trigger(self.trigger)

    def start(self, plan: Planner) -> WriteSummary | StreamingQuery:
        """Write a batch DataFrame, or start the query that writes each micro-batch of a streaming one."""
        store = self.table.store
        spec = coordinator_of(self.frame.sparkSession).client.describe(store, self.table.name)
        sending = plan(spec, self.frame.schema, streaming=self.frame.isStreaming)

        def prepare(frame: DataFrame) -> tuple[TableSpecification, DataFrame, Reshape]:
            return spec, sending.arrangement.apply(spec, frame), sending.reshape

        if not self.frame.isStreaming:
            job_id = self.job_id or f"spark-{uuid.uuid4()}"
            wanted = requested_job(self.table.name, sending.mode, job_id, on_missing=sending.on_missing)
            return run_job(store, wanted, self.frame, prepare, submits_again=self.job_id is not None)

        def write(frame: DataFrame, batch: int) -> None:
            micro_batch, run = MicroBatch.of_driver(frame.sparkSession.sparkContext)
            stream = micro_batch.stream(self.name or "")
            wanted = requested_job(
                self.table.name, sending.mode, stream=stream, batch=batch, on_missing=sending.on_missing
            )
            run_job(store, wanted, frame, prepare, run=run)

        return self._started(write)

    def _started(self, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        assert self.name is not None
        assert self.checkpoint is not None
        writer = self.frame.writeStream.queryName(self.name).option("checkpointLocation", self.checkpoint)
        if self.trigger is not None:
            writer = writer.trigger(**self.trigger)  # type: ignore[call-overload]
        return writer.foreachBatch(write).start()


def checked_name(name: object) -> str:
    """Return the name of a write within its query; ValueError for one that no stream can have."""
    try:
        requested_job("table", WriteMode.UPSERT, stream=f"{_NO_QUERY}/{name}", batch=0)
    except ValueError:
        name = None if isinstance(name, str) else name
    if not isinstance(name, str):
        raise ValueError("name must be a string of at most 163 characters, without NUL characters or lone surrogates")
    return name


def columns_of(
    spec: TableSpecification,
    schema: StructType,
    mode: WriteMode,
    *,
    order: tuple[str, ...] | None,
    deletes: str | None,
    beside: Iterable[str] = (),
    further: Iterable[InvalidFieldError] = (),
) -> tuple[str, ...]:
    """Return the fields that a DataFrame writes: its columns except `deletes`, `beside` and columns that only order it.

    Raises
    ------
    InvalidFieldError
        If the DataFrame cannot be written; the error lists all problems, including those in `further`.
    """
    names = schema.fieldNames()
    problems = list(further)
    for name in order or ():
        if names.count(name) != 1:
            reason = f"names {name!r}, and the DataFrame has {', '.join(names)}"
            problems.append(InvalidFieldError(spec.name, "order_by", reason))
        elif not _has_order(schema[name].dataType):
            reason = f"names {name!r} of type {schema[name].dataType.simpleString()}, which has no order"
            problems.append(InvalidFieldError(spec.name, "order_by", reason))
    if deletes is not None:
        kinds = [column.dataType for column in schema.fields if column.name == deletes]
        if kinds != [BooleanType()]:
            reason = f"names {deletes!r}, which must be one boolean column of the DataFrame"
            problems.append(InvalidFieldError(spec.name, "deletes", reason))
    others = {*beside, *(name for name in order or () if name not in spec), *([] if deletes is None else [deletes])}
    problems += write_problems(spec, schema, mode, others)
    refuse(spec.name, problems)
    return tuple(name for name in names if name in spec and name not in others)


def _has_order(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_order(column.dataType) for column in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_order(kind.elementType)
    return not isinstance(kind, MapType | VariantType)
