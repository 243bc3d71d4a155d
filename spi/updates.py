"""`UpdateMessage`: a partial update, and the row to start from where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .showing import shown
from .values import Value

__all__ = ["UpdateMessage"]


@dataclass(frozen=True, slots=True)
class UpdateMessage:
    """A partial update of one row; equal by content, and picklable.

    Parameters
    ----------
    update : mapping of str to Value
        The fields to change; for `StructuredTable.update_many` also the key.
    default : mapping of str to Value, optional
        The row to start from if there is none of the key; it may leave the key out. None is no default.

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
