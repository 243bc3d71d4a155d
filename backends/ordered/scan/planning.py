"""Planning of scans: the keys to look up, or the intervals of rows or of an index to read, and what remains to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from structable.backends.ordered.codec.keys import LONGEST_KEY
from structable.backends.ordered.engine import successor
from structable.backends.ordered.schema.binding import IndexBinding, TableBinding
from structable.spi import Field, Filter, Range, ScanExplanation, Value
from structable.spi.authors import conjunction

from .intervals import FieldConstraint, Interval, contains, field_condition, intersection, range_interval, union
from .request import KeyedRequest


@dataclass(slots=True)  # not frozen, for the reason of `ScanRequest`
class ScanPath:
    """The execution plan of a scan."""

    request: KeyedRequest
    index: IndexBinding | None  # None reads the rows themselves
    intervals: list[Interval]  # of raw row keys or of raw index entries, in order
    within: list[Interval] | None  # the raw row keys that count, if the index does not answer the conditions on the key
    residual: Filter | None  # evaluated on each row
    pushed: tuple[Filter, ...]  # the conjuncts that the intervals or keys answer
    sort_by: str | None  # None if the path yields the requested order; the empty string sorts by key
    raw_keys: list[bytes] | None = None  # of a lookup of whole keys, in order; it reads no intervals


class _Admitted(NamedTuple):
    """The keys that the conjuncts on leading key fields admit."""

    intervals: list[Interval]  # of raw keys, sorted; intervals of whole keys are not united
    used: tuple[Filter, ...]  # the conjuncts that the intervals answer
    fixed: int  # the number of leading key fields whose values the conjuncts enumerate


class _KeyPart(NamedTuple):
    intervals: list[Interval]
    used: tuple[Filter, ...]


# Costs are ranks, not estimates: stores keep no statistics. A lookup of whole keys comes before all.
_INDEX_POINT, _PREFIX, _INDEX_POINTS, _INDEX_RANGE, _RANGE, _INDEX_ALL, _FULL = 5, 10, 12, 25, 30, 95, 100
_SORT = 15


def plan_rows(binding: TableBinding, request: KeyedRequest) -> ScanPath:
    """Return the path that reads the rows themselves, by intervals."""
    return _rows_path(request, _narrow_by_key(binding, request, _admitted_keys(binding, request)))


def _rows_path(request: KeyedRequest, key: _KeyPart) -> ScanPath:
    return ScanPath(request, None, key.intervals, None, _rest(request, key.used), key.used, request.order_by)


def _rest(request: KeyedRequest, used: Sequence[Filter]) -> Filter | None:
    return conjunction([part for part in request.conjuncts if part not in used])


def plan(binding: TableBinding, request: KeyedRequest) -> ScanPath:
    """Choose the path of a scan: whole keys are looked up, else the cheapest by rank of the rows and each index."""
    admitted = _admitted_keys(binding, request)
    raw_keys = _whole_keys(binding, request, admitted)
    if raw_keys is not None:
        rest = _rest(request, admitted.used)
        wanted = raw_keys if request.limit != 0 else []
        return ScanPath(request, None, [], None, rest, admitted.used, request.order_by, wanted)
    key = _narrow_by_key(binding, request, admitted)
    best = _rows_path(request, key)
    if binding.indexes:
        rest_of_key = [part for part in request.conjuncts if part not in key.used]
        best_cost = _key_cost(request, admitted) + (_SORT if best.sort_by is not None else 0)
        for index in binding.indexes.values():
            cost, path = _index_path(binding, request, key, index, rest_of_key)
            if cost < best_cost:
                best_cost, best = cost, path
    return best if request.limit != 0 else replace(best, intervals=[])


def plan_each(binding: TableBinding, request: KeyedRequest) -> ScanPath | None:
    """Return the path with one interval for each range that is not empty, each read up to `limit_per_range`.

    None if the order of rows or the filter needs more than that, or if ranges overlap.
    """
    admitted = _admitted_keys(binding, request)
    if request.order_by is not None or _rest(request, admitted.used) is not None:
        return None
    narrowed = union(admitted.intervals)
    intervals: list[Interval] = []
    for range_ in set(request.ranges):
        parts = intersection(union([range_interval(binding.keys, range_)]), narrowed)
        if len(parts) > 1:
            return None
        intervals += parts
    intervals.sort()
    if any(one[1] > other[0] for one, other in pairwise(intervals)):
        return None
    return ScanPath(request, None, intervals, None, None, admitted.used, None)


def _whole_keys(binding: TableBinding, request: KeyedRequest, admitted: _Admitted) -> list[bytes] | None:
    """Return the sorted raw keys of a scan whose ranges or filter fix whole keys; None for any other scan."""
    if request.raw_keys is not None:
        raw_keys = sorted(set(request.raw_keys))
        if admitted.used:
            raw_keys = list(filter(contains(union(admitted.intervals)), raw_keys))
    elif admitted.fixed == len(binding.schema.key_fields):
        raw_keys = [begin for begin, _ in admitted.intervals]
        if request.ranges != _EVERYTHING:
            given = union(range_interval(binding.keys, range_) for range_ in request.ranges)
            raw_keys = list(filter(contains(given), raw_keys))
    else:
        return None
    # A range may be one whole key that is too long for any row.
    if raw_keys and max(map(len, raw_keys)) > LONGEST_KEY:
        return [raw_key for raw_key in raw_keys if len(raw_key) <= LONGEST_KEY]
    return raw_keys


_EVERYTHING = (Range(),)


def _admitted_keys(binding: TableBinding, request: KeyedRequest) -> _Admitted:
    keys, spec = binding.keys, binding.spec
    prefixes: list[tuple[Value, ...]] = [()]
    intervals = [(keys.rows_begin, keys.rows_end)]
    used: list[Filter] = []
    if request.where is None:
        return _Admitted(intervals, (), 0)
    for field in spec.key_fields:
        first = _key_condition(binding, request, field, prefixes[0])
        if first is None or len(prefixes) * len(first.intervals) > _MOST_PREFIXES:
            break
        # The same fields are constrained whatever the prefix.
        conditions = [first, *(_key_condition(binding, request, field, prefix) for prefix in prefixes[1:])]
        found = [condition for condition in conditions if condition is not None]
        intervals = [interval for condition in found for interval in condition.intervals]
        used.extend(first.used)
        following = [
            (*prefix, value)
            for prefix, condition in zip(prefixes, found, strict=True)
            for value in condition.points or ()
        ]
        if not following:
            break
        prefixes = following
    return _Admitted(intervals, tuple(used), len(prefixes[0]))


def _narrow_by_key(binding: TableBinding, request: KeyedRequest, admitted: _Admitted) -> _KeyPart:
    given = union([range_interval(binding.keys, range_) for range_ in request.ranges])
    if request.where is None:
        return _KeyPart(given, ())
    return _KeyPart(intersection(given, union(admitted.intervals)), admitted.used)


def _key_condition(
    binding: TableBinding, request: KeyedRequest, field: Field, prefix: tuple[Value, ...]
) -> FieldConstraint | None:
    keys = binding.keys
    head = keys.encode_prefix(prefix)
    return field_condition(
        field,
        request.conjuncts,
        lambda value: keys.encode_prefix((*prefix, value)),
        whole=(head, successor(head)),
        nullable=False,
    )


_MOST_PREFIXES = 1_000


def _key_cost(request: KeyedRequest, admitted: _Admitted) -> int:
    prefixes = [
        len(range_.begin) if range_.begin is not None and range_.begin == range_.end and range_.end_inclusive else 0
        for range_ in request.ranges
    ]
    if max(admitted.fixed, min(prefixes, default=0)):
        return _PREFIX
    everything = any(range_ == Range() for range_ in request.ranges)
    return _FULL if everything and not admitted.used else _RANGE


def _index_path(
    binding: TableBinding, request: KeyedRequest, key: _KeyPart, index: IndexBinding, rest: Sequence[Filter]
) -> tuple[int, ScanPath]:
    keys, field = binding.keys, index.field
    head = keys.index_begin(index.number)
    whole = (head, keys.index_end(index.number))
    condition = field_condition(
        field, rest, lambda value: head + keys.encode_index_value(field, value), whole=whole, nullable=True
    ) or FieldConstraint([whole], None, ())
    residual = conjunction([part for part in rest if part not in condition.used])
    within: list[Interval] | None = key.intervals
    intervals = condition.intervals
    if condition.points is not None and len(intervals) * len(key.intervals) <= _MOST_PREFIXES:
        # Entries of one value are in key order: the key's intervals apply to them directly.
        intervals = [_cut(keys.rows_begin, keys.rows_end, entry, row) for entry in intervals for row in key.intervals]
        within = None
    elif key.intervals == [(keys.rows_begin, keys.rows_end)]:
        within = None
    single = condition.points is not None and len(condition.points) <= 1
    if condition.points is not None:
        cost = _INDEX_POINT if single else _INDEX_POINTS
    else:
        cost = _INDEX_RANGE if condition.used else _INDEX_ALL
    if request.order_by is None:
        in_order = single or (binding.keyless and bool(condition.used))  # without a key, any order will do
    else:
        in_order = request.order_by == field.name
    if not in_order:
        cost += _SORT
    elif not condition.used and request.limit is not None:
        cost = _INDEX_RANGE  # the first rows of an order do not require reading the others
    sort = None if in_order else request.order_by or ""
    return cost, ScanPath(request, index, intervals, within, residual, (*key.used, *condition.used), sort)


def _cut(rows_begin: bytes, rows_end: bytes, entry: Interval, row: Interval) -> Interval:
    prefix, end = entry
    head = len(rows_begin)
    return prefix + row[0][head:], end if row[1] == rows_end else prefix + row[1][head:]


def explain(binding: TableBinding, path: ScanPath) -> ScanExplanation:
    """Describe a path in words."""
    request = path.request
    keys = binding.keys
    if not path.intervals and not path.raw_keys:
        kind = "empty"
    elif path.raw_keys is not None:
        kind = "key lookup"
    elif path.index is not None:
        kind = "index scan"
    elif path.intervals == [(keys.rows_begin, keys.rows_end)]:
        kind = "full scan"
    else:
        kind = "key range scan"
    ranges = " or ".join(_range_text(range_) for range_ in request.ranges if range_ != Range())
    if path.sort_by is None:
        order = "by the path" + (", in reverse" if request.reverse else "")
    else:
        order = f"sorted by {path.sort_by or 'the primary key'}" + (", in reverse" if request.reverse else "")
    notes = (f"only rows within {len(path.within)} interval(s) of the key",) if path.within is not None else ()
    pushed = conjunction(path.pushed)
    return ScanExplanation(
        binding.spec.name,
        kind,
        path.index.field.name if path.index else None,
        ranges,
        None if pushed is None else str(pushed),
        None if path.residual is None else str(path.residual),
        order,
        notes,
    )


def _range_text(range_: Range) -> str:
    begin = "" if range_.begin is None else f"{range_.begin!r} {'<=' if range_.begin_inclusive else '<'} "
    end = "" if range_.end is None else f" {'<=' if range_.end_inclusive else '<'} {range_.end!r}"
    return f"{begin}key{end}"
