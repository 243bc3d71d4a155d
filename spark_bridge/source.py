"""The data source of the format "structable"."""

from __future__ import annotations

import uuid
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .coordinator_client import CoordinatorClient
from .errors import one_line_errors
from .options import ReadOptions, WriteOptions
from .reader import FilteringReader, StructableReader
from .types import check_write_schema, spark_schema
from .writer import StructableWriter

__all__ = ["StructableDataSource", "bound_data_source"]


class StructableDataSource(DataSource):
    """Tables of any structable store. Spark makes an instance for each `load()` and `save()`, in its own processes."""

    coordinator: ClassVar[CoordinatorClient]
    """The application's coordinator."""
    pushes_filters: ClassVar[bool]
    """Whether Spark keeps the scans of a query apart, so that each can have different filters."""

    @classmethod
    def name(cls) -> str:
        return "structable"

    @one_line_errors()
    def schema(self) -> StructType:
        options = ReadOptions.parse(self.options)
        return spark_schema(self.coordinator.describe(options.store, options.table), options.columns)

    @one_line_errors()
    def reader(self, schema: StructType) -> StructableReader:
        options = ReadOptions.parse(self.options)
        if options.columns is not None and not set(schema.fieldNames()) <= set(options.columns):
            raise ValueError(
                f"the option columns names {', '.join(options.columns)}, and the schema names "
                f"{', '.join(schema.fieldNames())}; give only one of the two"
            )
        spec = self.coordinator.describe(options.store, options.table)
        return (FilteringReader if self.pushes_filters else StructableReader)(self.coordinator, options, spec, schema)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> StructableWriter:
        options = WriteOptions.parse(self.options, overwrite=overwrite)
        spec = self.coordinator.describe(options.store, options.table)
        options = options.for_table(spec)
        check_write_schema(spec, schema, options.mode)
        job = self.coordinator.begin_write(options, options.job_id or f"spark-{uuid.uuid4()}")
        return StructableWriter(self.coordinator, options, spec, job)


def bound_data_source(client: CoordinatorClient, *, pushes_filters: bool) -> type[StructableDataSource]:
    """Return the data source of one application."""

    # Spark pickles a class that no module holds by value, with its attributes: thus the coordinator's address and
    # secret travel with the format to Spark's Python processes, and nowhere else.
    class ApplicationDataSource(StructableDataSource):
        coordinator = client

    ApplicationDataSource.pushes_filters = pushes_filters
    return ApplicationDataSource
