"""The tables of field lineage: which fields came from which, by the operations of runs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from structable.datasets.identifiers import DatasetRef, ProgramRef
from structable.datasets.records import Record, RecordTable


class Direction(enum.StrEnum):
    """INCOMING: the fields that lead to an endpoint. OUTGOING: the fields made from it."""

    INCOMING = "INCOMING"
    OUTGOING = "OUTGOING"


class EndpointField(NamedTuple):
    """A field of an endpoint, which is a dataset that runs read or write."""

    namespace: str
    endpoint: str
    field: str


@dataclasses.dataclass(frozen=True, slots=True)
class FieldOperation:
    """An operation on fields: it reads a `source`, or writes a `destination`, or makes fields of fields.

    Parameters
    ----------
    name : str
        The name, unique among the operations of a run.
    inputs : tuple of (operation, field)
        The outputs of earlier operations that it uses; none for a read.
    outputs : tuple of str
        The fields that it gives, each made from all inputs; none for a write, which writes its inputs under their
        names.
    source, destination : DatasetRef, optional
        The endpoint that is read, or written.
    """

    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    source: DatasetRef | None = None
    destination: DatasetRef | None = None


@dataclasses.dataclass(frozen=True)
class FieldLineage:
    """The operations of a run on fields.

    Parameters
    ----------
    sources, destinations : mapping or iterable of DatasetRef
        The endpoints that the operations read, and write; a mapping gives the properties of each, texts by name.
    operations : iterable of FieldOperation
        Each behind the operations whose outputs it uses.
    """

    sources: Mapping[DatasetRef, Mapping[str, str]] | Iterable[DatasetRef]
    destinations: Mapping[DatasetRef, Mapping[str, str]] | Iterable[DatasetRef]
    operations: Iterable[FieldOperation]


class LineageEndpoint(Record):
    """An endpoint that a run wrote (INCOMING) or read (OUTGOING), and the checksum of the run's operations."""

    direction: Direction
    endpoint_namespace: str
    endpoint: str
    run: str
    program: ProgramRef
    checksum: str
    properties: dict[str, str] = {}
    day: dt.date


class LineageOperations(Record):
    """Operations on fields, stored once under the SHA-256 checksum of their document."""

    checksum: str
    operations: tuple[FieldOperation, ...]


class LineageDestination(Record):
    """The fields that operations write to an endpoint."""

    checksum: str
    endpoint_namespace: str
    endpoint: str
    fields: list[str]


class LineageSummary(Record):
    """The fields that a field comes from (INCOMING), or goes to (OUTGOING), by operations."""

    checksum: str
    direction: Direction
    endpoint_namespace: str
    endpoint: str
    field: str
    fields: list[EndpointField]


_ENDPOINT = ("endpoint_namespace", "endpoint")
LINEAGE_ENDPOINTS = RecordTable(
    LineageEndpoint, "lineage_endpoints", key=("direction", *_ENDPOINT, "run"), indexes=("checksum", "day")
)
LINEAGE_OPERATIONS = RecordTable(LineageOperations, "lineage_operations", key=("checksum",))
LINEAGE_DESTINATIONS = RecordTable(LineageDestination, "lineage_destinations", key=("checksum", *_ENDPOINT))
LINEAGE_SUMMARIES = RecordTable(LineageSummary, "lineage_summaries", key=("checksum", "direction", *_ENDPOINT, "field"))

TABLES = (LINEAGE_ENDPOINTS, LINEAGE_OPERATIONS, LINEAGE_DESTINATIONS, LINEAGE_SUMMARIES)
