"""`EngineTraits`: the promises of an engine beyond the signatures of its methods."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class BulkApplication(enum.Enum):
    """The way in which an engine applies a bulk commit."""

    AT_ONCE = "at once"
    """All chunks in one atomic step: an error while they are computed leaves nothing behind."""
    IN_ORDER = "in order"
    """After a durable decision, one chunk after the other: if a chunk survives a crash, all before it do."""
    UNORDERED = "unordered"
    """After a durable decision; a crash may leave any of the chunks. Commits whose chunks cannot be repeated are not
    given to such an engine."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """The traits of an engine.

    Parameters
    ----------
    bulk_application : BulkApplication
        The way in which `commit_bulk` applies a commit.
    process_local : bool
        The map lives in this process alone.
    epoch_lags : bool
        `epoch` may be older than the store's until `begin` or `get` finds a newer one. True for stores that processes
        share and whose epoch costs a round trip to read. A schema change still applies to every transaction that begins
        after the change returned, without a message to any process.
    table_types : bool
        The store has tables that merge, or have no key; see `Upkeep.exclude_older_software`.
    takes_operands : bool
        `commit` takes an `Operand`; to an engine that does not, each merge is a write of the row.
    keeps_versions : bool
        Each commit that appends to change feeds has a version, see `EngineSnapshot.settled_version`.
    keeps_entries : bool
        A snapshot keeps all entries of feeds, including entries that are dropped after it was taken.
    times_ascend : bool
        The times of entries of feeds never go back from version to version, so that they can be bisected.
    describes_merges : bool
        A commit with appends calls `Upcalls.describe` for each key that its steps change, and appends the result. If
        not, rows of tables whose feed holds images are read and put instead.
    plans_hold_everything : bool
        A plan's snapshot has every key of the map, so that `read_planned` finds rows by an index. False if splits are
        copies of their own intervals: plans then never use an index.
    carries_signals : bool
        `commit` and `commit_bulk` wake the listeners of `Engine.listen` in every process. If not, the
        layer above wakes the listeners of this process.
    """

    bulk_application: BulkApplication = BulkApplication.UNORDERED
    process_local: bool = False
    epoch_lags: bool = False
    table_types: bool = False
    takes_operands: bool = False
    keeps_versions: bool = False
    keeps_entries: bool = False
    times_ascend: bool = False
    describes_merges: bool = False
    plans_hold_everything: bool = False
    carries_signals: bool = False
