"""The tables of the catalog: datasets, with their kinds and modules."""

from __future__ import annotations

from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable

__all__ = [
    "DATASET_INSTANCES",
    "DATASET_KINDS",
    "DATASET_MODULES",
    "TABLES",
    "DatasetInstance",
    "DatasetKind",
    "DatasetModule",
]


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


DATASET_INSTANCES = RecordTable(DatasetInstance, "dataset_instances", key=("namespace", "dataset"), indexes=("kind",))
DATASET_KINDS = RecordTable(DatasetKind, "dataset_kinds", key=("namespace", "kind"), indexes=("module",))
DATASET_MODULES = RecordTable(DatasetModule, "dataset_modules", key=("namespace", "module"))

TABLES = (DATASET_INSTANCES, DATASET_KINDS, DATASET_MODULES)
