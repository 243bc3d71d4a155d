"""Reading rows by their keys, intents included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from structable.backends.hbase.layout import FAMILY, Layout
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Call, Cells, get_rows

__all__ = ["RowId", "read_rows", "row_calls"]

RowId = tuple[bytes, bytes]
"""Space and row."""


def row_calls(
    layout: Layout, rows: Iterable[RowId], before: int | None = None
) -> tuple[list[Call[object]], Callable[[Sequence[object]], dict[RowId, Cells]]]:
    """Return the calls that read rows, and the function that decodes their results.

    Rows that were never written are missing from the result.
    """
    by_space: dict[bytes, list[bytes]] = {}
    for space, row in rows:
        by_space.setdefault(space, []).append(row)
    calls: list[Call[object]] = []
    spaces: list[bytes] = []
    for space, names in by_space.items():
        for begin in range(0, len(names), ROWS_AT_ONCE):
            spaces.append(space)
            calls.append(get_rows(layout.table(space), names[begin : begin + ROWS_AT_ONCE], [FAMILY], before))

    def decode(results: Sequence[object]) -> dict[RowId, Cells]:
        found: dict[RowId, Cells] = {}
        for space, result in zip(spaces, results, strict=True):
            assert isinstance(result, list)
            found.update(((space, row), cells) for row, cells in result)
        return found

    return calls, decode


def read_rows(gateway: Gateway, layout: Layout, rows: Iterable[RowId], before: int | None = None) -> dict[RowId, Cells]:
    """Return the cells of rows; rows never written are omitted."""
    calls, decode = row_calls(layout, rows, before)
    return decode(gateway.flight(calls, retry=True))
