"""The data source of the format "structable"."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from structable.spi import (
    FEED_COLUMNS,
    InvalidFieldError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
)
from structable.spi.authors import requested_job

from .base.errors import one_line_errors
from .base.micro_batches import require_streaming
from .base.options import ReadOptions, WriteOptions
from .base.time_zones import time_zone
from .base.types import check_write_schema, days_to_cast, feed_schema, spark_schema
from .catalog.requests import answer_catalog, asks_catalog
from .coordinator.client import CoordinatorClient
from .jvm.scan_requests import FACTS_OPTION, ReadRequest, facts_schema, size_schema
from .read.pushdown import parse_aggregation
from .read.reader import ChangeReader, StructableReader
from .stream.writer import StructableStreamWriter
from .write.row_changes import CHANGES_OPTION, ChangedRows
from .write.staging import typed_batches
from .write.writer import StructableWriter

if TYPE_CHECKING:
    from .stream.reader import FeedStreamReader


class StructableDataSource(DataSource):
    """Tables of any structable store. Spark makes an instance for each `load()` and `save()`, in its own processes."""

    coordinator: ClassVar[CoordinatorClient]
    """The application's coordinator."""
    session: ClassVar[str]
    """The session in which the format was registered."""

    @classmethod
    def name(cls) -> str:
        return "structable"

    @one_line_errors()
    def schema(self) -> StructType:
        return answered_schema(self.coordinator, self.options)

    @one_line_errors()
    def reader(self, schema: StructType) -> StructableReader | ChangeReader:
        return batch_reader(self.coordinator, self.options, schema)

    @one_line_errors()
    def streamReader(self, schema: StructType) -> FeedStreamReader:
        require_streaming()
        from .stream.reader import FeedStreamReader  # of what older versions of PySpark lack

        options = ReadOptions.parse(self.options, streaming=True)
        _check_columns(options, schema)
        return FeedStreamReader(self.coordinator, options, schema, self.session)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> StructableWriter:
        changes = self.options.pop(CHANGES_OPTION, None) is not None
        options = WriteOptions.parse(self.options, overwrite=overwrite)
        spec = self._described(options)
        staged_form: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
        if changes:
            options = replace(options, mode=WriteMode.PATCH)
            changed = ChangedRows(spec)
            changed.check(schema)
            staged_form = changed.patches
        else:
            options = options.for_table(spec)
            check_write_schema(spec, schema, options.mode)
            staged_form = partial(typed_batches, spec, zone=self._zone(spec, schema))
        requested = requested_job(options.table, options.mode, options.job_id or f"spark-{uuid.uuid4()}")
        try:
            job = self.coordinator.begin_write(options.store, requested)
        except UnsupportedOperationError as error:
            if options.mode is WriteMode.OVERWRITE and not spec.keyless:
                error.add_note("Delete the rows first, by DELETE FROM in a catalog, and append the new ones.")
            raise
        return StructableWriter(self.coordinator, options, job, staged_form)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StructableStreamWriter:
        require_streaming()
        options = WriteOptions.parse(self.options, overwrite=overwrite, streaming=True)
        spec = self._described(options)
        options = options.for_table(spec)
        check_write_schema(spec, schema, options.mode)
        return StructableStreamWriter(self.coordinator, options, spec, self._zone(spec, schema))

    def _described(self, options: WriteOptions) -> TableSpecification:
        try:
            return self.coordinator.describe(options.store, options.table)
        except TableNotFoundError as error:
            error.add_note(
                f"Create it first, by structable.spark_bridge.create_table(df, TableRef(url, {options.table!r}), key), "
                'or in a catalog by df.write.option("primary-key", "...").saveAsTable(...).'
            )
            raise

    def _zone(self, spec: TableSpecification, schema: StructType) -> str | None:
        """Return the session's time zone, if dates are to become timestamps; refuse one that is not known here."""
        days = days_to_cast(spec, schema)
        if not days:
            return None
        zone = self.coordinator.zone(self.session)
        try:
            time_zone(zone)
        except ValueError as error:
            reason = f"is date in the DataFrame, and {error}; cast it: .cast('timestamp')"
            raise InvalidFieldError(spec.name, ", ".join(days), reason) from None
        return zone


def answered_schema(coordinator: CoordinatorClient, given: MutableMapping[str, str]) -> StructType:
    """Return the schema of a data source with some options, which may be a question of the JVM."""
    if asks_catalog(given):
        return answer_catalog(coordinator, given)
    question = given.pop(FACTS_OPTION, None)
    options = ReadOptions.parse(given)
    spec = coordinator.describe(options.store, options.table)
    if question is None:
        return (spark_schema if options.feed is None else feed_schema)(spec, options.columns)
    if question == "table":
        return facts_schema(spec, options, aggregates=coordinator.aggregates(options.store))
    measured = options.statistics and options.feed is None
    return size_schema(spec, options, coordinator.statistics(options.store, options.table) if measured else None)


def batch_reader(
    coordinator: CoordinatorClient, given: Mapping[str, str], schema: StructType
) -> StructableReader | ChangeReader:
    """Return the reader of a query, whose request is in the schema."""
    options = ReadOptions.parse(given, streaming=False)
    _check_columns(options, schema)
    spec = coordinator.describe(options.store, options.table)
    if options.feed is None and spec.table_options.log:
        raise UnsupportedOperationError(
            f"table {spec.name!r}: a log keeps no rows: read its changes, with the option readChangeFeed=true"
        )
    return (StructableReader if options.feed is None else ChangeReader)(coordinator, options, spec, schema)


def _check_columns(options: ReadOptions, schema: StructType) -> None:
    aggregates = ReadRequest.of(schema).aggregates
    names = schema.fieldNames() if aggregates is None else parse_aggregation(aggregates).fields
    own = set(names) - (set() if options.feed is None else set(FEED_COLUMNS))
    if options.columns is not None and not own <= set(options.columns):
        raise ValueError(
            f"the option columns names {', '.join(options.columns)}, and the schema names "
            f"{', '.join(names)}; give only one of the two"
        )


def bound_data_source(client: CoordinatorClient, *, session: str = "") -> type[StructableDataSource]:
    """Return the data source of one session of an application."""

    # Spark pickles a class that no module holds by value, with its attributes: thus the coordinator's address and
    # secret travel with the format to Spark's Python processes, and nowhere else.
    class ApplicationDataSource(StructableDataSource):
        coordinator = client

    ApplicationDataSource.session = session
    return ApplicationDataSource
