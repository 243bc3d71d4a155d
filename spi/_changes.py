"""Changes of rows, as writes take them: a row with its kind (`Change`), and a partial update (`UpdateMessage`)."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ._error_texts import shown
from ._values import Value

CHANGE_TYPE = "_change_type"
"""The column of row kinds in the batches of write jobs of mode changes."""
FEED_COLUMNS = (CHANGE_TYPE, "_commit_version", "_commit_timestamp")
"""The columns of changes that are not fields of the table."""


class RowKind(enum.StrEnum):
    """The meaning of a change for its row."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    retracts: bool
    """Whether the row is taken back: -U and -D."""

    def __init__(self, text: str) -> None:
        self.retracts = text.startswith("-")  # an attribute: each merge asks several times

    @property
    def change_type(self) -> str:
        """The kind in the column `_change_type`: `insert`, `update_preimage`, `update_postimage`, `delete`."""
        return _CHANGE_TYPES[self]

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
        The kind of the change.
    row : mapping of str to Value
        The row. To write, a retract names the key and the fields that the merge engine needs.
    version : int, optional
        The commit version that a change feed gives; ignored when written.
    timestamp : datetime.datetime, optional
        The time of that commit; ignored when written.
    number : int, optional
        In a feed of the producer `input`, the place of the change among all changes of its version and its table, from
        0; ignored when written.
    """

    kind: RowKind
    row: Mapping[str, Value]
    version: int | None = None
    timestamp: dt.datetime | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class UpdateMessage:
    """A partial update of one row; equal by content, and picklable.

    Parameters
    ----------
    update : mapping of str to Value
        The fields to change; for `StructuredTable.update_many` also the key.
    default : mapping of str to Value, optional
        The row to start from if the key has no row; it may leave the key out. None means that there is no default.

    Raises
    ------
    TypeError
        If the update is not a mapping, or the default neither a mapping nor None.
    """

    update: Mapping[str, Value]
    default: Mapping[str, Value] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.update, Mapping):
            raise TypeError(f"update is {shown(self.update)}; it must be a mapping of field names to values")
        if self.default is not None and not isinstance(self.default, Mapping):
            raise TypeError(f"default is {shown(self.default)}; it must be a mapping of field names to values, or None")

    @property
    def has_default(self) -> bool:
        """Whether there is a default."""
        return self.default is not None
