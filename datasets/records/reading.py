"""Reading records: ranges and filters translated for the table, and `RecordIterator`, the result of a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from structable.spi import Filter, Range, Row, RowIterator, Value
from structable.spi.authors import And, Bound, Comparison, IsIn, Not, Or

from .annotations import Record
from .generated import Codec

R = TypeVar("R", bound=Record)


class RecordIterator(Iterator[R], Generic[R]):
    """Records of one snapshot; close it, leave its `with` block or exhaust it to release its snapshot.

    Raises
    ------
    RecordShapeError
        From `next`, for a row that does not fit; the records after it can still be read.
    TransactionClosedError
        From `next`, once the iterator was closed or its transaction ended.
    """

    __slots__ = ("_decode", "_rows")

    def __init__(self, rows: RowIterator, decode: Callable[[Row], R]) -> None:
        self._rows = rows
        self._decode = decode

    def __iter__(self) -> Iterator[R]:  # so that a loop makes no call of ours for each row
        return map(self._decode, self._rows)

    def __next__(self) -> R:
        return self._decode(next(self._rows))

    def close(self) -> None:
        """Release the snapshot; idempotent."""
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def translated_filter(codec: Codec, where: Filter) -> Filter:
    """Return the filter with the values that the table keeps."""
    match where:
        case Comparison(field, operator, value):
            return Comparison(field, operator, codec.encode_value(field, value))
        case IsIn(field, values, negated):
            # Sorted, because a set's order differs between processes, and a page's cursor must not.
            return IsIn(field, tuple(sorted((codec.encode_value(field, value) for value in values), key=repr)), negated)
        case And(parts):
            return And(tuple(translated_filter(codec, part) for part in parts))
        case Or(parts):
            return Or(tuple(translated_filter(codec, part) for part in parts))
        case Not(part):
            return Not(translated_filter(codec, part))
    return where


def translated_range(codec: Codec, range: Range) -> Range:
    """Return the range with the values that the table keeps."""
    if not codec.coded_key or not isinstance(range, Range):
        return range
    begin, end = _bound(codec, range.begin), _bound(codec, range.end)
    return Range(begin, end, range.begin_inclusive, range.end_inclusive)


def _bound(codec: Codec, bound: Bound) -> Bound:
    if isinstance(bound, tuple) and len(bound) <= len(codec.key):
        values: tuple[Value, ...] = tuple(
            codec.encode_value(name, value) for name, value in zip(codec.key, bound, strict=False)
        )
        return values
    if isinstance(bound, dict):
        return {name: codec.encode_value(name, value) for name, value in bound.items()}
    return bound
