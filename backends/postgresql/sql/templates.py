"""`Template`: ranges and a filter without their values, which become parameters: a shape that shares one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from structable.spi import Filter, Range
from structable.spi.authors import (
    And,
    Comparison,
    FieldComparison,
    IsIn,
    IsNull,
    Or,
    ScanRequest,
    StartsWith,
    UnboundFilterError,
)

from .binding import TableBinding
from .row_codec import Pieces
from .types import array, encode_value, stored_type


class Bounds(NamedTuple):
    """A range. Its parameters are the prefix that both bounds begin with, then the rest of each.

    Parameters
    ----------
    prefix, begin, end : int
        The numbers of these values.
    begin_inclusive, end_inclusive : bool
        Whether rows that start with the bound belong to the range.
    """

    prefix: int
    begin: int
    end: int
    begin_inclusive: bool
    end_inclusive: bool

    @property
    def is_open(self) -> bool:
        """Whether every row is in the range."""
        return not (self.prefix or self.begin or self.end)


class Prefixes(NamedTuple):
    """Several distinct prefixes of keys, all of one length. Each of their fields is an array, a parameter."""

    length: int


class EncodedPrefixes(tuple[Range, ...]):
    """Prefixes of keys that surely pass `check_range`, with their binary form under one version of the table."""

    binding: TableBinding
    pieces: list[Pieces]

    @classmethod
    def of(cls, binding: TableBinding, ranges: Sequence[Range]) -> Self | None:
        """Return the ranges with their binary form; None unless all are surely valid prefixes."""
        encode = binding.prefix_pieces
        pieces: list[Pieces] = []
        for one in ranges:
            prefix = encode(one) if one.__class__ is Range else None
            if prefix is None:
                return None
            pieces.append(prefix)
        encoded = cls(ranges)
        encoded.binding, encoded.pieces = binding, pieces
        return encoded


class Template(NamedTuple):
    """The ranges, None for a range without rows, and the filter, with None for each value."""

    ranges: Prefixes | tuple[Bounds | None, ...]
    where: Filter | None


Templated = tuple[Template, list[bytes | None]]
"""A template and its parameters."""


def prefix_template(length: int) -> Template:
    """Return the template of the rows whose key starts with a prefix."""
    return Template((Bounds(length, 0, 0, True, True),), None)


def templated(binding: TableBinding, request: ScanRequest) -> Templated:
    """Return the template of a request, and its parameters in binary.

    Raises
    ------
    UnboundFilterError
        If the filter is not a result of `bind_filter`.
    """
    pieces: list[bytes | None] = []
    ranges: Prefixes | tuple[Bounds | None, ...] | None = None
    if len(request.ranges) > 1:
        ranges = _prefixes(binding, request.ranges, pieces)
    if ranges is None:
        ranges = tuple([_bounds(binding, one, pieces) for one in request.ranges])
    where = None if request.where is None else _filter(binding, request.where, pieces)
    return Template(ranges, where), pieces


def _prefixes(binding: TableBinding, ranges: Sequence[Range], pieces: list[bytes | None]) -> Prefixes | None:
    """Return the template of ranges that are all prefixes of one length, such as whole keys; None of other ranges."""
    length = len(ranges[0].begin or ())
    is_encoded = isinstance(ranges, EncodedPrefixes) and ranges.binding is binding
    encoded = ranges if is_encoded else EncodedPrefixes.of(binding, ranges)
    if isinstance(encoded, EncodedPrefixes):
        found = dict.fromkeys(encoded.pieces)
    else:
        found = {}
        for one in ranges:
            begin = one.begin
            if not begin or begin != one.end or not (one.begin_inclusive and one.end_inclusive):
                return None
            fields = zip(binding.key_fields, begin, strict=False)
            found[tuple([encode_value(field, value) for field, value in fields])] = None
    if any(len(prefix) != length for prefix in found):
        return None
    for field, column in zip(binding.key_fields, zip(*sorted(found), strict=True), strict=False):
        pieces.append(array(stored_type(field).oid, column))
    return Prefixes(length)


def _bounds(binding: TableBinding, range_: Range, pieces: list[bytes | None]) -> Bounds | None:
    begin, end = range_.begin, range_.end
    if begin == () or end == ():  # exclusive, as in checked ranges: drops every row
        return None
    first, last = tuple(begin or ()), tuple(end or ())
    shared = 0
    for one, other in zip(first, last, strict=False):
        if one != other:
            break
        shared += 1
    if not (len(first) > shared or range_.begin_inclusive) or not (len(last) > shared or range_.end_inclusive):
        shared = 0  # an exclusive bound that is a prefix of the other one excludes their common prefix
    fields = binding.key_fields
    pieces += [encode_value(field, value) for field, value in zip(fields, first, strict=False)]
    pieces += [encode_value(field, value) for field, value in zip(fields[shared:], last[shared:], strict=False)]
    return Bounds(shared, len(first) - shared, len(last) - shared, range_.begin_inclusive, range_.end_inclusive)


def _filter(binding: TableBinding, where: Filter, pieces: list[bytes | None]) -> Filter:
    match where:
        case And(parts):
            return And(tuple([_filter(binding, part, pieces) for part in parts]))
        case Or(parts):
            return Or(tuple([_filter(binding, part, pieces) for part in parts]))
        case Comparison(name, operator, value):
            pieces.append(encode_value(binding.spec.field(name), value))
            return Comparison(name, operator, None)
        case StartsWith(name, prefix, negated):
            pieces.append(encode_value(binding.spec.field(name), prefix))
            return StartsWith(name, None, negated)
        case IsIn(name, values, negated):
            if not values:
                return where
            field = binding.spec.field(name)
            pieces.append(array(stored_type(field).oid, [encode_value(field, value) for value in values]))
            return IsIn(name, (None,), negated)
        case FieldComparison() | IsNull():
            return where
    raise UnboundFilterError(where)
