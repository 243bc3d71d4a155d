"""Intervals of raw keys: from ranges and from conditions on fields, united and intersected."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from structable.backends.ordered.codec.key_fields import shortest_form
from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.engine import successor
from structable.spi import Field, Filter, Range, Value
from structable.spi.authors import Comparison, IsIn, IsNull, Operator, StartsWith

Interval: TypeAlias = tuple[bytes, bytes]
"""Half-open: begin <= key < end."""

MOST_POINTS = 1_000
"""The maximum number of intervals from `isin` lists; longer lists are evaluated row by row."""


def range_interval(keys: KeyCodec, range_: Range) -> Interval:
    """Return the raw keys of a checked range; begin >= end where it is empty."""
    begin, end = keys.rows_begin, keys.rows_end
    prefix = begin
    if range_.begin is not None:
        prefix = keys.encode_prefix(tuple(range_.begin))
        begin = prefix if range_.begin_inclusive else successor(prefix)
    if range_.end is not None:
        if range_.end is not range_.begin:
            prefix = keys.encode_prefix(tuple(range_.end))
        end = successor(prefix) if range_.end_inclusive else prefix
    return begin, end


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same keys as disjoint, non-empty, sorted intervals that do not touch."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def intersection(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Return the keys that are in both lists of intervals, each as returned by `union`."""
    common: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            common.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return common


def contains(intervals: Sequence[Interval]) -> Callable[[bytes], bool]:
    """Return a function that tests whether a key lies in one of the intervals, which `union` returned."""
    begins = [begin for begin, _ in intervals]

    def is_inside(key: bytes) -> bool:
        position = bisect_right(begins, key) - 1
        return position >= 0 and key < intervals[position][1]

    return is_inside


@dataclass(frozen=True, slots=True)
class FieldConstraint:
    """The constraint that the conjuncts of a filter put on one field, as intervals of its encoded values."""

    intervals: list[Interval]  # sorted and disjoint; one for each point, so that neighbours stay apart
    points: tuple[Value, ...] | None  # in order, if the conjuncts enumerate the values; None if they only bound them
    used: tuple[Filter, ...]  # the conjuncts that the intervals answer completely


def field_condition(
    field: Field, conjuncts: Sequence[Filter], encode: Callable[[Value], bytes], *, whole: Interval, nullable: bool
) -> FieldConstraint | None:
    """Return the encoded values of a field that bound conjuncts admit; None if they do not constrain the field.

    `encode` is order-preserving and self-delimiting, `whole` are all encoded values; null is among them if `nullable`,
    and sorts first.
    """
    intervals = [whole]
    points: dict[bytes, Value] | None = None
    used: list[Filter] = []
    not_null = (successor(encode(None)), whole[1]) if nullable else whole
    for part in conjuncts:
        match part:
            case Comparison(field.name, Operator.EQ, value):
                found = {encode(value): value}
            case IsIn(field.name, values, False) if len(values) <= MOST_POINTS:
                found = {encode(value): value for value in values}
            case IsNull(field.name, False):
                found = {encode(None): None} if nullable else {}
            case _:
                bounds = _bounds(field, part, encode, not_null)
                if bounds is None:
                    continue
                intervals = intersection(intervals, union([bounds]))
                used.append(part)
                continue
        points = found if points is None else {raw: value for raw, value in points.items() if raw in found}
        used.append(part)
    if not used:
        return None
    if points is None:
        return FieldConstraint(intervals, None, tuple(used))
    inside = contains(intervals)
    left = sorted(((raw, value) for raw, value in points.items() if inside(raw)), key=lambda pair: pair[0])
    return FieldConstraint([_starting_with(raw) for raw, _ in left], tuple(value for _, value in left), tuple(used))


def _bounds(field: Field, part: Filter, encode: Callable[[Value], bytes], not_null: Interval) -> Interval | None:
    match part:
        case Comparison(field.name, operator, value):
            return _compared(operator, encode(value), not_null)
        case IsNull(field.name, True):
            return not_null
        case StartsWith(field.name, prefix, False):
            # The encoding without its terminator is the prefix of all longer strings.
            return _starting_with(encode(prefix)[: -shortest_form(field.type)])
    return None


def _compared(operator: Operator, raw: bytes, not_null: Interval) -> Interval | None:
    begin, end = not_null
    match operator:
        case Operator.LT:
            return begin, raw
        case Operator.LE:
            return begin, successor(raw)
        case Operator.GT:
            return successor(raw), end
        case Operator.GE:
            return raw, end
    return None


def _starting_with(prefix: bytes) -> Interval:
    return prefix, successor(prefix)
