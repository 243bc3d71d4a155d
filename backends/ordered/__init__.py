"""The layer shared by key-ordered stores: turns an `Engine` into a full storage. Depends on no concrete store.

A backend over any ordered key-value store implements `Engine` and hands it to `OrderedStorage`.
"""

from structable.backends.base.uninterrupted import uninterrupted

from .engine import (
    BlindStep,
    BulkApplication,
    BulkChunk,
    BulkCommit,
    Engine,
    EngineSnapshot,
    EngineTraits,
    Increment,
    Operand,
    Pair,
    ReadSet,
    RunLostError,
    SchemaChangedError,
    SharedSplits,
    SplitPlan,
    StagedRun,
    Upcalls,
    WriteSet,
)
from .storage import OrderedStorage

__all__ = [
    "BlindStep",
    "BulkApplication",
    "BulkChunk",
    "BulkCommit",
    "Engine",
    "EngineSnapshot",
    "EngineTraits",
    "Increment",
    "Operand",
    "OrderedStorage",
    "Pair",
    "ReadSet",
    "RunLostError",
    "SchemaChangedError",
    "SharedSplits",
    "SplitPlan",
    "StagedRun",
    "Upcalls",
    "WriteSet",
    "uninterrupted",
]
