"""The keys that a look-up asks for: columns of a batch, as tuples, and as marks by which a dict finds them faster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import FieldSizeLimitError, FieldType, InvalidFieldError, TableSpecification
from structable.spi.rules.rows import check_key
from structable.spi.values import MAX_KEY_SIZE, Value

__all__ = ["KeyColumns", "KeyValues", "Mark", "mark_function"]

KeyValues: TypeAlias = tuple[Value, ...]
Mark: TypeAlias = Hashable
"""One object in place of a key of the same table, equal where the keys are."""

_JOINED = {FieldType.STRING, FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG}
_BETWEEN = "\0"
"""Between the texts of a joined key; no text in a key has it."""


class KeyColumns:
    """The keys of some rows; None is the key of one that no row of the table has, such as of a null.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    columns : sequence of Array
        The key, in its order, in the types of its fields.
    """

    def __init__(self, spec: TableSpecification, columns: Sequence[pa.Array[Any]]) -> None:
        self._spec, self._columns = spec, columns
        longest = MAX_KEY_SIZE // len(columns)
        self._valid = all(_are_key_values(column, longest) for column in columns)

    def at(self, places: Sequence[int]) -> KeyColumns:
        """Return the keys at some positions."""
        taken = pa.array(places, pa.int64())
        return KeyColumns(self._spec, [column.take(taken) for column in self._columns])

    def tuples(self) -> list[KeyValues | None]:
        """Return the key of each row."""
        if self._valid:
            return list(zip(*map(_listed, self._columns), strict=True))
        known: dict[KeyValues, KeyValues | None] = {}
        keys: list[KeyValues | None] = []
        for key in zip(*map(_values, self._columns), strict=True):
            if key not in known:
                known[key] = self._checked(key)
            keys.append(known[key])
        return keys

    def marks(self) -> Sequence[Mark | None]:
        """Return what `mark_function` makes of each key, None for None; mostly without making the keys."""
        if self._valid and len(self._columns) == 1:
            return _listed(self._columns[0])
        if self._valid and _is_joined(self._spec):
            texts: list[Any] = [column.cast(pa.string()) for column in self._columns]
            return _listed(pc.binary_join_element_wise(*texts, _BETWEEN))
        mark = mark_function(self._spec)
        return [None if key is None else mark(key) for key in self.tuples()]

    def _checked(self, key: KeyValues) -> KeyValues | None:
        try:
            return check_key(self._spec, key)
        except (InvalidFieldError, FieldSizeLimitError):
            return None


def mark_function(spec: TableSpecification) -> Callable[[KeyValues], Mark]:
    """Return the function from the keys of a table to their marks."""
    if len(spec.primary_key) == 1:
        return itemgetter(0)
    if _is_joined(spec):
        return lambda key: _BETWEEN.join(map(str, key))
    return lambda key: key


def _is_joined(spec: TableSpecification) -> bool:
    return all(field.type in _JOINED for field in spec.key_fields)


def _are_key_values(column: pa.Array[Any], longest: int) -> bool:
    """Return whether all values are certainly valid in a key, none longer than `longest` bytes."""
    if column.null_count:
        return False
    if not pa.types.is_string(column.type):
        return pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    texts = cast(pa.StringArray, column)
    sizes = pc.max(pc.binary_length(texts)).as_py()
    return (sizes or 0) <= longest and not pc.any(pc.match_substring(texts, "\0")).as_py()


def _listed(column: pa.Array[Any]) -> list[Value]:
    """Return the values of a column without nulls, much faster than `to_pylist`."""
    values: list[Value] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _values(column: pa.Array[Any]) -> list[Value]:
    """Return the values in Python; null for one that Python cannot hold, such as a date after the year 9999."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(one) for one in column]


def _value(scalar: pa.Scalar[Any]) -> Value:
    try:
        value: Value = scalar.as_py()
    except (ValueError, OverflowError):
        return None
    return value
