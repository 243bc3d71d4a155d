"""`TableStatistics`: how many rows there are, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COUNTED_ROWS", "TableStatistics"]

COUNTED_ROWS = 2_000
"""Tables and ranges of at most this many rows are counted exactly."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The size of a table, or of a range of its keys.

    Parameters
    ----------
    rows : int
        The number of rows; an estimate is at least 1.
    bytes : int
        About the size of these rows in memory, all columns together; 0 only without rows.
    exact : bool
        Whether `rows` is the number of rows of one committed state.
    """

    rows: int
    bytes: int
    exact: bool
