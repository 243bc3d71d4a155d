"""Planning of scans: the interval of rows or of an index to read, the residual filter, and whether to sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from structable.backends.ordered.engine import successor
from structable.backends.ordered.schema.binding import IndexBinding, TableBinding
from structable.spi import Field, Filter, Range, ScanExplanation, Value
from structable.spi.filters import And
from structable.spi.rules.scans import ScanRequest

from .intervals import Condition, Interval, field_condition, intersection, range_interval, union

__all__ = ["ScanPath", "conjunction", "explain", "plan", "plan_rows"]


@dataclass(frozen=True, slots=True)
class ScanPath:
    """The execution plan of a scan."""

    request: ScanRequest
    index: IndexBinding | None  # None reads the rows themselves
    intervals: list[Interval]  # of raw row keys or of raw index entries, in order
    within: list[Interval] | None  # the raw row keys that count, if the index does not answer the conditions on the key
    residual: Filter | None  # evaluated on each row
    pushed: tuple[Filter, ...]  # the conjuncts that the intervals answer
    sort_by: str | None  # None if the path yields the requested order; the empty string sorts by key
    lookup: bool = False  # of whole keys


@dataclass(frozen=True, slots=True)
class _KeyPart:
    intervals: list[Interval]
    used: tuple[Filter, ...]
    cost: int


# Costs are ranks, not estimates: stores keep no statistics.
_POINT, _INDEX_POINT, _PREFIX, _INDEX_POINTS, _INDEX_RANGE, _RANGE, _INDEX_ALL, _FULL = 0, 5, 10, 12, 25, 30, 95, 100
_SORT = 15


def plan_rows(binding: TableBinding, request: ScanRequest) -> ScanPath:
    """Return the path that reads the rows themselves."""
    return _rows_path(request, _narrow_by_key(binding, request))


def _rows_path(request: ScanRequest, key: _KeyPart) -> ScanPath:
    rest = conjunction([part for part in request.conjuncts if part not in key.used])
    return ScanPath(request, None, key.intervals, None, rest, key.used, request.order_by, key.cost == _POINT)


def plan(binding: TableBinding, request: ScanRequest) -> ScanPath:
    """Choose the path of a scan: the cheapest by rank among the rows themselves and each index."""
    key = _narrow_by_key(binding, request)
    rest = [part for part in request.conjuncts if part not in key.used]
    best = _rows_path(request, key)
    best_cost = key.cost + (_SORT if best.sort_by is not None else 0)
    for index in binding.indexes.values():
        cost, path = _index_path(binding, request, key, index, rest)
        if cost < best_cost:
            best_cost, best = cost, path
    return best if request.limit != 0 else replace(best, intervals=[])


def _narrow_by_key(binding: TableBinding, request: ScanRequest) -> _KeyPart:
    """Push conditions on leading key fields into the key's interval."""
    keys, spec = binding.keys, binding.spec
    prefixes: list[tuple[Value, ...]] = [()]
    intervals = [(keys.rows_begin, keys.rows_end)]
    used: list[Filter] = []
    for field in spec.key_fields:
        first = _key_condition(binding, request, field, prefixes[0])
        if first is not None and len(prefixes) * len(first.intervals) > _MOST_PREFIXES:
            break
        conditions = [_key_condition(binding, request, field, prefix) for prefix in prefixes]
        found = [condition for condition in conditions if condition is not None]
        if not found:
            break
        intervals = union(interval for condition in found for interval in condition.intervals)
        used.extend(found[0].used)
        following = [
            (*prefix, value)
            for prefix, condition in zip(prefixes, found, strict=True)
            for value in condition.points or ()
        ]
        if not following:
            break
        prefixes = following
    given = union(range_interval(keys, range_) for range_ in request.ranges)
    common = intersection(given, intervals)
    return _KeyPart(common, tuple(used), _key_cost(binding, request, len(prefixes[0]), bool(used)))


def _key_condition(
    binding: TableBinding, request: ScanRequest, field: Field, prefix: tuple[Value, ...]
) -> Condition | None:
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


def _key_cost(binding: TableBinding, request: ScanRequest, fixed: int, narrowed: bool) -> int:
    width = len(binding.spec.primary_key)
    prefixes = [
        len(range_.begin) if range_.begin is not None and range_.begin == range_.end and range_.end_inclusive else 0
        for range_ in request.ranges
    ]
    fixed = max(fixed, min(prefixes, default=0))
    if fixed == width or not request.ranges:
        return _POINT
    if fixed:
        return _PREFIX
    everything = any(range_ == Range() for range_ in request.ranges)
    return _FULL if everything and not narrowed else _RANGE


def _index_path(
    binding: TableBinding, request: ScanRequest, key: _KeyPart, index: IndexBinding, rest: Sequence[Filter]
) -> tuple[int, ScanPath]:
    keys, field = binding.keys, index.field
    head = keys.index_begin(index.number)
    whole = (head, keys.index_end(index.number))
    condition = field_condition(
        field, rest, lambda value: head + keys.encode_index_value(field, value), whole=whole, nullable=True
    ) or Condition([whole], None, ())
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
    in_order = single if request.order_by is None else request.order_by == field.name
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


def conjunction(parts: Sequence[Filter]) -> Filter | None:
    """Return the conjunction of filters; None if there are none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def explain(binding: TableBinding, path: ScanPath) -> ScanExplanation:
    """Describe a path in words."""
    request = path.request
    keys = binding.keys
    if not path.intervals:
        kind = "empty"
    elif path.index is not None:
        kind = "index scan"
    elif path.intervals == [(keys.rows_begin, keys.rows_end)]:
        kind = "full scan"
    elif path.lookup:
        kind = "key lookup"
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
