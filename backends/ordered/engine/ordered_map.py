"""`OrderedMap`: byte keys and values in key order, read in snapshots and changed by atomic commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple, TypeAlias, TypeVar

from structable.spi import DataCorruptionError, TransactionConflictError

from .feed_entries import FeedEntry, entries_begin, entry_key, entry_of
from .traits import EngineTraits

Result = TypeVar("Result")

_AMOUNT_BYTES = 20
SPACE_BYTES = 4
"""The number of bytes at the head of every key that name its space."""

Pair = tuple[bytes, bytes]
"""A key and its value."""


def successor(prefix: bytes) -> bytes:
    """Return the smallest byte string that is greater than every one with this prefix.

    Raises
    ------
    ValueError
        If there is none because the prefix is empty or all 0xFF.
    """
    head = prefix.rstrip(b"\xff")
    if not head:
        raise ValueError(f"nothing is greater than everything that begins with {prefix!r}")
    return head[:-1] + bytes([head[-1] + 1])


class Increment(NamedTuple):
    """Adds `amount` to one integer field of the row under a key, as of the commit.

    `schema` names the layout of the row for `Upcalls.merge`.
    """

    schema: bytes
    field: str
    amount: int

    @property
    def size(self) -> int:
        """The approximate size of the step in a message."""
        return len(self.schema) + len(self.field) + _AMOUNT_BYTES


class Operand(NamedTuple):
    """Merges `row`, a change in the layout of rows, into the row under a key, as of the commit; null changes nothing.

    `schema` names the layout and the functions of the fields for `Upcalls.merge`; operands of a key commute.
    """

    schema: bytes
    row: bytes

    @property
    def size(self) -> int:
        """The approximate size of the step in a message."""
        return len(self.schema) + len(self.row)


BlindStep: TypeAlias = Increment | Operand
"""A change of a row that is made without reading the row."""


@dataclass(slots=True)
class ReadSet:
    """The reads of a SERIALIZABLE transaction: keys, present or not, and half-open intervals of keys."""

    keys: set[bytes] = field(default_factory=set)
    intervals: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class WriteSet:
    """The changes of a transaction, applied all or not at all.

    Parameters
    ----------
    writes : dict
        Rows: key to new value, None deletes. Conflicts with any write of the key after the snapshot.
    increments : dict
        Rows that are only incremented, or only merged into, by key (never also in `writes`): one kind for each key. Two
        transactions that increment one key do not conflict, nor do two that merge operands into it. An increment
        conflicts with an operand, and both conflict with a write. The engine reads the newest value and stores
        `Upcalls.merge(value, steps)`.
    derived : dict
        Index entries and all other changes that follow from `writes`: they conflict only with the `reads` of a
        SERIALIZABLE transaction that cover them.
    reads : ReadSet or None
        Under SERIALIZABLE: conflicts with any write, increment or derived change of a key in it after the snapshot.
        (A bulk commit may count as a write of all keys in the intervals that touch its space.)
    spaces : set of bytes
        The spaces of the tables used: conflicts with a schema change of any of them after the snapshot.
    changed_spaces : set of bytes
        The spaces whose schema this write set changes; if not empty, the commit advances `OrderedMap.epoch`.
    appends : dict
        By space of a change feed, the values that the commit appends to it, each one entry, never empty; they conflict
        with nothing. All entries of a commit have its version and time. Only for an engine that `keeps_versions`. An
        empty list is given for the entries of `increments`, which are described only in a write set with appends.
    signals : frozenset of str
        The channels that an engine which carries signals wakes once the commit is visible.
    """

    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    increments: dict[bytes, tuple[BlindStep, ...]] = field(default_factory=dict)
    derived: dict[bytes, bytes | None] = field(default_factory=dict)
    reads: ReadSet | None = None
    spaces: set[bytes] = field(default_factory=set)
    changed_spaces: set[bytes] = field(default_factory=set)
    appends: dict[bytes, list[bytes]] = field(default_factory=dict)
    signals: frozenset[str] = frozenset()


class EngineSnapshot(ABC):
    """One committed state of the whole map. Used by one thread at a time; its iterators end when it is closed.

    Closing an iterator after its snapshot is harmless and raises nothing. Every method may raise
    `StorageUnavailableError`, `DataCorruptionError`, and `TransactionConflictError` if the state can no longer be read.
    """

    scan_from: int | None = 32
    """The number of sorted keys from which a scan may be cheaper than `get_many`; None where `get_many` decides."""

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

    def scan_intervals(
        self,
        intervals: Sequence[tuple[bytes, bytes]],
        *,
        reverse: bool = False,
        limit: int | None = None,
        limit_each: int | None = None,
    ) -> Iterator[Pair]:
        """Yield the pairs of several intervals, one interval after the other in the given order.

        An engine in another process overrides this, to request all intervals together.

        Parameters
        ----------
        intervals : sequence of tuple
            Half-open intervals, as for `scan`.
        reverse : bool
            Whether the pairs of each interval come in reverse.
        limit : int or None
            The maximum number of pairs that the caller takes; the engine may yield more.
        limit_each : int or None
            The maximum number of pairs to yield of each interval.
        """
        if len(intervals) == 1 and limit_each is None:
            return self.scan(*intervals[0], reverse=reverse)
        # Begin the first scan now: a snapshot in another process begins with its first request.
        scans = [self.scan(*interval, reverse=reverse) for interval in intervals[:1]]
        others = (self.scan(*interval, reverse=reverse) for interval in intervals[1:])
        return chain.from_iterable(islice(scan, limit_each) for scan in chain(scans, others))

    def settled_version(self, feed: bytes) -> int:
        """Return the commit version of this state, of an engine that `keeps_versions`.

        The state has every commit up to this version that appended to the space of a feed, and no later one. Every
        commit that appends to the space from now on has a higher version.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no versions")

    def entries(self, feed: bytes, since: int, until: int, chunk: int = 0) -> Generator[FeedEntry]:
        """Yield the entries in the space of a feed, in their order; a generator, to be closed early.

        Parameters
        ----------
        feed : bytes
            The space.
        since, until : int
            The commits in (since, until]; `until` is at most `settled_version`.
        chunk : int
            The number of the first entry to yield of the commit of version `since` + 1.
        """
        begin = entry_key(feed, since + 1, chunk) if chunk else entries_begin(feed, since)
        pairs = self.scan(begin, entries_begin(feed, until))
        try:
            yield from map(entry_of, pairs)
        finally:
            pairs.close()  # type: ignore[attr-defined] # a generator

    def entry_sizes(self, feed: bytes, since: int, until: int) -> Generator[tuple[int, int, int]]:
        """Yield version, chunk and size of each entry in (since, until]; a generator, to be closed early.

        An engine that knows sizes without reading the values overrides this.
        """
        with closing(self.entries(feed, since, until)) as entries:
            for version, chunk, _, payload in entries:
                yield version, chunk, len(payload)

    def pin(self) -> None:
        """Fix the state. The transaction calls this at its first write: a later read must not see a newer state.

        Does nothing by default, because a snapshot is a fixed state from the start. A snapshot that is taken at the
        first read overrides this. A commit without `pin` promises that no read followed the first write.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Free the state; idempotent, callable from any thread and by the garbage collector at any moment.

        Must therefore not wait for a lock that its own thread may hold.
        """


class BulkChunk(NamedTuple):
    """A part of a bulk commit, applied atomically."""

    changes: dict[bytes, bytes | None]
    appends: Sequence[bytes] = ()
    """Values to append to the space `BulkCommit.feed`, each an entry with the version of the whole commit."""
    first: int = 0
    """The number of the chunk's first entry among the entries of the commit."""


class BulkCommit(ABC):
    """A commit too large for memory, applied in chunks, as `EngineTraits.bulk_application` specifies.

    An engine that can apply all chunks in one atomic step calls `check`, and writes the chunks and `completion`. Any
    other engine first writes `decision` durably, then the chunks, then `completion`, and keeps every state in between
    invisible; the procedure "recover" finds decisions without completion and applies the chunks that may be missing.
    Readers are never blocked, writers may be.
    """

    decision: dict[bytes, bytes | None]
    completion: dict[bytes, bytes | None]
    space: bytes
    """The space of the written rows."""
    feed: bytes | None = None
    """The space of their table's change feed."""
    signals: frozenset[str] = frozenset()
    """The channels to signal, as in `WriteSet`."""

    @abstractmethod
    def check(self, latest: EngineSnapshot) -> None:
        """Raise if the newest state rules out this commit; called before the first write, with writers blocked."""

    @abstractmethod
    def chunks(self, latest: EngineSnapshot) -> Iterator[BulkChunk]:
        """Yield the changes, each chunk applied atomically; after a crash, only chunks that may be missing."""


class OrderedMap(ABC):
    """A flat ordered map with snapshots and atomic, optimistically checked commits."""

    traits: EngineTraits

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The number of the newest schema change known to this process; cheap to read.

        A snapshot has the epoch of its own state, never an older one.
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
        """Return the newest committed state; `read_only` promises that no commit will follow."""

    def look(self, body: Callable[[EngineSnapshot], Result]) -> Result:
        """Return the result of a function of the newest committed state; see `renewed`."""

        def looked() -> Result:
            snapshot = self.begin(True)
            try:
                return body(snapshot)
            finally:
                snapshot.close()

        return renewed(looked)

    @abstractmethod
    def commit(self, snapshot: EngineSnapshot | None, changes: WriteSet) -> None:
        """Apply a write set atomically, unless the snapshot's state has changed in a way that conflicts with it.

        Parameters
        ----------
        snapshot : EngineSnapshot or None
            The state that the writes are based on, still open; the caller must not read it afterwards: the engine may
            close it. None writes without checks, for keys that no transaction reads yet (or any more).
        changes : WriteSet
            Durable when the call returns.

        Raises
        ------
        TransactionConflictError, StorageUnavailableError
            Nothing was applied.
        CommitOutcomeUnknownError
            The changes may have been applied, all of them or none.
        InvalidFieldError
            From `Upcalls.merge` or `Upcalls.check`; nothing was applied.
        """

    @abstractmethod
    def commit_bulk(self, bulk: BulkCommit) -> None:
        """Apply a bulk commit atomically and durably; later snapshots see all of it, earlier ones nothing.

        A transaction that began before and writes a row that the bulk wrote conflicts.
        """


class SchemaChangedError(Exception):
    """`OrderedMap.epoch` was out of date: read the catalog again, then repeat the call."""


class SpaceMissingError(TransactionConflictError):
    """The space of a table or a feed is gone from a store that keeps each space in its own `home`."""

    def __init__(self, space: bytes, home: str) -> None:
        super().__init__(space, home)
        self.space = space
        self.home = home

    def __str__(self) -> str:
        return f"a table was dropped since the snapshot was taken: {self.home} is missing"


def renewed(body: Callable[[], Result]) -> Result:
    """Return the result of a function of a new snapshot; the function is called again if the snapshot is lost.

    Raises
    ------
    DataCorruptionError
        If a space is missing that a later snapshot still names.
    """
    missing = b""
    while True:
        try:
            return body()
        except SpaceMissingError as error:
            # A dropped space leaves the catalog before it is removed.
            if error.space == missing:
                raise DataCorruptionError(
                    f"{error.home} is missing, although the catalog names it: was it dropped by hand?"
                ) from error
            missing = error.space
        except (TransactionConflictError, SchemaChangedError):
            continue  # the process that held the snapshot has ended: a new one is held elsewhere, or cannot be had
