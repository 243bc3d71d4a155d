"""`Reader`: keys and intervals of keys at a timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.hbase.layout import FAMILY, VALUE, Layout
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import FoundRow
from structable.backends.ordered.engine import SPACE_BYTES, Pair
from structable.spi.errors import TransactionConflictError

from .intents import PUT, base_of
from .visibility import Resolver

__all__ = ["Reader", "dropped"]

_PAGE_ROWS = 2_000


class Reader:
    """Reads committed states; it holds none of them.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    resolver : Resolver
        Knows what intents mean.
    """

    def __init__(self, gateway: Gateway, layout: Layout, resolver: Resolver) -> None:
        self._gateway = gateway
        self._layout = layout
        self._resolver = resolver

    def values(self, keys: Sequence[bytes], at: int) -> list[bytes | None]:
        """Return the values of keys of one space at a timestamp, in their order.

        Raises
        ------
        TransactionConflictError
            If the table was dropped.
        """
        table = self._layout.table(keys[0][:SPACE_BYTES])
        rows = [self._layout.row(key) for key in keys]
        try:
            states = self._resolver.read(table, rows, at)
        except TableMissingError as error:
            raise dropped() from error
        return [state.value if (state := states.get(row)) is not None else None for row in rows]

    def pages(self, begin: bytes, end: bytes, at: int, *, reverse: bool = False) -> Iterator[list[Pair]]:
        """Yield the pairs of an interval of one space at a timestamp, page by page.

        Raises
        ------
        TransactionConflictError
            If the table was dropped.
        """
        if begin >= end:
            return
        table, first, last = self._layout.interval(begin, end)
        space, skip = self._layout.head(begin[:SPACE_BYTES])
        pages = self._gateway.pages(table, first, last, [FAMILY], before=at + 1, reverse=reverse, page_rows=_PAGE_ROWS)
        try:
            for page in pages:
                pairs = _pairs_of(page, space, skip)
                if pairs is None:
                    states = self._resolver.states(table, page, at)
                    pairs = [
                        (space + row[skip:], value)
                        for row, _ in page
                        if (state := states.get(row)) is not None and (value := state.value) is not None
                    ]
                yield pairs
        except TableMissingError as error:
            raise dropped() from error


def dropped() -> TransactionConflictError:
    """Return the error of a snapshot whose table is there no longer."""
    return TransactionConflictError("a table was dropped since the snapshot was taken")


def _pairs_of(page: Sequence[FoundRow], space: bytes, skip: int) -> list[Pair] | None:
    """Return the pairs of a page that has no intents; None if it has some.

    Parameters
    ----------
    page : sequence of FoundRow
        Its rows, with all cells.
    space, skip : bytes and int
        What `Layout.head` says of its table.
    """
    pairs: list[Pair] = []
    for row, cells in page:
        if len(cells) != 1 or VALUE not in cells:
            return None
        raw = cells[VALUE][0]
        value = raw[1:] if raw[0] == PUT else base_of(cells).value
        if value is not None:
            pairs.append((space + row[skip:], value))
    return pairs
