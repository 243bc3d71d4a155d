"""The data source of the format "structable"."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from structable.spi import InvalidFieldError, TableSpecification
from structable.spi.changes import FEED_COLUMNS
from structable.spi.rules.jobs import requested_job

from .catalog.requests import answer_catalog, asks_catalog
from .coordinator_client import CoordinatorClient
from .errors import one_line_errors
from .micro_batches import require_streaming
from .options import ReadOptions, WriteOptions
from .reader import ChangeReader, FilteringReader, StructableReader
from .stream_writer import StructableStreamWriter
from .table_sizes import answer_size, asks_size
from .time_zones import time_zone
from .types import check_write_schema, days_to_cast, feed_schema, spark_schema
from .writer import StructableWriter

if TYPE_CHECKING:
    from .stream_reader import FeedStreamReader

__all__ = ["StructableDataSource", "bound_data_source"]


class StructableDataSource(DataSource):
    """Tables of any structable store. Spark makes an instance for each `load()` and `save()`, in its own processes."""

    coordinator: ClassVar[CoordinatorClient]
    """The application's coordinator."""
    session: ClassVar[str]
    """The session in which the format was registered."""
    pushes_filters: ClassVar[bool]
    """Whether Spark keeps the scans of a query apart, so that each can have different filters."""

    @classmethod
    def name(cls) -> str:
        return "structable"

    @one_line_errors()
    def schema(self) -> StructType:
        if asks_catalog(self.options):
            return answer_catalog(self.coordinator, self.options)
        if asks_size(self.options):
            return answer_size(self.coordinator, self.options)
        options = ReadOptions.parse(self.options)
        made = spark_schema if options.feed is None else feed_schema
        return made(self.coordinator.describe(options.store, options.table), options.columns)

    @one_line_errors()
    def reader(self, schema: StructType) -> StructableReader | ChangeReader:
        options = ReadOptions.parse(self.options, streaming=False)
        _check_columns(options, schema)
        spec = self.coordinator.describe(options.store, options.table)
        if options.feed is not None:
            return ChangeReader(self.coordinator, options, spec, schema)
        return (FilteringReader if self.pushes_filters else StructableReader)(self.coordinator, options, spec, schema)

    @one_line_errors()
    def streamReader(self, schema: StructType) -> FeedStreamReader:
        require_streaming()
        from .stream_reader import FeedStreamReader  # of what older versions of PySpark lack

        options = ReadOptions.parse(self.options, streaming=True)
        _check_columns(options, schema)
        return FeedStreamReader(self.coordinator, options, schema, self.session)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> StructableWriter:
        options = WriteOptions.parse(self.options, overwrite=overwrite)
        spec = self.coordinator.describe(options.store, options.table)
        options = options.for_table(spec)
        check_write_schema(spec, schema, options.mode)
        requested = requested_job(options.table, options.mode, options.job_id or f"spark-{uuid.uuid4()}")
        job = self.coordinator.begin_write(options.store, requested)
        return StructableWriter(self.coordinator, options, spec, job, self._zone(spec, schema))

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StructableStreamWriter:
        require_streaming()
        options = WriteOptions.parse(self.options, overwrite=overwrite, streaming=True)
        spec = self.coordinator.describe(options.store, options.table)
        options = options.for_table(spec)
        check_write_schema(spec, schema, options.mode)
        return StructableStreamWriter(self.coordinator, options, spec, self._zone(spec, schema))

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


def _check_columns(options: ReadOptions, schema: StructType) -> None:
    own = set(schema.fieldNames()) - (set() if options.feed is None else set(FEED_COLUMNS))
    if options.columns is not None and not own <= set(options.columns):
        raise ValueError(
            f"the option columns names {', '.join(options.columns)}, and the schema names "
            f"{', '.join(schema.fieldNames())}; give only one of the two"
        )


def bound_data_source(
    client: CoordinatorClient, *, pushes_filters: bool, session: str = ""
) -> type[StructableDataSource]:
    """Return the data source of one session of an application."""

    # Spark pickles a class that no module holds by value, with its attributes: thus the coordinator's address and
    # secret travel with the format to Spark's Python processes, and nowhere else.
    class ApplicationDataSource(StructableDataSource):
        coordinator = client

    ApplicationDataSource.pushes_filters = pushes_filters
    ApplicationDataSource.session = session
    return ApplicationDataSource
