"""`CompactionProgress`: how far a store has compacted itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompactionProgress"]


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """How far a store has compacted itself.

    Parameters
    ----------
    fraction : float
        The part that is done, from 0 to 1.
    bytes : int
        The size of the store when it was last measured, which need not be each time.
    """

    fraction: float
    bytes: int
