"""Writes to remote tables: each task calls the functions in the order of the rows of each key, at least once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from structable.access import AsyncTable, Batching, FunctionTable, open_table
from structable.spark_bridge.base.errors import carrying_errors
from structable.spark_bridge.pipelines.graph import RemoteTable
from structable.spark_bridge.pipelines.planned import MicroBatchIdentity
from structable.spark_bridge.write.arguments import Sending
from structable.spark_bridge.write.arrangement import Arrangement, RowOrder, named
from structable.spark_bridge.write.jobs import WriteSummary, measure_missing
from structable.spark_bridge.write.rows import plan_rows
from structable.spark_bridge.write.send_options import SendOptions
from structable.spark_bridge.write.updates import plan_updates
from structable.spi import RecordNotFoundError, TableSpecification, Value

_IN_FLIGHT = 1_000
_DELETES, _DEFAULT = "_deletes", "_default"


class RemoteWrite:
    """The write of a step to a remote table."""

    def __init__(
        self,
        run: str,
        name: str,
        table: RemoteTable,
        spec: TableSpecification,
        options: SendOptions | None,
        order: tuple[str, ...] | None,
    ) -> None:
        self._run, self._name, self._table, self._spec = run, name, table, spec
        self._options, self._order = options or SendOptions(), order
        self._sending: Sending | None = None

    def check(self, schema: StructType, *, streaming: bool) -> None:
        options = replace(self._options, order_by=self._order)
        if options.update:
            plan = plan_updates(options)
        elif options.mode in ("insert", "changes"):
            raise ValueError(f"mode is {options.mode!r}; a remote table takes upsert and replace, which put the row")
        else:
            plan = plan_rows(replace(options, mode="replace"))
        self._sending = plan(self._spec, schema, streaming=streaming)
        cloudpickle.dumps(self._calls())  # type: ignore[no-untyped-call]  # refused now, not in the first task

    def _calls(self) -> _RemoteWriteTask:
        return _RemoteWriteTask(self._run, self._name, self._table, self._spec, self._options)

    def run(self, frame: DataFrame | None, batch: MicroBatchIdentity) -> WriteSummary:
        sending, options = self._sending, self._options
        assert sending is not None
        assert frame is not None
        beside: dict[str, Column] = {}
        if options.deletes is not None:
            beside[_DELETES] = named(options.deletes)
        if isinstance(options.default, str):
            beside[_DEFAULT] = named(options.default)
        order = () if options.unordered else self._order or (RowOrder.POSITION,)
        arrangement = Arrangement(sending.arrangement.fields, beside, by_key=True, order=order)
        counted = (
            arrangement.apply(self._spec, frame).mapInArrow(self._calls(), "rows bigint, missing bigint").collect()
        )
        missing = sum(row["missing"] for row in counted)
        if missing:
            measure_missing(self._name, missing)
        return WriteSummary(sum(row["rows"] for row in counted), 0, missing)


@dataclass(frozen=True, slots=True)
class _RemoteWriteTask:
    """The work of a task; picklable."""

    run: str
    name: str
    table: RemoteTable
    spec: TableSpecification
    options: SendOptions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        first = list(islice(rows, 1))
        if not first:
            return
        with carrying_errors(self.run):
            done, missing = asyncio.run(self._all(first, rows))
        counts: list[pa.Array[Any]] = [pa.array([count], pa.int64()) for count in (done, missing)]
        yield pa.RecordBatch.from_arrays(counts, names=["rows", "missing"])

    async def _all(self, first: list[dict[str, Any]], rows: Iterator[dict[str, Any]]) -> tuple[int, int]:
        assert self.table.write is not None
        functions: FunctionTable[tuple[Value, ...], Mapping[str, Value]] = FunctionTable(write=self.table.write)
        done, missing = 0, set[tuple[Value, ...]]()
        async with open_table(
            functions,
            name=self.name,
            batching=Batching(max_size=_IN_FLIGHT),
            write_retry=self.table.write_retry,
            rate_limit=self.table.rate_limit,
        ) as table:
            while some := [*first, *islice(rows, _IN_FLIGHT - len(first))]:
                first = []
                keys = [tuple([row[name] for name in self.spec.primary_key]) for row in some]
                calls = [self._call(table, key, row) for key, row in zip(keys, some, strict=True)]
                ended = await asyncio.gather(*calls, return_exceptions=True)
                for key, error in zip(keys, ended, strict=True):
                    if isinstance(error, RecordNotFoundError) and self.options.on_missing == "drop":
                        missing.add(key)
                    elif isinstance(error, BaseException):
                        raise error
                done += len(some)
        return done, len(missing)

    def _call(
        self, table: AsyncTable[tuple[Value, ...], Mapping[str, Value]], key: tuple[Value, ...], row: dict[str, Any]
    ) -> Awaitable[None]:
        deletes, default = row.pop(_DELETES, None), row.pop(_DEFAULT, None)
        if deletes:
            return table.delete(key)
        fields = {name: value for name, value in row.items() if name not in self.spec.primary_key}
        if not self.options.update:
            return table.put(key, fields)
        if self.options.nulls == "keep":
            fields = {name: value for name, value in fields.items() if value is not None}
        if isinstance(self.options.default, Mapping):
            default = self.options.default
        return table.update(key, fields, default)
