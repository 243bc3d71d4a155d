"""`HBaseSnapshot`: the committed state at one timestamp of the counter."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby, islice

from structable.backends.ordered.engine import SPACE_BYTES, EngineSnapshot, FeedEntry, Pair

from .feed_reader import FeedReader, Gated
from .reader import CommittedReader, FirstPairs
from .session import ProcessSession

_FIRST_ROWS = 100
_ROWS_TOGETHER = 1_000
_INTERVALS_TOGETHER = 100


class HBaseSnapshot(EngineSnapshot):
    """A snapshot, held by the session of this process until it is closed; commits up to its timestamp are visible."""

    scan_from = 501  # one call reads as many; a scan makes at least three

    def __init__(self, reader: CommittedReader, feeds: FeedReader, session: ProcessSession) -> None:
        self._reader = reader
        self._feeds = feeds
        self._gated: dict[bytes, list[Gated]] = {}
        self.session = session
        self.holder = object()  # held instead of the snapshot, which ends when it is collected
        self.timestamp = 0
        self.epoch = 0  # the timestamp of the newest schema change in it

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.session.require_alive()
        values: list[bytes | None] = []
        for _, group in groupby(keys, key=lambda key: key[:SPACE_BYTES]):
            values += self._reader.values(list(group), self.timestamp)
        self.session.require_alive()
        return values

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        for pairs in self._reader.pages(begin, end, self.timestamp, reverse=reverse):
            self.session.require_alive()
            yield from pairs
        # Pages omit rows whose versions were removed.
        self.session.require_alive()

    def scan_intervals(
        self,
        intervals: Sequence[tuple[bytes, bytes]],
        *,
        reverse: bool = False,
        limit: int | None = None,
        limit_each: int | None = None,
    ) -> Iterator[Pair]:
        wanted = [interval for interval in intervals if interval[0] < interval[1]]
        most = min([one for one in (limit, limit_each) if one is not None], default=None)
        if len(wanted) == 1 and (most is None or most > _FIRST_ROWS):
            return islice(self.scan(*wanted[0], reverse=reverse), limit_each)
        rows = _FIRST_ROWS if most is None else min(most, _FIRST_ROWS)
        return self._scan_together(wanted, rows, limit_each, reverse)

    def _scan_together(
        self, intervals: list[tuple[bytes, bytes]], rows: int, limit_each: int | None, reverse: bool
    ) -> Iterator[Pair]:
        together = max(1, min(_ROWS_TOGETHER // max(rows, 1), _INTERVALS_TOGETHER))
        for start in range(0, len(intervals), together):
            part = intervals[start : start + together]
            for pairs, left in self._firsts(part, rows, reverse):
                yield from pairs[:limit_each]
                if left is not None and (limit_each is None or len(pairs) < limit_each):
                    more = None if limit_each is None else limit_each - len(pairs)
                    yield from islice(self.scan(*left, reverse=reverse), more)

    def _firsts(self, intervals: list[tuple[bytes, bytes]], rows: int, reverse: bool) -> list[FirstPairs]:
        found = self._reader.firsts(intervals, self.timestamp, rows, reverse=reverse)
        self.session.require_alive()
        return found

    def settled_version(self, feed: bytes) -> int:
        if feed not in self._gated:
            self._gated[feed] = self._feeds.settle(feed, self.timestamp)
        return self.timestamp

    def entries(self, feed: bytes, since: int, until: int, chunk: int = 0) -> Generator[FeedEntry]:
        # No check of the session: entries have one version each, and are removed only when their feed's floor rises.
        at = self.settled_version(feed)
        yield from self._feeds.entries(feed, since, until, chunk, at, self._gated[feed])

    def close(self) -> None:
        self.session.release(self.holder)

    def __del__(self) -> None:
        self.close()
