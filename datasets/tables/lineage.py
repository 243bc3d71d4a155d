"""The tables of lineage: which runs used which datasets, and which programs use them."""

from __future__ import annotations

import datetime as dt
import enum

from structable.datasets.identifiers import ProgramRef, RunRef
from structable.datasets.records import Record, RecordTable

from .runs import RUN_KEY


class Access(enum.StrEnum):
    """The use of a dataset by a run."""

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
    """The use of a dataset by a program."""

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


_DATASET = ("dataset_namespace", "dataset")
LINEAGE_BY_DATASET = RecordTable(
    DatasetAccess, "lineage_by_dataset", key=(*_DATASET, *RUN_KEY, "access"), indexes=("day",)
)
LINEAGE_BY_PROGRAM = RecordTable(
    DatasetAccess, "lineage_by_program", key=(*RUN_KEY, *_DATASET, "access"), indexes=("day",)
)
USAGE_BY_PROGRAM = RecordTable(Usage, "usage_by_program", key=(*RUN_KEY[:-1], *_DATASET))
USAGE_BY_DATASET = RecordTable(Usage, "usage_by_dataset", key=(*_DATASET, *RUN_KEY[:-1]))

TABLES = (LINEAGE_BY_DATASET, LINEAGE_BY_PROGRAM, USAGE_BY_PROGRAM, USAGE_BY_DATASET)
