"""`CommittedReader`: keys and intervals of keys at a timestamp."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from structable.backends.hbase.layout import FAMILY, VALUE, Layout
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.requests import FoundRow
from structable.backends.hbase.thrift.scanner import FIRST_ROWS, CellScan
from structable.backends.ordered.engine import SPACE_BYTES, Pair, SpaceMissingError
from structable.spi import TransactionConflictError

from .context import PrefixContext
from .intents import PUT, base_of
from .visibility import Visibility

_PAGE_ROWS = 2_000

FirstPairs: TypeAlias = tuple[list[Pair], tuple[bytes, bytes] | None]
"""The first pairs of an interval, and the rest of the interval if more rows may follow."""


class CommittedReader:
    """Reads committed states; the caller keeps their versions from being removed."""

    def __init__(self, context: PrefixContext, visibility: Visibility) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._visibility = visibility

    def values(self, keys: Sequence[bytes], at: int) -> list[bytes | None]:
        """Return the values of keys of one space at a timestamp, in order; a conflict if the table was dropped."""
        space = keys[0][:SPACE_BYTES]
        table = self._layout.table(space)
        rows = [self._layout.row(key) for key in keys]
        try:
            states = self._visibility.read(table, rows, at)
        except TableMissingError as error:
            raise space_missing(self._layout, space) from error
        return [state.value if (state := states.get(row)) is not None else None for row in rows]

    def pages(
        self, begin: bytes, end: bytes, at: int, *, reverse: bool = False, first_rows: int = FIRST_ROWS
    ) -> Generator[list[Pair]]:
        """Yield the pairs of an interval of one space, page by page, as `values` does."""
        if begin >= end:
            return
        table, first, last = self._layout.interval(begin, end)
        pages = self._gateway.pages(
            table,
            first,
            last,
            [FAMILY],
            before=at + 1,
            reverse=reverse,
            page_rows=_PAGE_ROWS,
            first_rows=first_rows,
        )
        try:
            for page in pages:
                yield self._pairs_of(table, begin[:SPACE_BYTES], page, at)
        except TableMissingError as error:
            raise space_missing(self._layout, begin[:SPACE_BYTES]) from error

    def firsts(
        self, intervals: Sequence[tuple[bytes, bytes]], at: int, rows: int, *, reverse: bool = False
    ) -> list[FirstPairs]:
        """Return the first pairs of intervals of one space at a timestamp, together.

        At most `rows` rows of each interval are read; some may have no value at the timestamp.

        Raises
        ------
        TransactionConflictError
            If the table was dropped.
        """
        space = intervals[0][0][:SPACE_BYTES]
        table = self._layout.table(space)
        bounds = [self._layout.interval(*interval)[1:] for interval in intervals]
        scans = [CellScan(table, *bound, (FAMILY,), at + 1, reverse, rows, None) for bound in bounds]
        try:
            pages = self._gateway.first_pages(scans, rows)
            # The rows of all intervals are evaluated together: their intents may need round trips.
            values = dict(self._pairs_of(table, space, [row for page in pages for row in page.rows], at))
        except TableMissingError as error:
            raise space_missing(self._layout, space) from error
        head, skip = self._layout.head(space)
        found: list[FirstPairs] = []
        for (begin, end), page in zip(intervals, pages, strict=True):
            keys = [head + row[skip:] for row, _ in page.rows]
            left = (begin, keys[-1]) if reverse and keys else (keys[-1] + b"\0", end) if keys else (begin, end)
            pairs = [(key, values[key]) for key in keys if key in values]
            found.append((pairs, None if page.ended else left))
        return found

    def _pairs_of(self, table: str, space: bytes, rows: Sequence[FoundRow], at: int) -> list[Pair]:
        head, skip = self._layout.head(space)
        pairs = _plain_pairs(rows, head, skip)
        if pairs is not None:
            return pairs
        states = self._visibility.states(table, rows, at)
        return [
            (head + row[skip:], value)
            for row, _ in rows
            if (state := states.get(row)) is not None and (value := state.value) is not None
        ]


def table_dropped() -> TransactionConflictError:
    """Return the error for a commit to a table that was dropped."""
    return TransactionConflictError("a table was dropped since the snapshot was taken")


def space_missing(layout: Layout, space: bytes) -> SpaceMissingError:
    """Return the error for a snapshot whose table was dropped."""
    return SpaceMissingError(space, f"the HBase table {layout.table(space)}")


def _plain_pairs(page: Sequence[FoundRow], space: bytes, skip: int) -> list[Pair] | None:
    """Return the pairs of rows without intents; None if there are some. `space` and `skip` are of `Layout.head`."""
    pairs: list[Pair] = []
    for row, cells in page:
        if len(cells) != 1 or VALUE not in cells:
            return None
        raw = cells[VALUE][0]
        value = raw[1:] if raw[0] == PUT else base_of(cells).value
        if value is not None:
            pairs.append((space + row[skip:], value))
    return pairs
