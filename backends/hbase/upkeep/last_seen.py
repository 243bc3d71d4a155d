"""`LastSeen`: how long cells of other processes have been unchanged, by this process's clock alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LastSeen"]


class LastSeen:
    """The content of cells, as last seen, and since when."""

    def __init__(self) -> None:
        self._cells: dict[bytes, tuple[bytes, float]] = {}
        self._before: dict[bytes, tuple[bytes, float]] = {}

    def unchanged_for(self, name: bytes, content: bytes) -> float:
        """Return for how many seconds a cell has had this content."""
        now = time.monotonic()
        # A round moves cells from one mapping to the other: they are many, and must not be in memory twice.
        seen = self._before.pop(name, None) or self._cells.get(name)
        if seen is None or seen[0] != content:
            seen = content, now
        self._cells[name] = seen
        return now - seen[1]

    @contextmanager
    def round(self) -> Iterator[None]:
        """Look at all existing cells in the `with` block; cells not seen in it are forgotten after it."""
        self._before, self._cells = self._cells, {}
        try:
            yield
        except BaseException:
            self._cells |= self._before
            raise
        finally:
            self._before = {}
