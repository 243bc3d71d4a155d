"""`Engine`: the interface that a key-ordered store implements to become a full structable backend, in four roles.

`ordered_map` is the store itself: snapshots of byte keys and values, and atomic commits. `splits` divides a snapshot
among processes, `runs` stores the rows staged by write jobs, `upkeep` creates, removes and repairs the spaces of
tables. An `Engine` plays all four roles; `start` gives it the upcalls that it needs from the layer above.

An engine knows nothing of tables. The first four bytes of every key name its *space*; a store may map each space to a
physical table. Keys are at most about 6 KiB and values at most about 9 MiB; a value is never empty.
"""

from .engine import Check, Describe, Engine, Fits, MergeFunction, Upcalls
from .feed_entries import FeedEntry, entries_begin, entry_key, entry_of, entry_pairs, stamped
from .ordered_map import (
    SPACE_BYTES,
    BlindStep,
    BulkChunk,
    BulkCommit,
    EngineSnapshot,
    Increment,
    Operand,
    OrderedMap,
    Pair,
    ReadSet,
    SchemaChangedError,
    SpaceMissingError,
    WriteSet,
    renewed,
    successor,
)
from .runs import RunLostError, RunStore, StagedRun
from .splits import (
    BATCH_BYTES,
    BATCH_ROWS,
    RawRows,
    SharedSplits,
    SplitPlan,
    SplitSource,
    rows_of_pairs,
    rows_of_values,
)
from .traits import BulkApplication, EngineTraits
from .upkeep import Spaces, SpaceTakenError, Upkeep

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "SPACE_BYTES",
    "BlindStep",
    "BulkApplication",
    "BulkChunk",
    "BulkCommit",
    "Check",
    "Describe",
    "Engine",
    "EngineSnapshot",
    "EngineTraits",
    "FeedEntry",
    "Fits",
    "Increment",
    "MergeFunction",
    "Operand",
    "OrderedMap",
    "Pair",
    "RawRows",
    "ReadSet",
    "RunLostError",
    "RunStore",
    "SchemaChangedError",
    "SharedSplits",
    "SpaceMissingError",
    "SpaceTakenError",
    "Spaces",
    "SplitPlan",
    "SplitSource",
    "StagedRun",
    "Upcalls",
    "Upkeep",
    "WriteSet",
    "entries_begin",
    "entry_key",
    "entry_of",
    "entry_pairs",
    "renewed",
    "rows_of_pairs",
    "rows_of_values",
    "stamped",
    "successor",
]
