"""`Engine`: the small interface that a key-ordered store implements to become a full structable backend.

An engine knows nothing of tables. It keeps one flat, ordered map of byte keys to byte values with snapshots, and
commits write sets atomically, refusing those that overlap with a commit made after their snapshot. The first four
bytes of every key name its *space*; a store that keeps tables apart may take them as the name of a physical table.
Keys are at most about 6 KiB and values at most about 9 MiB; a value is never empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from structable.spi import Finding, StorageUnavailableError

__all__ = [
    "SPACE_BYTES",
    "BulkCommit",
    "Engine",
    "EngineSnapshot",
    "Increment",
    "Pair",
    "ReadSet",
    "RunLostError",
    "SchemaChangedError",
    "Spaces",
    "SplitPlan",
    "WriteSet",
    "successor",
]

SPACE_BYTES = 4
"""Bytes at the head of every key that name its space."""

Pair = tuple[bytes, bytes]
"""A key and its value."""
_DISCARDED_AT_ONCE = 1_000


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


class RunLostError(StorageUnavailableError):
    """A run is not there: its job has ended, or its files were lost."""


class SchemaChangedError(Exception):
    """An engine noticed that `Engine.epoch` was out of date: catalogs have to be read again, then the call repeated."""


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds `amount` to one integer field of the row under a key, as of the commit.

    `schema` names the layout of the row, as `Engine.merge` understands it.
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
        increment and a write do. The engine reads the newest value and stores `Engine.merge(value, increments)`.
    derived : dict
        Index entries and whatever else follows from `writes`: they conflict with nothing, except with the `reads` of a
        SERIALIZABLE transaction that they fall into.
    reads : ReadSet or None
        Under SERIALIZABLE: conflicts with any later-than-snapshot write, increment or derived change of a key in it.
        (A bulk commit may count as a write of everything in the intervals that touch its space.)
    spaces : set of bytes
        The spaces of the tables used: conflicts with a later-than-snapshot schema change of one of them.
    changed_spaces : set of bytes
        The spaces whose tables' schema this write set changes; not empty, it advances `Engine.epoch`.
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
    """From how many keys on, if they lie close together, a scan may be cheaper than `get_many`."""

    epoch: int
    """The engine's schema epoch in this state."""

    def pin(self) -> None:
        """Take note that the transaction has its first write, if nothing was read before.

        An engine that puts the snapshot off to the first read needs to know: the state read must not be younger than
        this. Whoever commits without it reads nothing after the first write.
        """
        return None

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in their order; cheapest where the keys are sorted."""

    @abstractmethod
    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield the pairs with begin <= key < end, in key order or in reverse; a generator, to be closed early."""

    @abstractmethod
    def close(self) -> None:
        """Free the state; idempotent, and callable from any thread, also by the garbage collector at any moment.

        So it must not wait for a lock that its own thread may hold already.
        """


class BulkCommit(ABC):
    """A commit too large for memory, handed over in chunks.

    An engine that can apply them all in one atomic step calls `check`, and writes the chunks and `completion`. Any
    other first writes `decision` durably, then the chunks, then `completion`, and lets nobody see a state in between;
    `recover` finds decisions without completion and runs their chunks again. Readers are never blocked, writers may be.
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


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A snapshot divided for reading from many processes.

    Parameters
    ----------
    states : list of bytes
        One for each split, for `Engine.read_split` in any process.
    release : callable
        Frees the snapshot; after it, `read_split` raises `TransactionClosedError`. Must not refer to the storage.
    epoch : int
        The engine's schema epoch in the snapshot.
    """

    states: list[bytes]
    release: Callable[[], None]
    epoch: int


@dataclass(frozen=True, slots=True)
class Spaces:
    """What the catalog says of spaces.

    Parameters
    ----------
    tables : frozenset of bytes
        Those of tables.
    loading : frozenset of bytes
        Those that write jobs load, for tables that are overwritten.
    leaving : frozenset of bytes
        Those of dropped tables that are still to be discarded.
    following : bytes
        The first that was never given away. One below it that is in no set is never used again.
    """

    tables: frozenset[bytes]
    loading: frozenset[bytes]
    leaving: frozenset[bytes]
    following: bytes


class Engine(ABC):
    """A flat ordered map with snapshots and atomic, optimistically checked commits. Safe to share between threads."""

    merge: Callable[[bytes | None, Sequence[Increment]], bytes]
    """Applies increments to a row's value; set by the layer above. Raises `InvalidFieldError` on overflow."""

    procedures: dict[str, Callable[[bytes], bytes]]
    """What `delegate` runs; set by the layer above."""

    epoch_lags = False
    """Whether `epoch` may be out of date until `begin` or `get` finds that out."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Number of the newest schema change that is known here, cheap to read.

        A snapshot has the epoch of its own state, never an older one. Where this number may lag behind the store,
        `get` finds that out.
        """

    def start(self) -> None:
        """Begin service; the layer above calls it once `merge` and `procedures` are set, before anything else.

        An engine that may find decisions of an interrupted bulk commit runs `procedures["recover"]` here, before it
        serves anybody.
        """
        return None

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the newest committed value of a key.

        Raises
        ------
        SchemaChangedError
            If the schema changed while the call was on its way; `epoch` is up to date when it is raised. Never from an
            engine whose `epoch` is read from the store itself.
        """

    def create_space(self, space: bytes) -> None:
        """Make a space ready for its first key, before the table is recorded whose rows it will hold; idempotent.

        Raises
        ------
        TransactionConflictError
            If keys are there already: somebody else has made the space his own meanwhile.
        """
        return None

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        """Delete all keys that start with `beginning`, which no snapshot of later than now names.

        Parameters
        ----------
        beginning : bytes
            At least a space.
        stopped : callable
            Asked between steps; true ends the call early.

        Returns
        -------
        bool
            Whether all of them are gone; else the call is to be repeated later.
        """
        snapshot = self.begin(True)
        try:
            keys = (key for key, _ in snapshot.scan(beginning, successor(beginning)))
            while step := list(islice(keys, _DISCARDED_AT_ONCE)):
                if stopped():
                    return False
                self.commit(None, WriteSet(derived=dict.fromkeys(step)))
        finally:
            snapshot.close()
        return True

    @abstractmethod
    def begin(self, read_only: bool) -> EngineSnapshot:
        """Return the newest committed state; `read_only` says that no commit will follow."""

    @abstractmethod
    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        """Apply a write set atomically, if nothing that it depends on has changed since the snapshot.

        Parameters
        ----------
        snapshot : EngineSnapshot or None
            What the writes are based on, still open, and not read any more afterwards: the engine may close it. None
            writes without checking, for keys that nobody reads yet (or any more).
        changes : WriteSet
            Durable when the call returns.

        Raises
        ------
        TransactionConflictError, StorageUnavailableError
            Nothing was applied.
        CommitOutcomeUnknownError
            It cannot be known.
        InvalidFieldError
            From `merge`; nothing was applied.
        """

    @abstractmethod
    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Apply a bulk commit atomically and durably; later snapshots see all of it, earlier ones nothing.

        A transaction that began before and writes a row that the bulk wrote conflicts.
        """

    @property
    def process_local(self) -> bool:
        """Whether the map lives in this process alone."""
        return False

    def delegate(self, procedure: str, argument: bytes) -> bytes:
        """Run one of `procedures` in the process that can do it best: here, unless the engine says otherwise."""
        return self.procedures[procedure](argument)

    @abstractmethod
    def plan_splits(self, begin: bytes, end: bytes, count: int) -> SplitPlan:
        """Take a snapshot of begin <= key < end and divide it into about `count` about equal parts, at least one.

        Raises
        ------
        UnsupportedOperationError
            If other processes cannot read the store.
        """

    @abstractmethod
    def read_split(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None = None) -> Iterator[Pair]:
        """Yield the pairs of a split, in key order; a generator, to be closed early.

        Parameters
        ----------
        state : bytes
            One of `SplitPlan.states`.
        intervals : sequence of tuple of bytes, optional
            Only pairs within one of these; half-open, sorted and disjoint.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot is no longer there.
        """

    plans_hold_everything = False
    """Whether `read_planned` can be asked, so that an index may find the rows of a plan."""

    def read_planned(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of any keys, in their order, in the snapshot of a split.

        Raises
        ------
        TransactionClosedError
            If the plan's snapshot is no longer there.
        """
        raise NotImplementedError(f"{type(self).__name__} reads nothing but the intervals of splits")

    @abstractmethod
    def write_run(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        """Store staged pairs of a write job outside the map, durably, and return what `read_run` needs. Any process.

        Parameters
        ----------
        job_id : str
            A name of the job that no other job has had: its id, and more that tells it from jobs of the same id.
        pairs : iterator of Pair
            What to store.
        """

    @abstractmethod
    def read_run(self, state: bytes) -> Iterator[Pair]:
        """Yield the pairs of a run, in the order written; a generator, to be closed early.

        Raises
        ------
        RunLostError
            If the run is not there.
        DataCorruptionError
            If it is damaged.
        """

    def check_run(self, state: bytes) -> None:
        """Raise as `read_run` would, where that can be told for less than reading it."""
        return None

    @abstractmethod
    def drop_runs(self, job_id: str) -> None:
        """Remove all runs of a job; idempotent."""

    @abstractmethod
    def jobs_with_runs(self) -> dict[str, float]:
        """Return the names of jobs that have runs, with the time of the youngest run in seconds since the epoch."""

    def diagnose(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Yield what the engine knows of its own state; see `Storage.diagnose`. By default there is nothing to tell.

        Parameters
        ----------
        spaces : callable
            Reads what the catalog says of spaces at present.
        """
        return iter(())

    def repair(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Finish what ended processes left; see `Storage.repair`. By default there is nothing to do."""
        return iter(())

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the engine was closed, or inherited by a fork."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; idempotent."""
