"""The arguments of `send_to` and `send_update_to` that determine the effect of the rows, checked without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from structable.spi import Value

_ALLOWED = {
    "mode": ("upsert", "changes", "replace", "insert"),
    "nulls": ("set", "keep"),
    "on_missing": ("fail", "drop"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The arguments of `send_to`, or of `send_update_to` if `update`, with the same meanings.

    Raises
    ------
    ValueError
        For a value that is not allowed, or arguments that do not go together.
    """

    update: bool = False
    mode: str = "upsert"
    default: Mapping[str, Value] | str | None = None
    nulls: str = "set"
    on_missing: str = "fail"
    order_by: tuple[str, ...] | None = None
    unordered: bool = False
    deletes: str | None = None

    def __post_init__(self) -> None:
        for argument, allowed in _ALLOWED.items():
            given = getattr(self, argument)
            if given not in allowed:
                raise ValueError(f"{argument} is {given!r}; allowed are {', '.join(allowed)}")
        if self.default is not None and not isinstance(self.default, str | Mapping):
            raise ValueError(
                f"default is {self.default!r}; it must be a mapping of fields, or the name of a struct column"
            )
        if self.deletes is None:
            return
        if not isinstance(self.deletes, str) or not self.deletes:
            raise ValueError(f"deletes is {self.deletes!r}; it must be the name of a boolean column")
        if self.mode in ("insert", "changes"):
            raise ValueError(f"deletes is {self.deletes!r}, and mode is {self.mode!r}: deletes needs upsert or replace")


def order_of(order_by: object, *, unordered: object) -> tuple[str, ...] | None:
    """Return the columns of `order_by`, None if there are none.

    Raises
    ------
    ValueError
        If they are not names, or `unordered` contradicts them or is no boolean.
    """
    if not isinstance(unordered, bool):
        raise ValueError(f"unordered is {unordered!r}; it must be True or False")
    if order_by is None:
        return None
    if unordered:
        raise ValueError(f"unordered is True, and order_by is {order_by!r}; give only one of the two")
    names = (order_by,) if isinstance(order_by, str) else order_by
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"order_by is {order_by!r}; it must be the name of a column, or a list of names")
    return tuple(names)
