"""structable's contract: one structured table, any store.

Services and jobs import from here and from nowhere else; a backend implements `Backend`, `Storage`, `Transaction`,
`TableAdmin` and `StructuredTable`, with the help of the last part of `__all__`. Read in this order: `fields`,
`specification`, `table`, `transactions`, `storage`, `bulk`, `feeds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admin import Progress, TableAdmin
from .aggregates import AggregateExpression, Aggregation
from .autocommit import AutoCommitTable
from .backend import COMMON_OPTIONS, Backend, Option, OptionValue, may_create
from .bulk import CommitResult, PatchArm, ScanPlan, ScanSplit, SnapshotHold, StagedWrite, WriteJob, WriteMode
from .capabilities import Capabilities
from .changes import Change, RowKind, UpdateMessage
from .documents import specification_from_document, specification_to_document
from .errors import (
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
from .evaluation import compile_filter
from .expressions import Expression
from .feeds import ChangeFeed, ChangeIterator, ChangePlan
from .field_functions import Cast, Computed, FieldFunction, JsonField, Lower
from .field_rules import Derived, FieldRule, Renamed, Retired
from .fields import Field, FieldType
from .filters import Column, Filter, col
from .imports import needing
from .loader import InstalledBackend, connect, installed_backends, read_split
from .merging import Merger
from .positions import FeedPosition
from .ranges import Range
from .rows import Row, RowShape
from .rules.aggregates import check_aggregation
from .rules.arguments import check_columns
from .rules.changes import check_changes, check_row_changes
from .rules.filters import bind_filter
from .rules.ranges import check_range
from .rules.rows import check_index_sizes, check_key, check_row, check_row_size
from .rules.scans import check_limit
from .rules.schema_changes import SchemaChange, plan_schema_change
from .runner import retry
from .scans import RowIterator, ScanExplanation
from .shared_snapshots import SharedSnapshot
from .signals import Listener
from .specification import TableSpecification
from .storage import Storage
from .store_reports import CompactionProgress, Finding, FindingLevel, TableStatistics, Traffic
from .table import StructuredTable
from .transactions import Isolation, Transaction, Transactional
from .urls import StorageUrl, mask_url
from .value_checks import check_value
from .values import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, Key, Value, value_size

if TYPE_CHECKING:
    from .arrow import arrow_schema, arrow_type, conform_batch, rows_to_batches
    from .arrow_aggregates import aggregate_schema, partial_aggregates

__all__ = [
    "COMMON_OPTIONS",
    "AggregateExpression",
    "Aggregation",
    "Backend",
    "BackendNotFoundError",
    "Capabilities",
    "Cast",
    "Change",
    "ChangeFeed",
    "ChangeIterator",
    "ChangePlan",
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
    "Option",
    "OptionValue",
    "PatchArm",
    "Range",
    "PlanChangedError",
    "PlanError",
    "Progress",
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
    "WriteJob",
    "WriteMode",
    "col",
    "connect",
    "installed_backends",
    "mask_url",
    "read_split",
    "specification_from_document",
    "specification_to_document",
    # For authors of backends: the rules that every store shares.
    "MAX_KEY_AND_INDEX_SIZE",
    "MAX_KEY_SIZE",
    "MAX_ROW_SIZE",
    "AutoCommitTable",
    "Merger",
    "RowShape",
    "SchemaChange",
    "aggregate_schema",
    "arrow_schema",
    "arrow_type",
    "bind_filter",
    "check_aggregation",
    "check_changes",
    "check_columns",
    "check_index_sizes",
    "check_key",
    "check_limit",
    "check_range",
    "check_row",
    "check_row_changes",
    "check_row_size",
    "check_value",
    "compile_filter",
    "conform_batch",
    "may_create",
    "partial_aggregates",
    "plan_schema_change",
    "retry",
    "rows_to_batches",
    "value_size",
]

__version__: str
_ARROW = ("arrow_schema", "arrow_type", "conform_batch", "rows_to_batches")
_ARROW_AGGREGATES = ("aggregate_schema", "partial_aggregates")


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("structable")
    # Imported on first use: the core does not depend on Arrow.
    if name in _ARROW:
        with needing("Arrow batches need", "arrow"):
            from . import arrow

        return getattr(arrow, name)
    if name in _ARROW_AGGREGATES:
        with needing("Arrow batches need", "arrow"):
            from . import arrow_aggregates

        return getattr(arrow_aggregates, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
