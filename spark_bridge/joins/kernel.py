"""`Kernel`: joins two rows, and finds the difference between results. Pure: it reads and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from structable.spi import InvalidFieldError, Row, RowKind, Value
from structable.spi.authors import check_row

from .binding import BoundJoin
from .definition import joiner_name

Values: TypeAlias = tuple[Value, ...]
_Getter: TypeAlias = Callable[[Mapping[str, Value]], Values]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of the result that must be written: its kind is INSERT, UPDATE_AFTER or DELETE."""

    kind: RowKind
    values: Values
    """The row in the order of the result's columns; for a DELETE the row to delete."""


def is_same(one: Values, other: Values) -> bool:
    """Return whether two rows are equal by the contract: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    if one == other:
        return True
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


class Kernel:
    """The join of a bound definition, row by row.

    Parameters
    ----------
    bound : BoundJoin
        The join.

    Attributes
    ----------
    columns : tuple of str
        The result's columns, its key first.
    result_values : callable
        Returns the values of a row of the result, in the order of `columns`.
    """

    def __init__(self, bound: BoundJoin) -> None:
        self.bound = bound
        key = bound.result.primary_key
        fields = tuple(field.name for field in bound.result.value_fields)
        self.columns = (*key, *fields)
        self.result_values = _getter(self.columns)
        self._fields = fields
        self._key_length = len(key)
        self._foreign_key = _getter(bound.foreign_key)
        self._left_deleted = bound.left.table_options.soft_delete
        self._right_deleted = bound.right.table_options.soft_delete
        self._watched = {"left": _getter(bound.left_watched), "right": _getter(bound.right_watched)}
        self._sources = [(side == "left", field) for side, field in (bound.select or {}).values()]
        self._inner = bound.join.how == "inner"
        self._joiner = bound.join.joiner

    def foreign_key(self, left: Row | None) -> Values | None:
        """Return the right key that a left row refers to; None if there is no such row, or a part of it is null."""
        if left is None or (self._left_deleted is not None and left[self._left_deleted]):
            return None
        key = self._foreign_key(left)
        return None if None in key else key

    def matters(self, side: str, before: Row, after: Row) -> bool:
        """Return whether an update of a row of one side may change the result."""
        if self._joiner is not None:
            return True
        watched = self._watched[side]
        return not is_same(watched(before), watched(after))

    def joined(self, left: Row | None, right: Row | None) -> Values | None:
        """Return the result row of a left row and its right row, if there is one; None for no row."""
        if left is None or (self._left_deleted is not None and left[self._left_deleted]):
            return None
        if right is not None and self._right_deleted is not None and right[self._right_deleted]:
            right = None
        if right is None and self._inner:
            return None
        if self._joiner is not None:
            return self._made(left, right)
        if right is None:
            return left.key + tuple([left[field] if ours else None for ours, field in self._sources])
        return left.key + tuple([left[field] if ours else right[field] for ours, field in self._sources])

    def difference(self, key: Values, old: Values | None, new: Values | None) -> Difference | None:
        """Return the difference that turns the old row of a key into the new one; None if they are equal."""
        if new is None:
            return None if old is None else Difference(RowKind.DELETE, old)
        if old is None:
            return Difference(RowKind.INSERT, new)
        return None if is_same(old, new) else Difference(RowKind.UPDATE_AFTER, new)

    def key_of(self, values: Values) -> Values:
        """Return the key of a row of the result."""
        return values[: self._key_length]

    def row(self, values: Values) -> dict[str, Value]:
        """Return a row of the result to write."""
        return dict(zip(self.columns, values, strict=True))

    def _made(self, left: Row, right: Row | None) -> Values | None:
        assert self._joiner is not None
        try:
            given = self._joiner(left, right)
            if given is None:
                return None
            return left.key + self._checked(left, given)
        except Exception as error:
            error.add_note(f"The joiner {joiner_name(self._joiner)} was called for the left row {left.key!r}.")
            raise

    def _checked(self, left: Row, given: object) -> Values:
        spec = self.bound.result
        if not isinstance(given, Mapping):
            raise InvalidFieldError(spec.name, "joiner", f"it returned {given!r}; it must return a mapping or None")
        for name in given:
            if name not in self._fields:
                reason = f"the joiner returned it; the result's fields are {', '.join(self._fields)}"
                raise InvalidFieldError(spec.name, str(name), reason)
        # Checked as on a write, so that a FLOAT is compared as it will be stored.
        checked = check_row(spec, {**dict(zip(spec.primary_key, left.key, strict=True)), **given})
        return tuple([checked.get(name) for name in self._fields])


def _getter(names: Iterable[str]) -> _Getter:
    given = tuple(names)
    if len(given) > 1:
        return itemgetter(*given)
    if given:
        one = itemgetter(given[0])
        return lambda row: (one(row),)
    return lambda row: ()
