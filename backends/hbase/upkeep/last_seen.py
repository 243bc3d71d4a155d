"""`Sightings`: what this process has seen of cells that others change, and since when; no two clocks are compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Sightings"]


class Sightings:
    """The content of cells, as last seen, and how long it has been so."""

    def __init__(self) -> None:
        self._cells: dict[bytes, tuple[bytes, float]] = {}
        self._before: dict[bytes, tuple[bytes, float]] = {}

    def unchanged_for(self, name: bytes, content: bytes) -> float:
        """Return for how many seconds a cell has had this content."""
        now = time.monotonic()
        # In a round they move from one mapping to the other: there are many, and there is no time when all are in both.
        seen = self._before.pop(name, None) or self._cells.get(name)
        if seen is None or seen[0] != content:
            seen = content, now
        self._cells[name] = seen
        return now - seen[1]

    @contextmanager
    def round(self) -> Iterator[None]:
        """Look at all cells there are in the `with` block: those that were not seen in it are forgotten after it."""
        self._before, self._cells = self._cells, {}
        try:
            yield
        except BaseException:
            self._cells |= self._before
            raise
        finally:
            self._before = {}
