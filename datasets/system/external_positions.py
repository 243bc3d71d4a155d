"""How far subscribers have read topics of other systems, kept with what they made of the messages."""

from __future__ import annotations

import datetime as dt

from structable.datasets.errors import StaleGenerationError
from structable.datasets.identifiers import check_names
from structable.datasets.tables.platform import EXTERNAL_POSITIONS, ExternalPosition

from .context import Dataset

__all__ = ["ExternalPositions"]


class ExternalPositions(Dataset):
    """The dataset `external_positions`."""

    def get(self, topic: str, subscriber: str) -> str | None:
        """Return the position, or None."""
        found = self._context.records(EXTERNAL_POSITIONS).get(topic, subscriber)
        return None if found is None else found.position

    def put(
        self,
        topic: str,
        subscriber: str,
        position: str,
        *,
        expected: str | None = None,
        at: dt.datetime | None = None,
    ) -> None:
        """Keep a position, in the transaction of what was consumed.

        Parameters
        ----------
        expected : str, optional
            The position from which the messages were read.

        Raises
        ------
        StaleGenerationError
            If another position is stored than the one expected: another consumer was faster.
        """
        check_names(topic=topic, subscriber=subscriber)
        positions = self._context.records(EXTERNAL_POSITIONS)
        made = ExternalPosition(topic=topic, subscriber=subscriber, position=position, updated=self._context.now(at))
        if expected is not None:
            stored = self.get(topic, subscriber)
            if stored != expected:
                raise StaleGenerationError(expected, stored)
        positions.put(made)
