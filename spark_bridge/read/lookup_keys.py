"""The keys that a look-up asks for: columns of a batch, as tuples, and as hashes by which a cache finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import FieldSizeLimitError, InvalidFieldError, TableSpecification, Value
from structable.spi.authors import MAX_KEY_SIZE, check_key

if TYPE_CHECKING:
    import numpy.typing as npt

    from .hashed_places import Hashes, Places

    Truths: TypeAlias = npt.NDArray[np.bool_]

KeyValues: TypeAlias = tuple[Value, ...]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_MOST_WORDS = 8
"""The words of a text up to which Arrow hashes it faster than Python."""


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
        self._spec, self.columns = spec, columns

    def at(self, places: Places) -> KeyColumns:
        """Return the keys at some positions."""
        taken = pa.array(places, pa.int64())
        return KeyColumns(self._spec, [column.take(taken) for column in self.columns])

    def distinct(self) -> tuple[KeyColumns, Places]:
        """Return the different keys in their order, nulls last, and the position of each row's key among them."""
        names = [str(place) for place in range(len(self.columns))]
        keys: pa.RecordBatch = pa.RecordBatch.from_arrays(list(self.columns), names=names)
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names]).to_numpy()
        ordered = self.at(order)
        rest = KeyColumns(self._spec, [column.slice(1) for column in ordered.columns])
        new = np.ones(len(order), np.bool_)
        new[1:] = ~rest.equal([column.slice(0, len(order) - 1) for column in ordered.columns])
        places = np.empty(len(order), np.int64)
        places[order] = np.cumsum(new) - 1
        return (ordered if new.all() else ordered.at(np.flatnonzero(new))), places

    def tuples(self) -> list[KeyValues | None]:
        """Return the key of each row."""
        if any(column.null_count for column in self.columns):
            whole = np.flatnonzero(self.whole())
            keys: list[KeyValues | None] = [None] * len(self.columns[0])
            for place, key in zip(whole.tolist(), self.at(whole).tuples(), strict=True):
                keys[place] = key
            return keys
        longest = MAX_KEY_SIZE // len(self.columns)
        if all(_are_key_values(column, longest) for column in self.columns):
            return list(zip(*map(_listed, self.columns), strict=True))
        rows = list(zip(*map(_values, self.columns), strict=True))
        known = {key: self._checked(key) for key in set(rows)}
        return [known[key] for key in rows]

    def whole(self) -> Truths:
        """Return which keys have no null."""
        return reduce(np.logical_and, (_truths(column.is_valid()) for column in self.columns))

    def equal(self, others: Sequence[pa.Array[Any]]) -> Truths:
        """Return which keys equal the keys of other columns; a key with a null equals no key."""
        pairs = zip(self.columns, others, strict=True)
        return reduce(np.logical_and, (_truths(pc.equal(one, other).fill_null(False)) for one, other in pairs))

    def hashes(self) -> Hashes:
        """Return a hash of each key; a key with a null has an arbitrary one."""
        hashes = np.zeros(len(self.columns[0]), np.uint64)
        for column in self.columns:
            for word in _words(column):
                hashes = (hashes ^ word) * _FACTOR
                hashes ^= hashes >> _HALF
        return hashes

    def _checked(self, key: KeyValues) -> KeyValues | None:
        try:
            return check_key(self._spec, key)
        except (InvalidFieldError, FieldSizeLimitError):
            return None


def _are_key_values(column: pa.Array[Any], longest: int) -> bool:
    """Return whether all values are certainly valid in a key, none longer than `longest` bytes."""
    if not pa.types.is_string(column.type):
        return pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    texts = cast(pa.StringArray, column)
    sizes = pc.max(pc.binary_length(texts)).as_py()
    return (sizes or 0) <= longest and _is_unicode(texts) and not pc.any(pc.match_substring(texts, "\0")).as_py()


def _is_unicode(texts: pa.StringArray) -> bool:
    """Return whether Python can hold all texts: Spark's casts of bytes to texts check nothing."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _words(column: Any) -> list[Hashes]:  # noqa: ANN401 - the stubs know no array of an unknown type
    """Return arrays that have equal elements where a column has equal values."""
    kind, rows = column.type, len(column)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return [column.view(f"int{kind.bit_width}").fill_null(0).to_numpy().astype(np.uint64)]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        sizes = pc.binary_length(column).fill_null(0).to_numpy()
        words = -(-int(sizes.max(initial=1)) // 8)
        if words <= _MOST_WORDS:
            # Bytes may be no text, but a padding of ASCII does not look at them.
            padded: Any = pc.ascii_rpad(column.view(pa.string()).fill_null(""), 8 * words, "\0")
            texts = np.frombuffer(padded.buffers()[2], np.uint64, rows * words).reshape(rows, words)
            return [sizes.astype(np.uint64), *texts.T]
        column = column.view(pa.binary())
    return [np.fromiter(map(hash, column.to_numpy(zero_copy_only=False)), np.int64, rows).view(np.uint64)]


def _truths(column: pa.Array[Any]) -> Truths:
    return column.to_numpy(zero_copy_only=False)


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
