"""`PlannedScan`: a plan of the coordinator, as the other processes see it."""

from __future__ import annotations

from dataclasses import dataclass

from structable.spi import FeedPosition, ScanSplit

__all__ = ["PlannedScan"]


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A plan that the coordinator holds under an id, its position if the table has a change feed, and its order.

    `order` is the key of the table if the rows come in key order, else nothing.
    """

    plan_id: str
    splits: tuple[ScanSplit, ...]
    position: FeedPosition | None = None
    order: tuple[str, ...] = ()
