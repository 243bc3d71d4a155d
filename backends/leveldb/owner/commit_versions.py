"""`CommitVersions`: the versions of commits to change feeds, and their entries.

The version of the newest such commit is stored under a separate key, in the batch of the commit itself: each state of
the database includes its version, for readers in any process. A bulk commit reserves its version with its decision, so
that all its chunks have one version, even those written after a crash. Its completion makes the version the newest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from structable.backends.leveldb.native.database import FIRST_KEY, Database, KeyChanges
from structable.backends.leveldb.route import VERSION_KEY, pack_stamp, unpack_stamp
from structable.backends.ordered.engine import BulkChunk, entry_pairs

_RESERVED = FIRST_KEY + b"\x05"
_RESERVED_END = FIRST_KEY + b"\x06"


class CommitVersions:
    """The versions of a database; used only by the thread that commits.

    A version is taken before its commit is written, and never reused: a failed or interrupted commit leaves a gap in
    the numbers.
    """

    __slots__ = ("_newest", "_time")

    def __init__(self) -> None:
        self._newest = self._time = 0

    def begin(self, database: Database) -> None:
        """Load the versions of a database that was just opened."""
        self._newest, self._time = unpack_stamp(database.get(VERSION_KEY))
        for _, stamp in database.scan(_RESERVED, _RESERVED_END):
            version, at = unpack_stamp(stamp)
            self._newest, self._time = max(version, self._newest), max(at, self._time)

    def settle(self, database: Database) -> None:
        """Advance the newest version past the versions of bulk commits that recovery could not complete.

        Their tables have the rows of only some chunks.
        """
        if unpack_stamp(database.get(VERSION_KEY))[0] < self._newest:
            database.write((self.newest_stamp(),), True)

    def newest_stamp(self) -> dict[bytes, bytes | None]:
        """Return the change that records the newest version in the database."""
        return {VERSION_KEY: pack_stamp(self._newest, self._time)}

    def _take(self) -> tuple[int, int]:
        version = self._newest = self._newest + 1
        now = time.time_ns() // 1_000
        if now < self._time:
            now = self._time
        self._time = now
        return version, now

    def stamped(self, appends: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes | None]:
        """Return the entries and the stamp of a commit that appends to feeds."""
        version, now = self._take()
        part: dict[bytes, bytes | None] = {}
        for feed, payloads in appends.items():
            if part:
                part |= entry_pairs(feed, version, now, payloads)
            else:
                part = entry_pairs(feed, version, now, payloads)
        part[VERSION_KEY] = pack_stamp(version, now)
        return part

    def reserve(self, database: Database, feed: bytes, *, decided: bool) -> BulkVersion:
        """Return the version of a bulk commit, which may have been decided before a crash."""
        key = _RESERVED + feed
        stamp = database.get(key) if decided else None
        if stamp is None:
            version, now = self._take()
            return BulkVersion(self, key, feed, version, now, {key: pack_stamp(version, now)})
        return BulkVersion(self, key, feed, *unpack_stamp(stamp), {})


class BulkVersion:
    """The version of one bulk commit."""

    def __init__(
        self, versions: CommitVersions, key: bytes, feed: bytes, version: int, at: int, decision: KeyChanges
    ) -> None:
        self.decision = decision
        """The changes that are written with the decision."""
        self._versions = versions
        self._key = key
        self._feed = feed
        self._version = version
        self._time = at

    def entries(self, chunk: BulkChunk) -> KeyChanges:
        """Return the entries that are written with a chunk."""
        return entry_pairs(self._feed, self._version, self._time, chunk.appends, chunk.first)

    def completion(self) -> dict[bytes, bytes | None]:
        """Return the changes that are written with the completion."""
        return {self._key: None, **self._versions.newest_stamp()}
