"""`LocalSnapshot`: a snapshot in the process that owns the database; it may be pinned to an earlier commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.leveldb.native.database import (
    CLOSED,
    PLYVEL_ERRORS,
    RawIterator,
    RawSnapshot,
    Readers,
    scan_pairs,
    translated,
)
from structable.backends.leveldb.native.gaps import Gaps
from structable.backends.leveldb.native.native_guard import native_call
from structable.backends.leveldb.route import VERSION_KEY, unpack_stamp
from structable.backends.ordered.engine import EngineSnapshot, Pair, ReadSet
from structable.spi import StorageUnavailableError, TransactionClosedError

from .commit_nodes import CommitNode, Summary
from .history import SnapshotLostError


class LocalSnapshot(EngineSnapshot):
    """A LevelDB snapshot, its schema epoch, and the newest commit certainly in it; None if no commit will follow."""

    __slots__ = ("_gaps", "_raw", "_readers", "epoch", "node")

    def __init__(
        self, raw: RawSnapshot, readers: Readers, node: CommitNode | None, epoch: int, gaps: Gaps | None = None
    ) -> None:
        self._raw = raw
        self._readers = readers
        self._gaps = gaps
        self.node = node
        self.epoch = epoch

    @classmethod
    def unread(cls, node: CommitNode, epoch: int) -> LocalSnapshot:
        """Return a snapshot that can be committed but not read."""
        return cls(_ENDED, _NO_READERS, node, epoch)

    def hand_over(self) -> tuple[RawSnapshot, Readers, Gaps | None]:
        """Hand plyvel's snapshot over to another owner, and return it with the database's readers and its gaps."""
        raw, self._raw = self._raw, _ENDED
        return raw, self._readers, self._gaps

    @native_call
    def get(self, key: bytes) -> bytes | None:
        if self._readers.shut:
            raise StorageUnavailableError(CLOSED)
        try:
            return self._raw.get(key)
        except PLYVEL_ERRORS as error:
            raise translated(error) from error

    @native_call
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._readers.shut:
            raise StorageUnavailableError(CLOSED)
        get = self._raw.get
        try:
            return [get(key) for key in keys]
        except PLYVEL_ERRORS as error:
            raise translated(error) from error

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        if self._gaps and not reverse:
            begin = self._gaps.skip(begin)
        return scan_pairs(self._readers, self._raw, begin, end, reverse, True)

    def settled_version(self, feed: bytes) -> int:
        return unpack_stamp(self.get(VERSION_KEY))[0]

    @native_call
    def close(self) -> None:
        if self._readers.shut:
            self._readers.parked.append(self._raw)
        self._raw = _ENDED
        self.node = None


class PinnedSnapshot(LocalSnapshot):
    """The state at the earlier commit `base`, read from the later snapshot `taken`, whose last commit is `last`.

    Keys that no commit between the two has changed are the same in both; a read of any other key is a
    `SnapshotLostError`. Conflicts count from `base`.
    """

    __slots__ = ("_since",)

    def __init__(self, taken: LocalSnapshot, base: CommitNode, last: CommitNode) -> None:
        raw, readers, gaps = taken.hand_over()
        super().__init__(raw, readers, base, taken.epoch, gaps)
        self._since = Summary(base, last)

    def _require_unchanged(self, reads: ReadSet) -> None:
        if self._since.touched_any(reads):
            raise SnapshotLostError(
                "another transaction has committed a change of what this one reads, after this one's first write"
            )

    def get(self, key: bytes) -> bytes | None:
        self._require_unchanged(ReadSet({key}))
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._require_unchanged(ReadSet(set(keys)))
        return super().get_many(keys)

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        self._require_unchanged(ReadSet(set(), [(begin, end)]))
        return super().scan(begin, end, reverse=reverse)


class _ClosedSnapshot:
    def get(self, key: bytes) -> bytes | None:
        raise TransactionClosedError("the snapshot was closed")

    def iterator(
        self, *, start: bytes, stop: bytes, reverse: bool, verify_checksums: bool, fill_cache: bool
    ) -> RawIterator:
        raise TransactionClosedError("the snapshot was closed")


_ENDED = _ClosedSnapshot()
_NO_READERS = Readers()
