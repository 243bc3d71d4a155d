"""`OrderedMap`: byte keys and values in key order, read in snapshots and changed by atomic commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = [
    "SPACE_BYTES",
    "BulkCommit",
    "EngineSnapshot",
    "Increment",
    "OrderedMap",
    "Pair",
    "ReadSet",
    "SchemaChangedError",
    "WriteSet",
    "successor",
]

SPACE_BYTES = 4
"""Bytes at the head of every key that name its space."""

Pair = tuple[bytes, bytes]
"""A key and its value."""


def successor(prefix: bytes) -> bytes:
    """Return the smallest byte string that is greater than every one with this prefix.

    Raises
    ------
    ValueError
        If there is none: the prefix is empty or all 0xFF.
    """
    head = prefix.rstrip(b"\xff")
    if not head:
        raise ValueError(f"nothing is greater than everything that begins with {prefix!r}")
    return head[:-1] + bytes([head[-1] + 1])


class SchemaChangedError(Exception):
    """An engine noticed that `OrderedMap.epoch` was out of date: read the catalog again, then repeat the call."""


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds `amount` to one integer field of the row under a key, as of the commit.

    `schema` names the layout of the row, as `Upcalls.merge` understands it.
    """

    schema: bytes
    field: str
    amount: int


@dataclass(slots=True)
class ReadSet:
    """What a SERIALIZABLE transaction has read: keys, present or not, and half-open intervals of keys."""

    keys: set[bytes] = field(default_factory=set)
    intervals: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class WriteSet:
    """What a transaction changes, all or nothing.

    Parameters
    ----------
    writes : dict
        Rows: key to new value, None deletes. A key here conflicts with any later-than-snapshot write of the key.
    increments : dict
        Rows that are only incremented, by key (never also in `writes`). Two increments of one key do not conflict; an
        increment and a write do. The engine reads the newest value and stores `Upcalls.merge(value, increments)`.
    derived : dict
        Index entries and whatever else follows from `writes`: they conflict with nothing, except with the `reads` of a
        SERIALIZABLE transaction that they fall into.
    reads : ReadSet or None
        Under SERIALIZABLE: conflicts with any later-than-snapshot write, increment or derived change of a key in it.
        (A bulk commit may count as a write of everything in the intervals that touch its space.)
    spaces : set of bytes
        The spaces of the tables used: conflicts with a later-than-snapshot schema change of one of them.
    changed_spaces : set of bytes
        The spaces whose tables' schema this write set changes; not empty, it advances `OrderedMap.epoch`.
    """

    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    increments: dict[bytes, tuple[Increment, ...]] = field(default_factory=dict)
    derived: dict[bytes, bytes | None] = field(default_factory=dict)
    reads: ReadSet | None = None
    spaces: set[bytes] = field(default_factory=set)
    changed_spaces: set[bytes] = field(default_factory=set)


class EngineSnapshot(ABC):
    """One committed state of the whole map. Used by one thread at a time; iterators end with it.

    An iterator may be closed later than its snapshot, which does no harm and raises nothing. Every method may raise
    `StorageUnavailableError`, `DataCorruptionError`, and `TransactionConflictError` where the state can no longer be
    read.
    """

    scan_from = 32
    """The number of keys, close together, from which a scan may be cheaper than `get_many`; more over a network."""

    epoch: int
    """The engine's schema epoch in this state."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in their order; cheapest where the keys are sorted."""

    @abstractmethod
    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield the pairs with begin <= key < end, in key order or in reverse; a generator, to be closed early."""

    def pin(self) -> None:
        """Settle the state, as the transaction makes its first write: a later read must not see a younger one.

        By default nothing, for a snapshot is a state from the start. One that is taken with the first read overrides
        this. A commit without `pin` promises that nothing was read after the first write.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Free the state; idempotent, and callable from any thread, also by the garbage collector at any moment.

        So it must not wait for a lock that its own thread may hold already.
        """


class BulkCommit(ABC):
    """A commit too large for memory, handed over in chunks.

    An engine that can apply them all in one atomic step calls `check`, and writes the chunks and `completion`. Any
    other first writes `decision` durably, then the chunks, then `completion`, and keeps every state in between
    invisible; the procedure "recover" finds decisions without completion and runs their chunks again. Readers are
    never blocked, writers may be.
    """

    decision: dict[bytes, bytes | None]
    completion: dict[bytes, bytes | None]
    space: bytes
    """The space of the rows that it writes."""

    @abstractmethod
    def check(self, latest: EngineSnapshot) -> None:
        """Raise if the newest state does not admit this commit; called before anything is written, writers held off."""

    @abstractmethod
    def chunks(self, latest: EngineSnapshot) -> Iterator[dict[bytes, bytes | None]]:
        """Yield the changes, each chunk to be applied atomically; run again after a crash it yields what is missing."""


class OrderedMap(ABC):
    """A flat ordered map with snapshots and atomic, optimistically checked commits."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Number of the newest schema change that is known here, cheap to read.

        A snapshot has the epoch of its own state, never an older one.
        """

    epoch_lags = False
    """Whether `epoch` is only what this process has heard of, until `begin` or `get` finds a newer one.

    So it is where processes share a store and cannot see a number in it without a round trip. A schema change holds
    for every transaction that begins after it returned all the same, without a message to any process.
    """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the newest committed value of a key.

        Raises
        ------
        SchemaChangedError
            If `epoch_lags` and the schema changed before the key was read; `epoch` is up to date when it is raised.
        """

    @abstractmethod
    def begin(self, read_only: bool) -> EngineSnapshot:
        """Return the newest committed state; `read_only` says that no commit will follow."""

    @abstractmethod
    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        """Apply a write set atomically, if nothing that it depends on has changed since the snapshot.

        Parameters
        ----------
        snapshot : EngineSnapshot or None
            The state that the writes are based on, still open, and not read any more afterwards: the engine may close
            it. None writes without checking, for keys that no transaction reads yet (or any more).
        changes : WriteSet
            Durable when the call returns.

        Raises
        ------
        TransactionConflictError, StorageUnavailableError
            Nothing was applied.
        CommitOutcomeUnknownError
            The changes may have been applied, all of them or none.
        InvalidFieldError
            From `Upcalls.merge`; nothing was applied.
        """

    @abstractmethod
    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Apply a bulk commit atomically and durably; later snapshots see all of it, earlier ones nothing.

        A transaction that began before and writes a row that the bulk wrote conflicts.
        """
