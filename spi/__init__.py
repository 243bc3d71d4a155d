"""structable's contract: one structured table, any store.

Services and jobs import from here. Three modules below are public, too: `structable.spi.authors`, for backends and for
layers over the contract, `structable.spi.arrow`, for Arrow batches, and `structable.spi.text`, for values and filters
as text. Read in this order: `_fields`, `_specification`, `_table`, `_transactions`, `_storage`, `_bulk`, `_feeds`.
"""

from __future__ import annotations

from ._admin import Progress, TableAdmin
from ._aggregates import AggregateExpression, Aggregation
from ._backend import COMMON_OPTIONS, Backend, Option, OptionValue
from ._bulk import CommitResult, PatchArm, ScanPlan, ScanSplit, SnapshotHold, StagedWrite, WriteJob, WriteMode
from ._capabilities import Capabilities
from ._changes import CHANGE_TYPE, FEED_COLUMNS, Change, RowKind, UpdateMessage
from ._documents import specification_from_document, specification_to_document
from ._errors import (
    BackendNotFoundError,
    ChangesLostError,
    CommitOutcomeUnknownError,
    DataCorruptionError,
    FieldSizeLimitError,
    InvalidFieldError,
    InvalidSpecificationError,
    PlanChangedError,
    PlanError,
    RecordChangedError,
    RecordExistsError,
    RecordNotFoundError,
    SchemaIncompatibleError,
    StorageUnavailableError,
    StoreNotFoundError,
    StructableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    TransactionError,
    UnsupportedOperationError,
)
from ._expressions import Expression
from ._feeds import ChangeFeed, ChangeIterator, ChangePlan
from ._field_functions import Cast, Computed, FieldFunction, JsonField, Lower
from ._field_rules import Derived, FieldRule, Renamed, Retired
from ._fields import Field, FieldType
from ._filters import Column, Filter, col
from ._loader import InstalledBackend, connect, installed_backends, read_split
from ._positions import FeedPosition
from ._ranges import Range
from ._rows import Row
from ._scans import RowIterator, ScanExplanation
from ._shared_snapshots import SharedSnapshot
from ._signals import Listener
from ._specification import TableSpecification
from ._storage import Storage
from ._store_reports import CompactionProgress, Finding, FindingLevel, TableStatistics, Traffic
from ._table import StructuredTable
from ._table_options import (
    Aggregate,
    AggregateFunction,
    ChangelogProducer,
    MergeEngine,
    SequenceGroup,
    TableOptions,
    WriteBehaviour,
)
from ._transactions import Isolation, Transaction, Transactional
from ._urls import StorageUrl, mask_url
from ._values import Key, Value

__all__ = [
    "CHANGE_TYPE",
    "COMMON_OPTIONS",
    "FEED_COLUMNS",
    "Aggregate",
    "AggregateExpression",
    "AggregateFunction",
    "Aggregation",
    "Backend",
    "BackendNotFoundError",
    "Capabilities",
    "Cast",
    "Change",
    "ChangeFeed",
    "ChangeIterator",
    "ChangePlan",
    "ChangelogProducer",
    "ChangesLostError",
    "Column",
    "CommitOutcomeUnknownError",
    "CommitResult",
    "CompactionProgress",
    "Computed",
    "DataCorruptionError",
    "Derived",
    "Expression",
    "FeedPosition",
    "Field",
    "FieldFunction",
    "FieldRule",
    "FieldSizeLimitError",
    "FieldType",
    "Filter",
    "Finding",
    "FindingLevel",
    "InstalledBackend",
    "InvalidFieldError",
    "InvalidSpecificationError",
    "Isolation",
    "JsonField",
    "Key",
    "Listener",
    "Lower",
    "MergeEngine",
    "Option",
    "OptionValue",
    "PatchArm",
    "PlanChangedError",
    "PlanError",
    "Progress",
    "Range",
    "RecordChangedError",
    "RecordExistsError",
    "RecordNotFoundError",
    "Renamed",
    "Retired",
    "Row",
    "RowIterator",
    "RowKind",
    "ScanExplanation",
    "ScanPlan",
    "ScanSplit",
    "SchemaIncompatibleError",
    "SequenceGroup",
    "SharedSnapshot",
    "SnapshotHold",
    "StagedWrite",
    "Storage",
    "StorageUnavailableError",
    "StorageUrl",
    "StoreNotFoundError",
    "StructableError",
    "StructuredTable",
    "TableAdmin",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TableOptions",
    "TableSpecification",
    "TableStatistics",
    "Traffic",
    "Transaction",
    "TransactionClosedError",
    "TransactionConflictError",
    "TransactionError",
    "Transactional",
    "UnsupportedOperationError",
    "UpdateMessage",
    "Value",
    "WriteBehaviour",
    "WriteJob",
    "WriteMode",
    "col",
    "connect",
    "installed_backends",
    "mask_url",
    "read_split",
    "specification_from_document",
    "specification_to_document",
]

__version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("structable")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
