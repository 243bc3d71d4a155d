"""`Reader`: keys and intervals of keys at a timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.hbase.layout import FAMILY, VALUE
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.requests import FoundRow
from structable.backends.ordered.engine import SPACE_BYTES, Pair
from structable.spi.errors import TransactionConflictError

from .context import Context
from .intents import PUT, base_of
from .visibility import Visibility

__all__ = ["Reader", "table_dropped"]

_PAGE_ROWS = 2_000


class Reader:
    """Reads committed states; the caller keeps their versions from being removed."""

    def __init__(self, context: Context, visibility: Visibility) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._visibility = visibility

    def values(self, keys: Sequence[bytes], at: int) -> list[bytes | None]:
        """Return the values of keys of one space at a timestamp, in order; a conflict if the table was dropped."""
        table = self._layout.table(keys[0][:SPACE_BYTES])
        rows = [self._layout.row(key) for key in keys]
        try:
            states = self._visibility.read(table, rows, at)
        except TableMissingError as error:
            raise table_dropped() from error
        return [state.value if (state := states.get(row)) is not None else None for row in rows]

    def pages(self, begin: bytes, end: bytes, at: int, *, reverse: bool = False) -> Iterator[list[Pair]]:
        """Yield the pairs of an interval of one space, page by page, as `values` does."""
        if begin >= end:
            return
        table, first, last = self._layout.interval(begin, end)
        space, skip = self._layout.head(begin[:SPACE_BYTES])
        pages = self._gateway.pages(table, first, last, [FAMILY], before=at + 1, reverse=reverse, page_rows=_PAGE_ROWS)
        try:
            for page in pages:
                pairs = _pairs_of(page, space, skip)
                if pairs is None:
                    states = self._visibility.states(table, page, at)
                    pairs = [
                        (space + row[skip:], value)
                        for row, _ in page
                        if (state := states.get(row)) is not None and (value := state.value) is not None
                    ]
                yield pairs
        except TableMissingError as error:
            raise table_dropped() from error


def table_dropped() -> TransactionConflictError:
    """Return the error for a snapshot whose table was dropped."""
    return TransactionConflictError("a table was dropped since the snapshot was taken")


def _pairs_of(page: Sequence[FoundRow], space: bytes, skip: int) -> list[Pair] | None:
    """Return the pairs of a page without intents; None if it has some. `space` and `skip` are of `Layout.head`."""
    pairs: list[Pair] = []
    for row, cells in page:
        if len(cells) != 1 or VALUE not in cells:
            return None
        raw = cells[VALUE][0]
        value = raw[1:] if raw[0] == PUT else base_of(cells).value
        if value is not None:
            pairs.append((space + row[skip:], value))
    return pairs
