"""`PostgreSQLTable`: the operations on a table inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from structable.spi import (
    FieldSizeLimitError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    RowIterator,
    RowKind,
    ScanExplanation,
    StructuredTable,
    TableSpecification,
    TableStatistics,
    Value,
)
from structable.spi.operations import Answer, Lookup, RangeWrite, RowWrites, Scan
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import (
    check_changes,
    check_default,
    check_increments,
    check_row_changes,
    check_swap,
)
from structable.spi.rules.keyless import check_verb
from structable.spi.rules.rows import check_key, check_row, check_row_size
from structable.spi.rules.scans import ScanRequest, check_limit, row_columns
from structable.spi.statistics import COUNTED_ROWS
from structable.spi.values import MAX_ROW_SIZE

from .driver.statement import Call
from .sql import statements
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, lookup_call, lookup_many_call
from .sql.row_codec import Pieces, at_most
from .sql.templates import EncodedPrefixes, prefix_template
from .txn.bound_table import BoundTable, on_current_schema
from .txn.cursor_scan import ScanRows
from .txn.explain import explain_scan
from .txn.increments import defer_increment, defer_increments
from .txn.inserts import insert_batch
from .txn.key_deletes import delete_keys
from .txn.keyless_writes import apply_to_bag, insert_keyless
from .txn.merges import apply_plain_changes, merge_changes, merge_one
from .txn.range_writes import count_matching, delete_matching, update_matching
from .txn.refusals import CHECKED_SIZE, refusal_of_sizes
from .txn.row_calls import most_bytes, row_call, surely_fits
from .txn.row_probes import find_row, find_size, find_swap
from .txn.sampling import sampled_size
from .txn.seen_rows import ABSENT
from .txn.server_transaction import ServerTransaction
from .txn.update_many import Update, checked_updates, update_batch
from .txn.upsert_many import upsert_batch

__all__ = ["PostgreSQLTable"]

_ROW_BYTES = 32
"""What a row is taken to have if none was seen."""


class PostgreSQLTable(BoundTable, StructuredTable):
    """One table in one transaction."""

    def __init__(self, transaction: ServerTransaction, binding: TableBinding) -> None:
        super().__init__(binding, transaction.verify)
        self._tx = transaction

    @property
    def specification(self) -> TableSpecification:
        self._tx.require_usable()
        if not self.verified:
            self.renew()
        return self.binding.spec

    # Reading

    @on_current_schema
    def _lookup(self, lookup: Lookup) -> list[Row]:
        tx = self._tx
        tx.require_usable()
        check_verb(self.binding.spec, lookup.name)
        if lookup.keys.__class__ is tuple:
            return self._look_up_one(lookup.keys[0], lookup.columns)
        checked = [self.binding.encoded_key(key)[1] for key in check_many(self.binding.spec, "keys", lookup.keys)]
        names = self.binding.shape_of(lookup.columns).columns
        if not checked:
            return []
        result = tx.ask(self, lambda binding: lookup_many_call(binding, checked, binding.shape_of(names)))
        if not tx.read_only:
            self.seen.note(result, self.binding, None if names == self.binding.shape.columns else names)
        return build_rows(tx.rows_of(result), self.binding.shape_of(names))

    def _look_up_one(self, key: object, columns: Iterable[str] | None) -> list[Row]:
        tx = self._tx
        checked, pieces = self.binding.encoded_key(key)
        names = None if columns is None else self.binding.shape_of(columns).columns
        result = tx.ask(self, lambda binding: lookup_call(binding, pieces, binding.shape_of(names)), pieces)
        self.seen.note_one(pieces, result, names is None)
        return [decode_row(tx.rows_of(result)[0], checked, self.binding.shape_of(names))] if result.ntuples else []

    # Scanning

    def _request(self, scan: Scan) -> ScanRequest:
        self._tx.require_usable()
        spec = self.binding.spec
        if scan.ranges.__class__ is list or scan.ranges.__class__ is tuple:
            encoded = EncodedPrefixes.of(self.binding, scan.ranges)
            if encoded is not None:
                return replace(ScanRequest.checked(spec, scan._replace(ranges=())), ranges=encoded)
        return ScanRequest.checked(spec, scan)

    @on_current_schema
    def _scan(self, scan: Scan) -> RowIterator:
        ranges, where, columns, order_by, reverse, limit, limit_per_range, index = scan
        if (
            where is None
            and order_by is None
            and index is None
            and limit_per_range is None
            and reverse.__class__ is bool
            and ranges.__class__ is tuple
            and ranges[0].__class__ is Range
        ):
            pieces = self.binding.prefix_pieces(ranges[0])
            if pieces is not None:
                self._tx.require_usable()
                spec = self.binding.spec
                most = check_limit(spec, limit)
                request = ScanRequest((ranges[0],), None, row_columns(spec, columns), None, reverse, most)
                return ScanRows(self._tx, self, request, (prefix_template(len(pieces)), list(pieces)))
        return ScanRows(self._tx, self, self._request(scan))

    @on_current_schema
    def _explain(self, scan: Scan) -> ScanExplanation:
        return explain_scan(self._tx, self, self._request(scan))

    @on_current_schema
    def _count(self, scan: Scan) -> int:
        return count_matching(self._tx, self, self._request(scan))

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
        return sampled_size(self._tx, self, self._request(Scan((range,))))

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

    def _put(
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

    def _upsert_or_merge(self, row: Mapping[str, Value]) -> None:
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
            self._put(binding, names, given, key, most, there=there, pieces=pieces, whole=whole)
        elif size <= CHECKED_SIZE:
            self._put(binding, names, given, key, most, there=there, pieces=pieces, checked=True)
        else:
            # The new size depends on the existing row, and this call rejects a row that becomes too large.
            found = self._found_size(check_row(binding.write_spec, given), names)
            self._put(binding, names, given, key, found or size, there=found is not None, pieces=pieces)

    def _found_size(self, row: Mapping[str, Value], names: tuple[str, ...]) -> int | None:
        size = find_size(self._tx, self, row, names)
        if size is not None and size > MAX_ROW_SIZE:
            raise FieldSizeLimitError(self.binding.spec.name, "row", size, MAX_ROW_SIZE)
        return size

    def _replace(self, row: Mapping[str, Value]) -> None:
        checked = check_row(self.binding.write_spec, row)
        self._upsert({**dict.fromkeys(self.binding.spec.field_names), **checked}, whole=True)

    def _insert(self, row: Mapping[str, Value]) -> None:
        names, pieces = self._encoded(row)
        key = pieces[: len(self.binding.key_fields)]
        given = dict(row)
        seen = self.seen.get(key)
        if seen != ABSENT and (seen is not None or find_row(self._tx, self, given)):
            spec = self.binding.write_spec
            checked = check_row(spec, given)
            raise RecordExistsError(spec.name, tuple(checked[name] for name in spec.primary_key))
        self._put(self.binding, names, given, key, at_most(pieces), there=False)

    def _update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None) -> None:
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
            self._put(binding, names, given, key, size, there=True, pieces=pieces)
            return
        checked = check_row(spec, given)
        if start is None:
            raise RecordNotFoundError(spec.name, tuple(checked[name] for name in spec.primary_key))
        merged = {**start, **checked}
        self._put(binding, binding.ordered(merged), merged, key, MAX_ROW_SIZE, there=False)

    def _key_of(self, row: Mapping[str, Value]) -> Pieces:
        binding = self.binding
        return binding.key_pieces(tuple([row[name] for name in binding.spec.primary_key]))

    def _swap(self, key: object, field: str, expected: Value, value: Value) -> Answer | None:
        spec = self.binding.write_spec
        checked = check_key(spec, key)
        wanted, new = check_swap(spec, field, expected, value)
        row = {**dict(zip(spec.primary_key, checked, strict=True)), field: new}
        check_row_size(spec, row)
        found = find_swap(self._tx, self, row, field, wanted)
        if not (found.values[0] if found.row else wanted is None):
            return [checked]
        size = int(str(found.values[1])) if found.row else MAX_ROW_SIZE
        if size > MAX_ROW_SIZE:
            raise FieldSizeLimitError(spec.name, "row", size, MAX_ROW_SIZE)
        self._put(self.binding, self.binding.ordered(row), row, self._key_of(row), size, there=found.row)
        return None

    def _delete(self, key: object) -> None:
        _, pieces = self.binding.encoded_key(key)
        self._tx.writes.supersede(self, pieces)
        self._tx.defer(self, lambda binding: Call(statements.delete_row(binding), pieces), pieces)
        self.seen.put(pieces, ABSENT)

    # Writing many rows, each by few statements

    def _upsert_many(self, rows: list[Mapping[str, Value]]) -> None:
        if self.binding.merges:
            spec = self.binding.write_spec
            merge_changes(self._tx, self, [(RowKind.INSERT, check_row(spec, row)) for row in rows])
        else:
            upsert_batch(self._tx, self, rows)

    def _replace_many(self, rows: list[Mapping[str, Value]]) -> None:
        nulls = dict.fromkeys(self.binding.spec.field_names)
        checked = [{**nulls, **check_row(self.binding.write_spec, row)} for row in rows]
        if not self.binding.merges:
            upsert_batch(self._tx, self, list[Mapping[str, Value]](checked))
            return
        for row in checked:
            self._upsert(row, whole=True)

    def _apply_changes(self, changes: object) -> None:
        checked = check_row_changes(self.binding.write_spec, changes)
        binding = self.binding
        apply = apply_to_bag if binding.spec.keyless else merge_changes if binding.merges else apply_plain_changes
        apply(self._tx, self, checked)

    def _insert_keyless(self, rows: Sequence[Mapping[str, Value]]) -> None:
        insert_keyless(self._tx, self, [check_row(self.binding.write_spec, row) for row in rows])

    def _update_many(self, updates: list[Mapping[str, Value]], default: Mapping[str, Value] | None) -> Answer:
        binding = self.binding
        return self._keys_of(update_batch(self._tx, self, binding, checked_updates(binding, updates, default)))

    def _keys_of(self, updates: Iterable[Update]) -> Answer:
        key = self.binding.spec.primary_key
        return [check_key(self.binding.spec, tuple([one.row[name] for name in key])) for one in updates]

    def _many(self, writes: RowWrites, argument: str = "rows") -> list[Mapping[str, Value]]:
        return check_many(self.binding.spec, argument, writes.rows)

    @on_current_schema
    def _admit(self, operation: str) -> None:
        self._tx.require_usable()
        check_verb(self.binding.spec, operation)
        self._tx.require_writable()

    @on_current_schema
    def _write(self, writes: RowWrites) -> Answer | None:
        tx, spec = self._tx, self.binding.spec
        if spec.keyless:
            tx.require_usable()
            check_verb(spec, writes.verb.name)
        tx.require_writable()
        return (_KEYLESS if spec.keyless else _KEYED)[writes.verb.name](self, writes)

    @on_current_schema
    def _write_range(self, write: RangeWrite) -> int:
        tx, changes = self._tx, write.changes
        tx.require_usable()
        check_verb(self.binding.spec, write.name)
        tx.require_writable()
        checked = None if changes is None else check_changes(self.binding.write_spec, changes)
        request = self._request(Scan((write.range,), write.where))
        self.seen.clear()
        if checked is None:
            return delete_matching(tx, self, request)
        return update_matching(tx, self, request, checked)


_Writer = Callable[[PostgreSQLTable, RowWrites], Answer | None]
_KEYED: dict[str, _Writer] = {
    "upsert": lambda table, writes: table._upsert_or_merge(writes.rows[0]),
    "replace": lambda table, writes: table._replace(writes.rows[0]),
    "insert": lambda table, writes: table._insert(writes.rows[0]),
    "update": lambda table, writes: table._update(writes.rows[0], writes.default),
    "compare_and_swap": lambda table, writes: table._swap(*writes.rows[0]),
    "increment": lambda table, writes: defer_increment(table._tx, table, *writes.rows[0]),
    "delete": lambda table, writes: table._delete(writes.rows[0]),
    "upsert_many": lambda table, writes: table._upsert_many(table._many(writes)),
    "replace_many": lambda table, writes: table._replace_many(table._many(writes)),
    "insert_many": lambda table, writes: insert_batch(table._tx, table, table._many(writes)),
    "apply_changes": lambda table, writes: table._apply_changes(writes.rows),
    "update_many": lambda table, writes: table._update_many(table._many(writes, "updates"), writes.default),
    "increment_many": lambda table, writes: defer_increments(
        table._tx, table, check_increments(table.binding.spec, writes.rows)
    ),
    "delete_many": lambda table, writes: delete_keys(
        table._tx, table, [table.binding.encoded_key(key)[1] for key in table._many(writes, "keys")]
    ),
}
_KEYLESS: dict[str, _Writer] = {
    "insert": lambda table, writes: table._insert_keyless(writes.rows),
    "insert_many": lambda table, writes: table._insert_keyless(table._many(writes)),
    "apply_changes": _KEYED["apply_changes"],
}
"""What a verb does, by its name."""
