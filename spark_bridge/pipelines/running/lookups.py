"""Joins of a stream with a table: by the keys of each batch, with or without a cache, or by the whole table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from structable.access import BlockingTable, Cache, FunctionTable, blocking, open_table
from structable.spark_bridge.base.errors import carrying_errors
from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.base.table_ref import TableRef
from structable.spark_bridge.coordinator.applications import coordinator_of
from structable.spark_bridge.joins.binding import bind
from structable.spark_bridge.pipelines.graph import ForeignKeyTable, RemoteTable, StoreTable, TableJoin
from structable.spark_bridge.pipelines.planned import PlannedPipeline, Step
from structable.spark_bridge.read.found_rows import Found, Matches, RowCache
from structable.spark_bridge.read.lookup_joins import check_join, joined
from structable.spark_bridge.read.lookup_keys import KeyValues
from structable.spark_bridge.read.lookup_rows import How, RowsOf, RowSource, read_rows
from structable.spark_bridge.write.arrangement import named
from structable.spi import TableNotFoundError, TableSpecification, Value
from structable.spi.authors import keyless_refusal

from .fronts import read_options
from .open_in_workers import kept, using_store

if TYPE_CHECKING:
    from structable.access import RateLimit, Retry, TableReadFunction

_BATCH = 10_000
"""The number of rows whose keys are read together: the rows of an Arrow batch that Spark gives a task."""

_RENAME = "choose the columns, or give a prefix="


@dataclass(slots=True)
class RunTables:
    """The tables of a run: their specifications, read once, and their joins with streams."""

    planned: PlannedPipeline
    spark: SparkSession
    feeds: dict[str, str]
    """The position after which each table between two stages is read."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    open: ExitStack = field(default_factory=ExitStack)
    """Resources that the driver keeps open until the run ends."""
    _specs: dict[str, TableSpecification] = field(default_factory=dict)

    def ref(self, name: str) -> TableRef:
        """Return the reference of a table of a store."""
        node = self.planned.table(name)
        assert isinstance(node, StoreTable | ForeignKeyTable)
        return node.ref

    def spec(self, name: str) -> TableSpecification:
        """Return the specification of a table as it was at the first call."""
        found = self._specs.get(name)
        if found is None:
            node = self.planned.table(name)
            if isinstance(node, RemoteTable):
                found = TableSpecification(name.replace(".", "_"), node.schema, node.key)
            elif isinstance(node, ForeignKeyTable):
                found = self._result(name)
            else:
                found = self._described(self.ref(name))
            self._specs[name] = found
        return found

    def _result(self, name: str) -> TableSpecification:
        """Return the specification of a join's result, even before the join has made it."""
        node, names = self.planned.table(name), self.planned.graph.names
        assert isinstance(node, ForeignKeyTable)
        try:
            return self._described(node.ref)
        except TableNotFoundError:
            return bind(node.join, self.spec(names[node.left]), self.spec(names[node.right])).result

    def _described(self, ref: TableRef) -> TableSpecification:
        return coordinator_of(self.spark).client.describe(ref.store, ref.name)

    def joined(self, step: Step, frame: DataFrame, whole: Callable[[str, DataFrame], DataFrame]) -> DataFrame:
        """Return the DataFrame of a step `join_table`; lazy.

        `whole` takes the DataFrame of a table that is read whole, and returns the DataFrame of the micro-batch's
        snapshot.
        """
        node, table = step.node, step.table
        assert isinstance(node, TableJoin)
        assert table is not None
        spec, target = self.spec(table), self.planned.table(table)
        if spec.keyless:
            raise keyless_refusal(spec, "joins with streams")
        columns = node.columns
        if columns is None:
            columns = tuple(name for name in spec.field_names if name not in spec.primary_key)
        added = [(name, f"{node.prefix}{name}") for name in columns]
        how: How = "left" if node.how == "left" else "inner"
        if isinstance(target, StoreTable) and target.access == "broadcast":
            check_join(frame, spec, node.on, added, how, _RENAME)
            reader = frame.sparkSession.read.format("structable").options(**read_options(target.ref))
            return _broadcast(frame, whole(table, reader.load()), spec, node, added)

        def source(fields: tuple[str, ...]) -> RowSource:
            if isinstance(target, RemoteTable):
                assert target.read is not None
                limits = target.read_retry, target.rate_limit, target.cache
                return _RemoteRows(self.run, step.name, table, fields, spec, target.read, *limits)
            cache = target.cache if isinstance(target, StoreTable) else None
            soft_delete = spec.table_options.soft_delete
            return _KeptRows(self.run, step.name, self.ref(table).store, spec, fields, soft_delete, cache)

        return joined(frame, spec, node.on, added, how, source, _BATCH, _RENAME)


def _broadcast(
    frame: DataFrame, rows: DataFrame, spec: TableSpecification, node: TableJoin, added: list[tuple[str, str]]
) -> DataFrame:
    softly = spec.table_options.soft_delete
    if softly is not None:
        rows = rows.where(~sf.coalesce(named(softly), sf.lit(False)))
    stem = "_key"
    while any(name.lower().startswith(stem) for name in (*frame.columns, *(name for _, name in added))):
        stem += "_"
    names = [f"{stem}{place}" for place in range(len(node.on))]
    keys = [named(right).alias(name) for (_, right), name in zip(node.on, names, strict=True)]
    rows = rows.select(*keys, *(named(one).alias(name) for one, name in added))
    met = [named(left) == sf.col(name) for (left, _), name in zip(node.on, names, strict=True)]
    return frame.join(sf.broadcast(rows), met, node.how).drop(*names)


@dataclass(frozen=True, slots=True)
class _KeptRows:
    """Rows of a table, over a connection that the worker keeps, with a cache that it keeps too."""

    run: str
    step: str
    store: StoreClient
    spec: TableSpecification
    fields: tuple[str, ...]
    soft_delete: str | None
    cache: Cache | None

    @contextmanager
    def open(self) -> Iterator[RowsOf]:
        with carrying_errors(self.run), using_store(self.store) as storage:

            def read(keys: list[KeyValues]) -> Found:
                if self.soft_delete is None:
                    return Found.of_rows(self.spec, self.fields, read_rows(storage, self.spec, self.fields, keys))
                wanted = tuple(dict.fromkeys((*self.fields, self.soft_delete)))
                rows = read_rows(storage, self.spec, wanted, keys)
                kept_rows = [row for row in rows if row[self.soft_delete] is not True]
                return Found.of_rows(self.spec, self.fields, kept_rows)

            cache = self.cache
            if cache is None:
                yield lambda keys: Matches.of(self.spec, self.fields, keys, read)
                return

            def made() -> RowCache:
                return RowCache(self.spec, self.fields, cache.max_rows, ttl=cache.ttl, absent=cache.absent)

            with kept((self.run, self.step), made) as cached:
                yield lambda keys: cached.of(keys, read)


@dataclass(frozen=True, slots=True)
class _RemoteRows:
    """Rows of a remote table, whose functions are opened once in each worker."""

    run: str
    step: str
    table: str
    fields: tuple[str, ...]
    spec: TableSpecification
    read: TableReadFunction[KeyValues, Mapping[str, Value]]
    retry: Retry | None
    rate_limit: RateLimit | None
    cache: Cache | None

    @contextmanager
    def open(self) -> Iterator[RowsOf]:
        with carrying_errors(self.run), kept((self.run, self.step), self._opened) as table:

            def read(keys: list[KeyValues]) -> Found:
                return self._found(table.get_many(keys))

            yield lambda keys: Matches.of(self.spec, self.fields, keys, read)

    def _found(self, rows: Mapping[KeyValues, Mapping[str, Value]]) -> Found:
        values = {key: tuple([self._value(key, row, name) for name in self.fields]) for key, row in rows.items()}
        return Found.of(values, self.fields)

    def _opened(self) -> BlockingTable[KeyValues, Mapping[str, Value]]:
        functions: FunctionTable[KeyValues, Mapping[str, Value]] = FunctionTable(read=self.read)
        return blocking(
            open_table(
                functions,
                name=self.table,
                read_retry=self.retry,
                rate_limit=self.rate_limit,
                cache=self.cache,
            )
        )

    def _value(self, key: KeyValues, row: Mapping[str, Value], name: str) -> Value:
        if name in self.spec.primary_key:
            return key[self.spec.primary_key.index(name)]
        return row.get(name)
