"""Execution of scan paths: the snapshot's pairs merged with the transaction's own writes, filtered, sorted, decoded."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from itertools import chain, groupby, islice, starmap
from operator import itemgetter

from structable.backends.base.bounded import next_rows
from structable.backends.base.transaction import TransactionLifecycle
from structable.backends.ordered.codec.rows import Projection, RowDecoder
from structable.backends.ordered.engine import Pair
from structable.backends.ordered.overlay import ENGINE_FAILURES, TableOverlay
from structable.backends.ordered.schema.binding import IndexBinding, TableBinding
from structable.spi import DataCorruptionError, Filter, Row, RowIterator, TransactionClosedError
from structable.spi.authors import Predicate, compile_filter

from .intervals import contains
from .lookup import lookup_parts
from .planning import ScanPath, plan, plan_each
from .request import KeyedRequest
from .sorting import sort_records

_FIRST_FETCH = 16
_LARGEST_FETCH = 512
_raw_key: Callable[[Pair], bytes] = itemgetter(0)


class ScanRows(RowIterator):
    """The rows of a scan inside a transaction."""

    __slots__ = ("_closed", "_progress", "_rows", "_transaction")

    def __init__(self, table: TableOverlay, request: KeyedRequest) -> None:
        self._progress = _Progress()
        self._rows = _rows(table, request, self._progress)
        self._transaction = table.transaction
        self._closed = False

    def own(self, transaction: TransactionLifecycle) -> None:
        """Let the transaction end once the rows are exhausted, closed or collected."""
        self._progress.owned = transaction

    def __next__(self) -> Row:
        self._require_open()
        for row in self._rows:
            return row
        raise StopIteration

    def __iter__(self) -> Iterator[Row]:
        # The generator itself, so that a loop pays for no wrapper around each row.
        self._require_open()
        return self._rows

    def _require_open(self) -> None:
        if self._closed:
            raise TransactionClosedError("the scan was closed; begin a new one")
        progress = self._progress
        if not self._transaction.usable and not (progress.exhausted and progress.owned is not None):
            self._transaction.refuse()
        if progress.ended and not progress.exhausted:
            # A generator that has raised would otherwise look exhausted.
            raise TransactionClosedError("the scan failed before its end; begin a new one")

    def close(self) -> None:
        self._closed = True
        self._rows.close()
        if self._progress.owned is not None:
            self._progress.owned.rollback()  # a generator that never started ends without running its `finally`


class _Progress:
    """State shared by a scan and its generator; a reference to the scan itself would need a collection to be freed."""

    __slots__ = ("ended", "exhausted", "owned")

    def __init__(self) -> None:
        self.ended = False
        self.exhausted = False
        self.owned: TransactionLifecycle | None = None


def _rows(table: TableOverlay, request: KeyedRequest, progress: _Progress) -> Generator[Row, None, None]:
    # Not itself a generator: the call, not the first row, fixes the state that the scan sees.
    binding = table.binding
    decode = binding.row_decoder(request.columns or binding.shape.columns)
    try:
        pairs = _scanned(table, request)
    except ENGINE_FAILURES as error:
        table.transaction.fail(error)
    return _decoded(table.transaction, decode, pairs, progress)


def _decoded(
    transaction: TransactionLifecycle, decode: RowDecoder, pairs: Iterator[Pair], progress: _Progress
) -> Generator[Row, None, None]:
    if not transaction.usable:
        transaction.refuse()
    try:
        for raw_key, raw in pairs:
            yield decode(raw_key, raw)
            if not transaction.usable:
                transaction.refuse()
        progress.exhausted = True
    except ENGINE_FAILURES as error:
        transaction.fail(error)
    finally:
        progress.ended = True
        if progress.owned is not None:
            progress.owned.rollback()


def _scanned(table: TableOverlay, request: KeyedRequest) -> Iterator[Pair]:
    binding = table.binding
    if 0 in (request.limit, request.limit_per_range):
        return iter(())
    if request.limit_per_range is None or request.raw_keys is not None:  # a whole key has one row at most
        return _PathReader(table, plan(binding, request)).matching()
    path = plan_each(binding, request)
    return _merged(table, request) if path is None else _PathReader(table, path).matching()


def _merged(table: TableOverlay, request: KeyedRequest) -> Iterator[Pair]:
    """Merge the scans of the single ranges, each up to its limit."""
    binding = table.binding
    found = [_PathReader(table, plan(binding, one)).matching() for one in request.per_range]
    order = _raw_key if request.order_by is None else _sort_key(binding, request.order_by)
    merged = heapq.merge(*found, key=order, reverse=request.reverse)
    distinct = (next(same) for _, same in groupby(merged, _raw_key))
    return islice(distinct, request.limit)


def _sort_key(binding: TableBinding, name: str) -> Callable[[Pair], bytes]:
    """Return the key by which pairs are in the order of a field, ties by primary key."""
    field = binding.spec.field(name)
    value_of = binding.projection((name,))
    encode = binding.keys.encode_index_value
    return lambda pair: encode(field, value_of(*pair)[0]) + pair[0]


def matching_rows(table: TableOverlay, path: ScanPath) -> Iterator[Pair]:
    """Yield raw keys and raw values of the rows that a path finds, in its order."""
    try:
        yield from _PathReader(table, path).matching()
    except ENGINE_FAILURES as error:
        table.transaction.fail(error)


def count_pairs(table: TableOverlay, path: ScanPath) -> int:
    """Return the number of rows that a path finds."""
    try:
        return _PathReader(table, path, keys_only=True).count()
    except ENGINE_FAILURES as error:
        table.transaction.fail(error)


def pair_filter(binding: TableBinding, condition: Filter) -> Callable[[Pair], bool]:
    """Return a function that evaluates a bound filter on a raw row."""
    decode, predicate = _filter_parts(binding, condition)
    return lambda pair: predicate(decode(*pair))


def _filter_parts(binding: TableBinding, condition: Filter) -> tuple[Projection, Predicate]:
    names = tuple(dict.fromkeys(condition.fields()))
    return binding.projection(names), compile_filter(binding.spec, condition, names)


def entry_without_row(binding: TableBinding, index: IndexBinding, raw_key: bytes) -> DataCorruptionError:
    """Return the error for an index entry without a row."""
    where = f"the index {index.field.name!r} of table {binding.spec.name!r}"
    return DataCorruptionError(f"{where} has an entry without its row, {binding.keys.decode(raw_key)!r}")


class _PathReader:
    """Reads one path in one transaction.

    With `keys_only`, raw values and order do not matter; values are fetched only if the filter needs them.
    """

    def __init__(self, table: TableOverlay, path: ScanPath, *, keys_only: bool = False) -> None:
        self._table = table
        self._binding = table.binding
        self._path = path
        self._reverse = path.request.reverse
        self._limit_each = path.request.limit_per_range
        self._keys_only = keys_only and path.residual is None
        self._sort_by = None if keys_only else path.sort_by
        if table.reads is not None:
            table.reads.intervals.extend(path.intervals)
        if table.increments and path.index is not None:
            table.settle_increments()
        self._own: dict[bytes, bytes | None] = dict(table.writes) if table.writes else {}
        self._increments = dict(table.increments) if table.increments else {}
        if self._increments and path.index is None and path.raw_keys is None:
            changed = sorted(filter(contains(path.intervals), self._increments))
            self._own.update(zip(changed, table.raw_values(changed), strict=True))

    def matching(self) -> Iterator[Pair]:
        """Return the pairs of the path that meet the residual filter, in the requested order, up to the limit."""
        path, pairs = self._path, self._pairs()
        if path.residual is not None:
            decode, predicate = _filter_parts(self._binding, path.residual)
            pairs = (pair for pair in pairs if predicate(decode(*pair)))
        if self._sort_by:
            pairs = self._sorted(pairs, self._sort_by)
        return pairs if path.request.limit is None else islice(pairs, path.request.limit)

    def count(self) -> int:
        """Return the number of pairs of `matching`, for a request without a limit."""
        pairs, condition = self._pairs(), self._path.residual
        if condition is None:
            return sum(1 for _ in pairs)
        decode, predicate = _filter_parts(self._binding, condition)
        return sum(map(predicate, starmap(decode, pairs)))

    def _pairs(self) -> Iterator[Pair]:
        path = self._path
        if path.raw_keys is not None:
            return self._looked_up(path.raw_keys)
        return self._row_pairs() if path.index is None else self._index_pairs(path.index)

    @property
    def _limit(self) -> int | None:
        """The maximum number of rows to read, if the path yields exactly the rows of the result."""
        path = self._path
        in_order = path.residual is None and path.within is None and self._sort_by is None
        return path.request.limit if in_order else None

    def _looked_up(self, raw_keys: list[bytes]) -> Iterator[Pair]:
        parts = lookup_parts(raw_keys, self._limit, reverse=self._reverse)
        # The first part at once: a snapshot in another process begins with its first request.
        first = [pair for part in islice(parts, 1) for pair in self._found(part)]
        return chain(first, chain.from_iterable(map(self._found, parts)))

    def _found(self, raw_keys: list[bytes]) -> list[Pair]:
        values = self._table.values_under(raw_keys, self._own, self._increments)
        pairs = [(raw_key, raw) for raw_key, raw in zip(raw_keys, values, strict=True) if raw is not None]
        return pairs[::-1] if self._reverse else pairs

    def _scan(self, hidden: int, hidden_each: int) -> Iterator[Pair]:
        """Scan the snapshot; own writes hide at most `hidden` of its pairs, and `hidden_each` of each interval."""
        intervals, limit, limit_each = self._path.intervals, self._limit, self._limit_each
        if not intervals:
            return iter(())
        return self._table.snapshot.scan_intervals(
            intervals[::-1] if self._reverse else intervals,
            reverse=self._reverse,
            limit=None if limit is None or hidden_each else limit + hidden,
            limit_each=None if limit_each is None else limit_each + hidden_each,
        )

    def _row_pairs(self) -> Iterator[Pair]:
        intervals, limit_each = self._path.intervals, self._limit_each
        inside = contains(intervals)
        own = {raw_key: raw for raw_key, raw in self._own.items() if inside(raw_key)} if self._own else {}
        begins = [begin for begin, _ in intervals]
        hidden_each = 0
        if own and limit_each is not None:
            hidden_each = max(Counter([bisect_right(begins, raw_key) for raw_key in own]).values())
        base = self._scan(len(own), hidden_each)
        if not self._keys_only:
            base = self._table.keeping(base)
        if not own:
            return base
        others = (pair for pair in base if pair[0] not in own)
        mine = sorted(((raw_key, raw) for raw_key, raw in own.items() if raw is not None), reverse=self._reverse)
        merged = heapq.merge(others, mine, reverse=self._reverse)
        if limit_each is None:
            return merged
        groups = groupby(merged, lambda pair: bisect_right(begins, pair[0]))
        return chain.from_iterable(islice(group, limit_each) for _, group in groups)

    def _index_pairs(self, index: IndexBinding) -> Iterator[Pair]:
        raw_keys: Iterator[bytes] = self._index_keys(index)
        if self._path.within is not None:
            raw_keys = filter(contains(self._path.within), raw_keys)
        if self._sort_by == "":
            records = sort_records(((raw_key, b"", b"") for raw_key in raw_keys), reverse=self._reverse)
            raw_keys = map(itemgetter(0), records)
        return ((raw_key, b"") for raw_key in raw_keys) if self._keys_only else self._fetched(index, raw_keys)

    def _index_keys(self, index: IndexBinding) -> Iterator[bytes]:
        row_key, own = index.row_key, self._own
        entries = map(itemgetter(0), self._scan(len(own), 0))
        if not own:
            return map(row_key, entries)
        inside = contains(self._path.intervals)
        mine = sorted(
            (
                entry
                for raw_key, raw in own.items()
                if raw is not None and inside(entry := index.entry_of(raw_key, raw))
            ),
            reverse=self._reverse,
        )
        others = (entry for entry in entries if row_key(entry) not in own)
        return map(row_key, heapq.merge(others, mine, reverse=self._reverse))

    def _fetched(self, index: IndexBinding, raw_keys: Iterator[bytes]) -> Iterator[Pair]:
        # Entries of rows that were only incremented are unchanged from the snapshot.
        table, own, increments, size = self._table, self._own, self._increments, _FIRST_FETCH
        while chunk := list(islice(raw_keys, size)):
            # Under SERIALIZABLE the rows are recorded one by one: an interval may hold their entries, which do not
            # change when only other fields of the rows do.
            values = table.snapshot_values(chunk, table.snapshot.get_many)
            size = next_rows(values, _LARGEST_FETCH)
            for raw_key, found in zip(chunk, values, strict=True):
                raw = own.get(raw_key, found) if own else found
                if raw is None:
                    raise entry_without_row(self._binding, index, raw_key)
                if raw_key in increments:
                    raw = self._binding.applied(raw, increments[raw_key])
                yield raw_key, raw

    def _sorted(self, pairs: Iterator[Pair], name: str) -> Iterator[Pair]:
        key = _sort_key(self._binding, name)
        records = ((key(pair), *pair) for pair in pairs)
        for _, raw_key, raw in sort_records(records, reverse=self._reverse, limit=self._path.request.limit):
            yield raw_key, raw
