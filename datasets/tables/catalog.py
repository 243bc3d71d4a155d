"""The tables that describe data: metadata of entities, and the datasets with their kinds and modules."""

from __future__ import annotations

import enum
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable


class MetadataScope(enum.StrEnum):
    """The author of metadata."""

    USER = "USER"
    SYSTEM = "SYSTEM"


class Metadata(Record):
    """Properties and tags of an entity, in a scope; `generation` counts their changes from 1."""

    entity: str
    scope: MetadataScope
    properties: dict[str, str] = {}
    tags: list[str] = []
    generation: int


class MetadataTerm(Record):
    """A word by which metadata is found."""

    term: str
    entity: str
    scope: MetadataScope
    kind: str


class DatasetInstance(Record):
    """A dataset of a kind."""

    namespace: str
    dataset: str
    kind: str
    definition: Annotated[object, Json] | None = None


class DatasetKind(Record):
    """A kind of datasets, which a module brings."""

    namespace: str
    kind: str
    module: str
    definition: Annotated[object, Json] | None = None


class DatasetModule(Record):
    """A module that brings kinds of datasets."""

    namespace: str
    module: str
    definition: Annotated[object, Json] | None = None


METADATA = RecordTable(Metadata, "metadata", key=("entity", "scope"))
METADATA_TERMS = RecordTable(MetadataTerm, "metadata_terms", key=("term", "entity", "scope"))
DATASET_INSTANCES = RecordTable(DatasetInstance, "dataset_instances", key=("namespace", "dataset"), indexes=("kind",))
DATASET_KINDS = RecordTable(DatasetKind, "dataset_kinds", key=("namespace", "kind"), indexes=("module",))
DATASET_MODULES = RecordTable(DatasetModule, "dataset_modules", key=("namespace", "module"))

TABLES = (METADATA, METADATA_TERMS, DATASET_INSTANCES, DATASET_KINDS, DATASET_MODULES)
