"""`PostgreSQLTable`: the operations on a table inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from structable.spi import (
    FieldSizeLimitError,
    Filter,
    Key,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    RowIterator,
    ScanExplanation,
    TableSpecification,
    TableStatistics,
    Value,
)
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import (
    check_changes,
    check_default,
    check_swap,
)
from structable.spi.rules.rows import check_key, check_row, check_row_size
from structable.spi.rules.scans import ScanRequest, check_limit, row_columns
from structable.spi.statistics import COUNTED_ROWS
from structable.spi.values import MAX_ROW_SIZE

from .driver.statement import Call
from .many_rows import ManyRowsTable
from .sql import statements
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, lookup_call, lookup_many_call
from .sql.row_codec import Pieces, at_most
from .sql.templates import EncodedPrefixes, prefix_template
from .txn.bound_table import on_current_schema
from .txn.cursor_scan import ScanRows
from .txn.explain import explain_scan
from .txn.increments import defer_increment
from .txn.merges import merge_one
from .txn.range_writes import count_matching, delete_matching, update_matching
from .txn.refusals import CHECKED_SIZE, refusal_of_sizes
from .txn.row_calls import most_bytes, row_call, surely_fits
from .txn.row_probes import find_row, find_size, find_swap
from .txn.sampling import sampled_size
from .txn.seen_rows import ABSENT

__all__ = ["PostgreSQLTable"]

_ALL = Range()

_ROW_BYTES = 32
"""What a row is taken to have if none was seen."""


class PostgreSQLTable(ManyRowsTable):
    """One table in one transaction."""

    @property
    def specification(self) -> TableSpecification:
        self._tx.require_usable()
        if not self.verified:
            self.renew()
        return self.binding.spec

    # Reading

    @on_current_schema
    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        tx = self._tx
        tx.require_usable()
        checked, pieces = self.binding.encoded_key(key)
        names = None if columns is None else self.binding.shape_of(columns).columns
        result = tx.ask(self, lambda binding: lookup_call(binding, pieces, binding.shape_of(names)), pieces)
        self.seen.note_one(pieces, result, names is None)
        return decode_row(tx.rows_of(result)[0], checked, self.binding.shape_of(names)) if result.ntuples else None

    @on_current_schema
    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        tx = self._tx
        tx.require_usable()
        checked = [self.binding.encoded_key(key)[1] for key in check_many(self.binding.spec, "keys", keys)]
        names = self.binding.shape_of(columns).columns
        if not checked:
            return []
        result = tx.ask(self, lambda binding: lookup_many_call(binding, checked, binding.shape_of(names)))
        if not tx.read_only:
            self.seen.note(result, self.binding, None if names == self.binding.shape.columns else names)
        return build_rows(tx.rows_of(result), self.binding.shape_of(names))

    # Scanning

    def _request(
        self,
        ranges: Iterable[Range],
        where: Filter | None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        limit_per_range: int | None = None,
    ) -> ScanRequest:
        self._tx.require_usable()
        spec = self.binding.spec
        if ranges.__class__ is list or ranges.__class__ is tuple:
            encoded = EncodedPrefixes.of(self.binding, ranges)
            if encoded is not None:
                request = ScanRequest.checked(spec, (), where, columns, order_by, reverse, limit, limit_per_range)
                return replace(request, ranges=encoded)
        return ScanRequest.checked(spec, ranges, where, columns, order_by, reverse, limit, limit_per_range)

    @on_current_schema
    def scan(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        if where is None and order_by is None and reverse.__class__ is bool and range.__class__ is Range:
            pieces = self.binding.prefix_pieces(range)
            if pieces is not None:
                self._tx.require_usable()
                spec = self.binding.spec
                most = check_limit(spec, limit)
                request = ScanRequest((range,), None, row_columns(spec, columns), None, reverse, most)
                return ScanRows(self._tx, self, request, (prefix_template(len(pieces)), list(pieces)))
        return ScanRows(self._tx, self, self._request((range,), where, columns, order_by, reverse, limit))

    @on_current_schema
    def multi_scan(
        self,
        ranges: Iterable[Range],
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        limit_per_range: int | None = None,
    ) -> RowIterator:
        request = self._request(ranges, where, columns, order_by, reverse, limit, limit_per_range)
        return ScanRows(self._tx, self, request)

    @on_current_schema
    def scan_index(
        self,
        field: str,
        value: Value,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        request = self._request((range,), where, columns, order_by, reverse, limit)
        return ScanRows(self._tx, self, request.with_index_value(self.binding.spec, field, value))

    @on_current_schema
    def explain(
        self,
        range: Range = _ALL,
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> ScanExplanation:
        request = self._request((range,), where, columns, order_by, reverse, limit)
        return explain_scan(self._tx, self, request)

    def statistics(self, range: Range) -> TableStatistics:
        column = self.binding.spec.field_names[0]
        with self.scan(range, columns=[column], limit=COUNTED_ROWS + 1) as rows:
            counted = sum(1 for _ in rows)
        if not counted:
            return TableStatistics(0, 0, exact=True)
        found, size = self._sampled_size(range)
        # Few rows may lie on pages that were not sampled.
        of_a_row = size // found if found else _ROW_BYTES
        exact = counted <= COUNTED_ROWS
        count = counted if exact else max(counted, found)
        return TableStatistics(count, count * max(1, of_a_row), exact)

    @on_current_schema
    def _sampled_size(self, range: Range) -> tuple[int, int]:
        return sampled_size(self._tx, self, self._request((range,), None))

    @on_current_schema
    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        wanted = (_ALL,) if ranges is None else (ranges,) if isinstance(ranges, Range) else ranges
        return count_matching(self._tx, self, self._request(wanted, where))

    # Writing one row: sent with the next statement that may see it, at the latest with the commit

    def _encoded(self, row: Mapping[str, Value]) -> tuple[tuple[str, ...], Pieces]:
        """Check a row; return its fields, in the order of statements, and their values in binary."""
        binding = self.binding
        names = tuple(row) if row.__class__ is dict else ()
        ordered = binding.known_names(names)
        if ordered is None:
            row = check_row(binding.write_spec, row)  # raises, unless the row is another kind of mapping
            names = tuple(row)
            ordered = binding.ordered(names)
        return ordered, binding.encoder(names).pieces(row)

    def _write(
        self,
        first: TableBinding,
        names: tuple[str, ...],
        row: dict[str, Value],
        key: Pieces,
        size: int | None,
        *,
        there: bool,
        pieces: Pieces | None = None,
        whole: bool = False,
        checked: bool = False,
    ) -> None:
        """Defer what `row_call` makes; `size` is what is known of the row afterwards."""
        build = row_call(first, names, row, pieces, there=there, whole=whole, checked=checked)
        self._tx.defer(self, build, key, refusal_of_sizes(self.binding) if checked else None)
        self.seen.put(key, size)

    @on_current_schema
    def upsert(self, row: Mapping[str, Value]) -> None:
        self._tx.require_writable()
        if self.binding.merges:
            names, pieces = self._encoded(row)
            merge_one(self._tx, self, dict(row), names, pieces)
        else:
            self._upsert(row)

    def _upsert(self, row: Mapping[str, Value], *, whole: bool = False) -> None:
        binding = self.binding  # a look-up may find another version of the table
        names, pieces = self._encoded(row)
        given = dict(row)
        size = at_most(pieces)
        key = pieces[: len(binding.key_fields)]
        seen = self.seen.get(key)
        others = binding.width_without(names)
        if others == 0 and self._tx.writes.supersede(self, key):
            seen = None  # one of them may have made the row
        there = seen not in (None, ABSENT)
        most = most_bytes(others, size, seen)
        if surely_fits(most, size):
            self._write(binding, names, given, key, most, there=there, pieces=pieces, whole=whole)
        elif size <= CHECKED_SIZE:
            self._write(binding, names, given, key, most, there=there, pieces=pieces, checked=True)
        else:
            # The new size depends on the existing row, and this call rejects a row that becomes too large.
            found = self._found_size(check_row(binding.write_spec, given), names)
            self._write(binding, names, given, key, found or size, there=found is not None, pieces=pieces)

    def _found_size(self, row: Mapping[str, Value], names: tuple[str, ...]) -> int | None:
        size = find_size(self._tx, self, row, names)
        if size is not None and size > MAX_ROW_SIZE:
            raise FieldSizeLimitError(self.binding.spec.name, "row", size, MAX_ROW_SIZE)
        return size

    @on_current_schema
    def replace(self, row: Mapping[str, Value]) -> None:
        self._tx.require_writable()
        checked = check_row(self.binding.write_spec, row)
        self._upsert({**dict.fromkeys(self.binding.spec.field_names), **checked}, whole=True)

    @on_current_schema
    def insert(self, row: Mapping[str, Value]) -> None:
        self._tx.require_writable()
        names, pieces = self._encoded(row)
        key = pieces[: len(self.binding.key_fields)]
        given = dict(row)
        seen = self.seen.get(key)
        if seen != ABSENT and (seen is not None or find_row(self._tx, self, given)):
            spec = self.binding.write_spec
            checked = check_row(spec, given)
            raise RecordExistsError(spec.name, tuple(checked[name] for name in spec.primary_key))
        self._write(self.binding, names, given, key, at_most(pieces), there=False)

    @on_current_schema
    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        self._tx.require_writable()
        binding = self.binding  # a look-up may find another version of the table
        names, pieces = self._encoded(row)
        spec = binding.write_spec
        given = dict(row)
        start = None if default is None else check_default(spec, check_row(spec, given), default)
        key = pieces[: len(binding.key_fields)]
        most = at_most(pieces)
        seen = self.seen.get(key)
        if self._tx.begins and most <= CHECKED_SIZE:
            # The only call: no later one of the transaction asks what is known of the row.
            build = row_call(binding, names, given, pieces, there=True, checked=True)
            if self._tx.change(self, build, key, refusal_of_sizes(binding)):
                return
            size = None
        elif seen is None or seen + most > MAX_ROW_SIZE:
            size = self._found_size(check_row(spec, given), names)
        else:
            size = None if seen == ABSENT else seen + most
        if size is not None:
            self._write(binding, names, given, key, size, there=True, pieces=pieces)
            return
        checked = check_row(spec, given)
        if start is None:
            raise RecordNotFoundError(spec.name, tuple(checked[name] for name in spec.primary_key))
        merged = {**start, **checked}
        self._write(binding, binding.ordered(merged), merged, key, MAX_ROW_SIZE, there=False)

    def _key_of(self, row: Mapping[str, Value]) -> Pieces:
        binding = self.binding
        return binding.key_pieces(tuple([row[name] for name in binding.spec.primary_key]))

    @on_current_schema
    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        self._tx.require_writable()
        spec = self.binding.write_spec
        checked = check_key(spec, key)
        wanted, new = check_swap(spec, field, expected, value)
        row = {**dict(zip(spec.primary_key, checked, strict=True)), field: new}
        check_row_size(spec, row)
        found = find_swap(self._tx, self, row, field, wanted)
        if not (found.values[0] if found.row else wanted is None):
            return False
        size = int(str(found.values[1])) if found.row else MAX_ROW_SIZE
        if size > MAX_ROW_SIZE:
            raise FieldSizeLimitError(spec.name, "row", size, MAX_ROW_SIZE)
        self._write(self.binding, self.binding.ordered(row), row, self._key_of(row), size, there=found.row)
        return True

    @on_current_schema
    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._tx.require_writable()
        defer_increment(self._tx, self, key, field, amount)

    @on_current_schema
    def delete(self, key: Key) -> None:
        self._tx.require_writable()
        _, pieces = self.binding.encoded_key(key)
        self._tx.writes.supersede(self, pieces)
        self._tx.defer(self, lambda binding: Call(statements.delete_row(binding), pieces), pieces)
        self.seen.put(pieces, ABSENT)

    # Writing the rows of a range

    @on_current_schema
    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        self._tx.require_writable()
        request = self._request((range,), where)
        self.seen.clear()
        return delete_matching(self._tx, self, request)

    @on_current_schema
    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        self._tx.require_writable()
        checked = check_changes(self.binding.write_spec, changes)
        request = self._request((range,), where)
        self.seen.clear()
        return update_matching(self._tx, self, request, checked)
