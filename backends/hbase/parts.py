"""`Part`: what a commit sends over one connection before it decides; a large one is cut into two, sent side by side.

Each part makes the transaction's record, places its intents, draws a timestamp, and reads its rows back, in this order,
as a commit in one part does. The last timestamp drawn is the commit timestamp: every intent was placed before the
timestamp of its part, and so before that one. Each row is read back after its own intent was placed, which is all that
two writers of one row need to find each other. The markers of schemas must be read after the commit timestamp was
drawn: all parts read them, and those count that the part with the last timestamp has read.

Two parts may not see the bounds of an increment as of one moment, and a change of a schema has an order of its own:
both stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from .calls import ROWS_AT_ONCE, Call, Cells, get_rows, put_column
from .changes import Changes, SpaceChanges
from .conflicts import Place
from .layout import FAMILY, MARKER, Layout, intent_column
from .versions import placed

__all__ = ["Part", "parts_of"]

_LEAST_ROWS = 25
"""Of a part: fewer are done before a second connection is asked."""
_MOST_PARTS = 2


@dataclass(slots=True)
class Part:
    """What is sent over one connection.

    Attributes
    ----------
    puts : list of Call
        Place the intents.
    reads : list of Call
        Read back.
    spaces : list of bytes
        The space that each of the reads is of.
    """

    puts: list[Call[object]] = field(default_factory=list)
    reads: list[Call[object]] = field(default_factory=list)
    spaces: list[bytes] = field(default_factory=list)

    def seen(self, found: Iterable[object]) -> Iterator[tuple[Place, Cells]]:
        """Yield what the reads found, given their results; rows that were never written are left out."""
        for space, rows in zip(self.spaces, found, strict=True):
            assert isinstance(rows, list)
            for row, cells in rows:
                yield (space, row), cells


def parts_of(layout: Layout, txid: bytes, start: int, changes: Changes) -> list[Part]:
    """Return the parts of a commit, one at least.

    Parameters
    ----------
    txid, start : bytes and int
        The transaction, and the timestamp of its snapshot.
    """
    rows = sum(len(one.checked) + len(one.derived) for one in changes.spaces.values())
    count = 1 if changes.increments or changes.schemas else max(1, min(rows // _LEAST_ROWS, _MOST_PARTS))
    parts: list[Part] = []
    for spaces in _cut(changes.spaces, count):
        part = Part()
        for space, one in spaces.items():
            part.puts += put_column(layout.table(space), intent_column(txid), placed(txid, one.all), start)
        for space in spaces.keys() | changes.markers:
            looked_at = list(spaces[space].checked) if space in spaces else []
            if space in changes.markers:
                looked_at.append(layout.row(space + MARKER))
            for begin in range(0, len(looked_at), ROWS_AT_ONCE):
                part.spaces.append(space)
                part.reads.append(get_rows(layout.table(space), looked_at[begin : begin + ROWS_AT_ONCE], [FAMILY]))
        parts.append(part)
    return parts


def _cut(spaces: Mapping[bytes, SpaceChanges], count: int) -> Iterator[Mapping[bytes, SpaceChanges]]:
    """Yield as many pieces: of every space, each has about the same number of rows."""
    if count == 1:
        yield spaces
        return
    for number in range(count):
        piece = {
            space: SpaceChanges(_share(one.checked, number, count), _share(one.derived, number, count))
            for space, one in spaces.items()
        }
        yield {space: one for space, one in piece.items() if one.checked or one.derived}


def _share(rows: Mapping[bytes, bytes], number: int, count: int) -> dict[bytes, bytes]:
    size = len(rows)
    return dict(islice(rows.items(), size * number // count, size * (number + 1) // count))
