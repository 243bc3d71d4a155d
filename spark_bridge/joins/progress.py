"""`JoinProgress`, and the table `structable_progress`: up to where a result has its join, and who writes it now."""

from __future__ import annotations

from dataclasses import dataclass

from structable.spi import FeedPosition

__all__ = ["JoinProgress"]


@dataclass(frozen=True, slots=True)
class JoinProgress:
    """What one step did, or several.

    Attributes
    ----------
    affected : int
        The rows of the left table that were joined again; of a rebuild the rows of the result that differed.
    inserted, updated, deleted : int
        The rows of the result that were written.
    left_position, right_position : FeedPosition or None
        The result is the join of the tables as they stood there. None while another worker does the first step.
    rebuilt : bool
        Whether the whole join was compared with the result.
    """

    affected: int
    inserted: int
    updated: int
    deleted: int
    left_position: FeedPosition | None
    right_position: FeedPosition | None
    rebuilt: bool = False

    @property
    def unchanged(self) -> int:
        """The affected rows of which nothing had to be written."""
        return self.affected - self.inserted - self.updated - self.deleted
