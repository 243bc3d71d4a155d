"""Ranges and filters, given with a record's values, as the table takes them."""

from __future__ import annotations

from structable.spi import Filter, Range, Value
from structable.spi.filters import And, Comparison, IsIn, Not, Or
from structable.spi.ranges import Bound

from .generated import Codec

__all__ = ["translated_filter", "translated_range"]


def translated_filter(codec: Codec, where: Filter) -> Filter:
    """Return the filter with the values that the table keeps."""
    match where:
        case Comparison(field, operator, value):
            return Comparison(field, operator, codec.encode_value(field, value))
        case IsIn(field, values, negated):
            # In an order that does not depend on a set's: a page's cursor holds in every process.
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
