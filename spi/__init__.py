"""structable's contract: one structured table, any store.

Services and jobs import from here and from nowhere else; a backend implements `Backend`, `Storage`, `Transaction`,
`TableAdmin` and `StructuredTable`. Read in this order: `fields`, `specification`, `table`, `storage`, `bulk`.
"""

from .backend import COMMON_OPTIONS, Backend, Option, OptionValue
from .bulk import ScanPlan, ScanSplit, SnapshotHold, StagedWrite, WriteJob, WriteMode
from .documents import specification_from_document, specification_to_document
from .errors import (
    BackendNotFoundError,
    CommitOutcomeUnknownError,
    DataCorruptionError,
    FieldSizeLimitError,
    InvalidFieldError,
    InvalidSpecificationError,
    RecordExistsError,
    RecordNotFoundError,
    SchemaIncompatibleError,
    StorageUnavailableError,
    StructableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    TransactionError,
    UnsupportedOperationError,
)
from .fields import Field, FieldType
from .filters import Column, Filter, col
from .loader import InstalledBackend, connect, installed_backends
from .ranges import Range
from .rows import Row
from .scans import RowIterator, ScanExplanation
from .specification import TableSpecification
from .storage import Isolation, Storage, TableAdmin, Transaction, Transactional
from .table import StructuredTable
from .urls import StorageUrl, mask_url
from .values import Key, Value

__all__ = [
    "COMMON_OPTIONS",
    "Backend",
    "BackendNotFoundError",
    "Column",
    "CommitOutcomeUnknownError",
    "DataCorruptionError",
    "Field",
    "FieldSizeLimitError",
    "FieldType",
    "Filter",
    "InstalledBackend",
    "InvalidFieldError",
    "InvalidSpecificationError",
    "Isolation",
    "Key",
    "Option",
    "OptionValue",
    "Range",
    "RecordExistsError",
    "RecordNotFoundError",
    "Row",
    "RowIterator",
    "ScanExplanation",
    "ScanPlan",
    "ScanSplit",
    "SchemaIncompatibleError",
    "SnapshotHold",
    "StagedWrite",
    "Storage",
    "StorageUnavailableError",
    "StorageUrl",
    "StructableError",
    "StructuredTable",
    "TableAdmin",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TableSpecification",
    "Transaction",
    "TransactionClosedError",
    "TransactionConflictError",
    "TransactionError",
    "Transactional",
    "UnsupportedOperationError",
    "Value",
    "WriteJob",
    "WriteMode",
    "col",
    "connect",
    "installed_backends",
    "mask_url",
    "specification_from_document",
    "specification_to_document",
]
