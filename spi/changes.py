"""`RowKind` and `Change`: rows that come with what happened to them."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from .showing import shown
from .values import Value

__all__ = ["CHANGE_TYPE", "FEED_COLUMNS", "Change", "RowKind"]

CHANGE_TYPE = "_change_type"
"""The column of row kinds in the batches of write jobs of mode changes."""
FEED_COLUMNS = (CHANGE_TYPE, "_commit_version", "_commit_timestamp")
"""The columns of changes that are no fields of the table."""


class RowKind(enum.StrEnum):
    """What a change says about its row."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def change_type(self) -> str:
        """The kind in the column `_change_type`: `insert`, `update_preimage`, `update_postimage`, `delete`."""
        return _CHANGE_TYPES[self]

    @property
    def retracts(self) -> bool:
        """Whether the row is taken back: -U and -D."""
        return self is RowKind.UPDATE_BEFORE or self is RowKind.DELETE

    @classmethod
    def of(cls, text: object) -> Self:
        """Return the kind of either notation, `+I` or `insert`.

        Raises
        ------
        ValueError
            For any other text; the message lists all eight.
        """
        kind = _BY_TEXT.get(text) if isinstance(text, str) else None
        if kind is None:
            raise ValueError(f"{shown(text)} is not a row kind; there are {', '.join(map(str, _BY_TEXT))}")
        return cls(kind)


_CHANGE_TYPES = {
    RowKind.INSERT: "insert",
    RowKind.UPDATE_BEFORE: "update_preimage",
    RowKind.UPDATE_AFTER: "update_postimage",
    RowKind.DELETE: "delete",
}
_BY_TEXT = {**{str(kind): kind for kind in RowKind}, **{text: kind for kind, text in _CHANGE_TYPES.items()}}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row; immutable and picklable.

    Parameters
    ----------
    kind : RowKind
        What happened.
    row : mapping of str to Value
        The row. To write, a retract names the key and the fields that the merge engine needs.
    version : int, optional
        The commit version that a change feed gives; ignored when written.
    timestamp : datetime.datetime, optional
        When that commit was made; ignored when written.
    number : int, optional
        The place of the change among those of its version and its table, from 0, in a feed of the producer `input`;
        ignored when written.
    """

    kind: RowKind
    row: Mapping[str, Value]
    version: int | None = None
    timestamp: dt.datetime | None = None
    number: int | None = None
