"""`renewed`: reading in a newer snapshot where one can no longer be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from structable.spi import DataCorruptionError, TransactionConflictError

__all__ = ["SchemaChangedError", "SpaceMissingError", "renewed"]

Result = TypeVar("Result")


class SchemaChangedError(Exception):
    """`OrderedMap.epoch` was out of date: read the catalog again, then repeat the call."""


class SpaceMissingError(TransactionConflictError):
    """The store has not got the space of a table or a feed any more, where it has a `place` of its own."""

    def __init__(self, space: bytes, place: str) -> None:
        super().__init__(space, place)
        self.space = space
        self.place = place

    def __str__(self) -> str:
        return f"a table was dropped since the snapshot was taken: {self.place} is missing"


def renewed(body: Callable[[], Result]) -> Result:
    """Return what a function makes of a snapshot that it takes; called again if that can no longer be read.

    Raises
    ------
    DataCorruptionError
        If a space is missing that a snapshot taken afterwards names again.
    """
    missing = b""
    while True:
        try:
            return body()
        except SpaceMissingError as error:
            # What is dropped has left the catalog before it goes.
            if error.space == missing:
                raise DataCorruptionError(
                    f"{error.place} is missing, although the catalog names it: was it dropped by hand?"
                ) from error
            missing = error.space
        except (TransactionConflictError, SchemaChangedError):
            continue  # the process that held the snapshot has ended: a new one is held elsewhere, or cannot be had
