"""The tables of lineage: which runs used which datasets, which programs do, and which fields came from which."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.identifiers import ProgramRef, RunRef
from structable.datasets.records import Json, Record, RecordTable

from .runs import RUN_KEY

__all__ = [
    "LINEAGE_BY_DATASET",
    "LINEAGE_BY_PROGRAM",
    "LINEAGE_DESTINATIONS",
    "LINEAGE_ENDPOINTS",
    "LINEAGE_OPERATIONS",
    "LINEAGE_SUMMARIES",
    "TABLES",
    "USAGE_BY_DATASET",
    "USAGE_BY_PROGRAM",
    "Access",
    "DatasetAccess",
    "LineageDestination",
    "LineageEndpoint",
    "LineageOperations",
    "LineageSummary",
    "Usage",
]


class Access(enum.StrEnum):
    """How a run used a dataset."""

    READ = "READ"
    WRITE = "WRITE"
    READ_WRITE = "READ_WRITE"
    UNKNOWN = "UNKNOWN"


class DatasetAccess(Record):
    """A run's use of a dataset, at a time whose UTC day is `day`."""

    namespace: str
    application: str
    program_type: str
    program: str
    run: str
    dataset_namespace: str
    dataset: str
    access: Access
    at: dt.datetime
    day: dt.date

    @property
    def run_ref(self) -> RunRef:
        """The run, as a key."""
        return RunRef(self.namespace, self.application, self.program_type, self.program, self.run)


class Usage(Record):
    """That a program uses a dataset."""

    namespace: str
    application: str
    program_type: str
    program: str
    dataset_namespace: str
    dataset: str

    @property
    def ref(self) -> ProgramRef:
        """The program."""
        return ProgramRef(self.namespace, self.application, self.program_type, self.program)


class LineageEndpoint(Record):
    """An endpoint that a run read (`incoming` of others) or wrote, with the checksum of the run's operations."""

    direction: str
    endpoint_namespace: str
    endpoint: str
    run: str
    program: Annotated[object, Json] | None = None
    checksum: str
    properties: Annotated[object, Json] | None = None
    day: dt.date


class LineageOperations(Record):
    """Operations on fields, stored once under the checksum of their JSON."""

    checksum: str
    operations: Annotated[object, Json] | None = None


class LineageDestination(Record):
    """The fields that operations write to an endpoint."""

    checksum: str
    endpoint_namespace: str
    endpoint: str
    fields: Annotated[object, Json] | None = None


class LineageSummary(Record):
    """The fields that a field comes from (incoming), or goes to (outgoing), by operations."""

    checksum: str
    direction: str
    endpoint_namespace: str
    endpoint: str
    field: str
    fields: Annotated[object, Json] | None = None


_DATASET = ("dataset_namespace", "dataset")
_ENDPOINT = ("endpoint_namespace", "endpoint")
LINEAGE_BY_DATASET = RecordTable(
    DatasetAccess, "lineage_by_dataset", key=(*_DATASET, *RUN_KEY, "access"), indexes=("day",)
)
LINEAGE_BY_PROGRAM = RecordTable(
    DatasetAccess, "lineage_by_program", key=(*RUN_KEY, *_DATASET, "access"), indexes=("day",)
)
USAGE_BY_PROGRAM = RecordTable(Usage, "usage_by_program", key=(*RUN_KEY[:-1], *_DATASET))
USAGE_BY_DATASET = RecordTable(Usage, "usage_by_dataset", key=(*_DATASET, *RUN_KEY[:-1]))
LINEAGE_ENDPOINTS = RecordTable(
    LineageEndpoint, "lineage_endpoints", key=("direction", *_ENDPOINT, "run"), indexes=("checksum", "day")
)
LINEAGE_OPERATIONS = RecordTable(LineageOperations, "lineage_operations", key=("checksum",))
LINEAGE_DESTINATIONS = RecordTable(LineageDestination, "lineage_destinations", key=("checksum", *_ENDPOINT))
LINEAGE_SUMMARIES = RecordTable(LineageSummary, "lineage_summaries", key=("checksum", "direction", *_ENDPOINT, "field"))

TABLES = (
    LINEAGE_BY_DATASET,
    LINEAGE_BY_PROGRAM,
    USAGE_BY_PROGRAM,
    USAGE_BY_DATASET,
    LINEAGE_ENDPOINTS,
    LINEAGE_OPERATIONS,
    LINEAGE_DESTINATIONS,
    LINEAGE_SUMMARIES,
)
