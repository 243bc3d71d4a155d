"""`Splits`: a snapshot divided at region boundaries, and inside large regions, to be read in any process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise

from structable.backends.ordered.engine import SPACE_BYTES, Pair, SharedSplits, SplitPlan
from structable.backends.ordered.scan.intervals import intersection
from structable.spi import StorageUnavailableError, TransactionClosedError

from .layout import FAMILY, STATE, Layout, plan_row
from .thrift.errors import TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import compare_and_put, delete_row, get_row, regions
from .txn.reader import CommittedReader, space_missing
from .txn.sessionless import SessionlessSnapshot, removed_point
from .txn.snapshot import HBaseSnapshot

_SPOTS, _MOST_SPOTS = 8, 16
_SAMPLE = 250
_COMPARED_BYTES = 48
_DIGITS = 8
"""Bytes after the common prefix of a region's first and last key that serve to interpolate keys between them."""


class Splits:
    """Plans of scans, and their splits."""

    def __init__(self, gateway: Gateway, layout: Layout, reader: CommittedReader) -> None:
        self._gateway = gateway
        self._layout = layout
        self._reader = reader

    def share(self, snapshot: HBaseSnapshot) -> HeldSplits:
        """Take over a snapshot, and hold it for the plans that divide it."""
        row = b"" if isinstance(snapshot, SessionlessSnapshot) else plan_row(uuid.uuid4().bytes)
        try:
            if row:
                # The record shows readers in other processes that the plan is still open.
                about = json.dumps({"session": snapshot.session.id.hex(), "timestamp": snapshot.timestamp}).encode()
                self._gateway.call(compare_and_put(self._layout.transactions, row, STATE, None, about), retry=False)
        except BaseException:
            snapshot.close()
            raise
        return HeldSplits(self, self._gateway, self._layout, snapshot, row)

    def divide(
        self, snapshot: HBaseSnapshot, row: bytes, begin: bytes, end: bytes, count: int, feed: bytes | None
    ) -> tuple[list[bytes], int | None]:
        """Divide a snapshot that a record holds; return the states of the splits, and the snapshot's version."""
        table, first, last = self._layout.interval(begin, end)
        try:
            version = None if feed is None else snapshot.settled_version(feed)
            bounds = [first, *self._points(table, first, last, count), last] if first < last else [first, last]
        except TableMissingError as error:
            raise space_missing(self._layout, begin[:SPACE_BYTES]) from error
        space, skip = self._layout.head(begin[:SPACE_BYTES])
        states = [
            json.dumps(
                {
                    "plan": row.hex(),
                    "timestamp": snapshot.timestamp,
                    "begin": (space + low[skip:]).hex(),
                    "end": (space + high[skip:]).hex(),
                }
            ).encode()
            for low, high in pairwise(bounds)
        ]
        return states, version

    def _points(self, table: str, first: bytes, last: bytes, count: int) -> list[bytes]:
        """Return where to divide first <= row < last: at region boundaries, and between them by the values of keys."""
        points = sorted(region.start for region in self._gateway.call(regions(table)) if first < region.start < last)
        bounds = [first, *points, last]
        each = -(-count // (len(bounds) - 1))
        if each > 1:
            for low, high in pairwise(bounds):
                points += self._inner_points(table, low, high, each)
        return sorted(set(points))

    def estimate(self, begin: bytes, end: bytes) -> tuple[int, int]:
        """Return about how many rows an interval has, and their bytes, as if each part were as dense as its first rows.

        The gateway reports no sizes, so the distances of keys are used instead.
        """
        table, low, high = self._layout.interval(begin, end)
        parts = list(pairwise([low, *self._points(table, low, high, _SPOTS), high]))
        looked_at = [self._sample(table, *part) for part in parts[:: -(-len(parts) // _MOST_SPOTS)]]
        numbers = _KeyNumbers(key for rows, last, _ in looked_at for key in (*rows, *last))
        pairs = size = 0.0
        for rows, last, bytes_found in looked_at:
            more = numbers.share(rows[0], rows[-1], last[0]) if last else 1.0
            pairs += len(rows) * more
            size += bytes_found * more
        scale = len(parts) / len(looked_at)
        return int(pairs * scale), int(size * scale)

    def _sample(self, table: str, low: bytes, high: bytes) -> tuple[list[bytes], list[bytes], int]:
        """Return the first rows of an interval, the last row if there are more, and the bytes of the first rows."""
        pages = self._gateway.pages(table, low, high, [FAMILY], before=None, page_rows=_SAMPLE, first_rows=_SAMPLE)
        # Closed before the next call, which needs a connection as well.
        with closing(pages):  # type: ignore[type-var] # a generator
            found = next(pages, [])
        rows = [row for row, _ in found]
        size = sum(len(row) + sum(len(value) for value, _ in cells.values()) for row, cells in found)
        last = self._edge(table, low, high, reverse=True) if len(rows) > 1 else None
        return rows, [] if last is None or last <= rows[-1] else [last], size

    def _inner_points(self, table: str, low: bytes, high: bytes, count: int) -> list[bytes]:
        """Return about `count` - 1 keys that divide an interval evenly if its keys are spread evenly."""
        least, greatest = self._edge(table, low, high, reverse=False), self._edge(table, low, high, reverse=True)
        if least is None or greatest is None or least >= greatest:
            return []
        common = _common(least, greatest)
        one, other = (_number(key[common:]) for key in (least, greatest))
        points = []
        for part in range(1, count):
            middle = least[:common] + (one + (other - one) * part // count).to_bytes(_DIGITS)
            if low < middle < high:
                points.append(middle)
        return points

    def _edge(self, table: str, low: bytes, high: bytes, *, reverse: bool) -> bytes | None:
        pages = self._gateway.pages(table, low, high, [FAMILY], before=None, reverse=reverse, page_rows=1)
        return next((page[0][0] for page in pages if page), None)

    def read(self, state: bytes, intervals: Sequence[tuple[bytes, bytes]] | None) -> Iterator[Pair]:
        split = json.loads(state)
        whole = [(bytes.fromhex(split["begin"]), bytes.fromhex(split["end"]))]
        row, timestamp = bytes.fromhex(split["plan"]), split["timestamp"]
        self._require_held(row, timestamp)
        for begin, end in whole if intervals is None else intersection(whole, intervals):
            for pairs in self._reader.pages(begin, end, timestamp):
                # After the page: if the record is still there, nothing of the snapshot was removed before.
                self._require_held(row, timestamp)
                yield from pairs
        # Pages omit rows whose versions were removed.
        self._require_held(row, timestamp)

    def values(self, state: bytes, keys: Sequence[bytes]) -> list[bytes | None]:
        split = json.loads(state)
        values = self._reader.values(keys, split["timestamp"])
        self._require_held(bytes.fromhex(split["plan"]), split["timestamp"])
        return values

    def _require_held(self, row: bytes, timestamp: int) -> None:
        if not row:
            if removed_point(self._gateway, self._layout) > timestamp:
                raise TransactionClosedError(
                    "versions that this split reads have been removed: its plan was made with read_only=True, which "
                    "does not keep them (see the writers' option late_writes)"
                )
        elif STATE not in self._gateway.call(get_row(self._layout.transactions, row, [STATE])):
            raise TransactionClosedError(
                "the plan of this split was closed, or its process ended, and its snapshot with it"
            )


class HeldSplits(SharedSplits):
    """A snapshot with its record, which one plan or several divide."""

    def __init__(self, splits: Splits, gateway: Gateway, layout: Layout, snapshot: HBaseSnapshot, row: bytes) -> None:
        self._splits = splits
        self._gateway = gateway
        self._table = layout.transactions
        self._row = row
        self.snapshot: HBaseSnapshot = snapshot

    def plan_splits(self, begin: bytes, end: bytes, count: int, *, feed: bytes | None = None) -> SplitPlan:
        self.snapshot.session.require_alive()
        states, version = self._splits.divide(self.snapshot, self._row, begin, end, count, feed)
        # The snapshot stays for the other plans.
        return SplitPlan(states, lambda: None, self.snapshot.epoch, version)

    def release(self) -> None:
        # The record first: readers must not find it once versions may be removed.
        try:
            if self._row:
                self._gateway.call(delete_row(self._table, self._row))
        except StorageUnavailableError:
            return  # the session holds the snapshot until it ends
        self.snapshot.close()


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes two keys have in common at their beginnings."""
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return common


class _KeyNumbers:
    """Keys as numbers in which each byte is a digit: one of ten in texts of digits, of 256 in binary values."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        seen: list[set[int]] = [set() for _ in range(_COMPARED_BYTES)]
        for key in keys:
            for bytes_seen, byte in zip(seen, key, strict=False):
                bytes_seen.add(byte)
        self._digits = [_digits(one) for one in seen if one]

    def share(self, first: bytes, last: bytes, end: bytes) -> float:
        """Return the distance of the end from the first key, divided by the distance of the last key; at least 1."""
        begin = self._number_of(first)
        return max(1.0, (self._number_of(end) - begin) / max(1, self._number_of(last) - begin))

    def _number_of(self, key: bytes) -> int:
        number = 0
        for at, (least, count) in enumerate(self._digits):
            number = number * count + (key[at] - least if at < len(key) else 0)
        return number


def _digits(seen: set[int]) -> tuple[int, int]:
    """Return the smallest byte at a position of the keys, and the number of different bytes there may be."""
    if seen <= set(b"0123456789"):
        return ord("0"), 10
    if all(0x20 <= byte < 0x7F for byte in seen):
        return min(seen), max(seen) - min(seen) + 1
    return 0, 256


def _number(rest: bytes) -> int:
    return int.from_bytes(rest[:_DIGITS].ljust(_DIGITS, b"\0"))
