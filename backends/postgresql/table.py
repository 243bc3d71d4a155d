"""`PostgreSQLTable`: the operations on a table inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_

from structable.spi import (
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
from structable.spi.authors import (
    COUNTED_ROWS,
    MAX_ROW_SIZE,
    Answer,
    Lookup,
    RangeWrite,
    RowMove,
    RowWrites,
    Scan,
    ScanRequest,
    check_changes,
    check_default,
    check_increments,
    check_key,
    check_limit,
    check_many,
    check_row,
    check_row_changes,
    check_row_size,
    check_swap,
    check_verb,
    row_columns,
)

from .driver.statement import Call
from .sql.binding import TableBinding
from .sql.key_lookups import build_rows, decode_row, look_at_size, look_at_swap, lookup_call, lookup_many_call
from .sql.row_codec import Pieces
from .sql.row_limit import ABSENT, require_size
from .sql.templates import EncodedPrefixes, prefix_template
from .sql.types import encode_value
from .txn.bound_table import BoundTable, on_current_schema
from .txn.cursor_scan import ScanRows
from .txn.explain import explain_scan, sampled_size
from .txn.keyless_writes import apply_to_bag, insert_keyless
from .txn.many_rows import delete_keys, increment_batch, insert_batch, upsert_batch
from .txn.merges import apply_plain_changes, merge_changes
from .txn.moves import move_rows
from .txn.one_row import OneRow, RowPlan
from .txn.range_writes import count_matching, delete_matching, update_matching
from .txn.row_statements import Given, defer, pieces_for, whole_row
from .txn.server_transaction import ServerTransaction
from .txn.update_many import KeyUpdates, checked_updates, update_batch

_ROW_BYTES = 32
"""The assumed size of a row before any was seen."""
_NO_OTHERS = Scan(())[6:]
"""The defaults of the scan arguments that the shortest path does not support."""


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

    @on_current_schema
    def _lookup(self, lookup: Lookup) -> list[Row]:
        tx = self._tx
        tx.require_usable()
        check_verb(self.binding.spec, lookup.name)
        if lookup.keys.__class__ is tuple:
            return self._look_up_one(lookup.keys[0], lookup.columns)
        checked = self.binding.encoded_keys(check_many(self.binding.spec, "keys", lookup.keys))
        names = self.binding.shape_of(lookup.columns).columns
        if not checked:
            return []
        result = tx.ask(self, lambda binding: lookup_many_call(binding, checked, binding.shape_of(names)))
        if not tx.read_only:
            self.seen.note(result, self.binding, None if names == self.binding.shape.columns else names)
        return list(build_rows(tx.rows_of(result), self.binding.shape_of(names)))

    def _look_up_one(self, key: object, columns: Iterable[str] | None) -> list[Row]:
        tx = self._tx
        checked, pieces = self.binding.encoded_key(key)
        names = None if columns is None else self.binding.shape_of(columns).columns
        result = tx.ask(self, lambda binding: lookup_call(binding, pieces, binding.shape_of(names)), pieces)
        self.seen.note_one(pieces, result, names is None)
        return [decode_row(tx.rows_of(result)[0], checked, self.binding.shape_of(names))] if result.ntuples else []

    @on_current_schema
    def _move(self, move: RowMove) -> None:
        self._tx.require_writable()
        self.written = True
        if not move_rows(self._tx, self, move):
            super()._move(move)

    def _request(self, scan: Scan) -> ScanRequest:
        self._tx.require_usable()
        spec = self.binding.spec
        if scan.ranges.__class__ is list or scan.ranges.__class__ is tuple:
            encoded = EncodedPrefixes.of(self.binding, scan.ranges)
            if encoded is not None:
                request = ScanRequest.checked(spec, scan, ())
                request.ranges = encoded
                return request
        return ScanRequest.checked(spec, scan)

    @on_current_schema
    def _scan(self, scan: Scan) -> RowIterator:
        ranges, where, columns, order_by, reverse, limit, *others = scan
        if (
            where is None
            and order_by is None
            and all(map(is_, others, _NO_OTHERS))
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

    def _defer(self, plan: RowPlan) -> None:
        """Send a write with the next statement that may see it, at the latest with the commit."""
        defer(self._tx, self, plan.statement)
        self.seen.put(plan.one.key, plan.most)

    def _upsert(self, row: Given) -> None:
        one = OneRow.of(self.binding, row)
        if not self.binding.merges:
            self._put(one)
            return
        # The only call has no later write that needs the size of the row.
        seen = None if self._tx.has_one_call else self.seen.get(one.key)
        self._defer(one.merge(seen, waits=self._tx.waits))

    def _put(self, one: OneRow, *, whole: bool = False) -> None:
        seen = self.seen.get(one.key)
        if self.binding.width_without(one.names) == 0 and self._tx.writes.supersede(self, one.key):
            seen = None  # one of the writes may have made the row
        plan = one.put(seen, whole=whole)
        if plan is None:
            # The new size depends on the existing row, and this call rejects a row that becomes too large.
            size = self._size_with(one)
            plan = one.put_of(size or one.encoded.size, there=size is not None)
        self._defer(plan)

    def _size_with(self, one: OneRow) -> int | None:
        """Return the size of the existing row with changes; None if there is no row."""

        def look(binding: TableBinding) -> Call:
            return Call(look_at_size(binding, one.names), pieces_for(binding, *one))

        rows = self._tx.rows_of(self._tx.ask(self, look, one.key))
        if not rows:
            return None
        size = int(str(rows[0][0]))
        require_size(self.binding.spec.name, size)
        return size

    def _replace(self, row: Given) -> None:
        self._put(OneRow.whole(self.binding, row), whole=True)

    def _insert(self, row: Given) -> None:
        one = OneRow.of(self.binding, row)
        seen = self.seen.get(one.key)
        if seen != ABSENT and (seen is not None or self._is_there(one.key)):
            raise RecordExistsError(self.binding.spec.name, one.key_values)
        self._defer(one.insert())

    def _is_there(self, key: Pieces) -> bool:
        def look(binding: TableBinding) -> Call:
            return lookup_call(binding, key, binding.shape_of(binding.spec.primary_key))

        return bool(self._tx.ask(self, look, key).ntuples)

    def _update(self, row: Given, default: Given | None) -> None:
        one = OneRow.of(self.binding, row)  # a lookup may find another version of the table
        spec, encoded = one.binding.write_spec, one.encoded
        start = None if default is None else check_default(spec, check_row(spec, encoded.row), default)
        plan, seen = one.update(), self.seen.get(one.key)
        if self._tx.begins and plan is not None:
            # The only call: no later call of the transaction needs the size of the row.
            if self._tx.change(self, plan.statement.call, one.key, plan.statement.refusal):
                return
            size = None
        elif seen is None or seen + encoded.size > MAX_ROW_SIZE:
            size = self._size_with(one)
        else:
            size = None if seen == ABSENT else seen + encoded.size
        if size is not None:
            self._defer(one.put_of(size, there=True))
            return
        if start is None:
            raise RecordNotFoundError(spec.name, one.key_values)
        merged = OneRow.of(one.binding, {**start, **check_row(spec, encoded.row)})
        self._defer(merged.put_of(MAX_ROW_SIZE, there=False))

    def _swap(self, key: object, field: str, expected: Value, value: Value) -> Answer | None:
        spec = self.binding.write_spec
        checked = check_key(spec, key)
        wanted, new = check_swap(spec, field, expected, value)
        row = {**dict(zip(spec.primary_key, checked, strict=True)), field: new}
        check_row_size(spec, row)
        one = OneRow.of(self.binding, row)

        def look(binding: TableBinding) -> Call:
            old = () if wanted is None else (encode_value(binding.spec.field(field), wanted),)
            statement = look_at_swap(binding, one.names, is_null=wanted is None)
            return Call(statement, (*pieces_for(binding, *one), *old))

        rows = self._tx.rows_of(self._tx.ask(self, look, one.key))
        if not (rows[0][0] if rows else wanted is None):
            return [checked]
        size = int(str(rows[0][1])) if rows else MAX_ROW_SIZE
        require_size(spec.name, size)
        self._defer(one.put_of(size, there=bool(rows)))
        return None

    def _increment(self, key: object, field: object, amount: object) -> None:
        one = OneRow.raised(self.binding, key, field, amount)
        self._defer(one.increment(self.seen.get(one.key)))

    def _delete(self, key: object) -> None:
        one = OneRow.keyed(self.binding, key)
        self._tx.writes.supersede(self, one.key)
        self._defer(one.delete())

    def _upsert_many(self, rows: list[Given]) -> None:
        if self.binding.merges:
            spec = self.binding.write_spec
            merge_changes(self._tx, self, [(RowKind.INSERT, check_row(spec, row)) for row in rows])
        else:
            upsert_batch(self._tx, self, rows)

    def _replace_many(self, rows: list[Given]) -> None:
        binding = self.binding
        if not binding.merges:
            upsert_batch(self._tx, self, [whole_row(binding, row) for row in rows])
            return
        for one in [OneRow.whole(binding, row) for row in rows]:  # all are checked before one is written
            self._put(one, whole=True)

    def _apply_changes(self, changes: object) -> None:
        checked = check_row_changes(self.binding.write_spec, changes)
        binding = self.binding
        apply = apply_to_bag if binding.spec.keyless else merge_changes if binding.merges else apply_plain_changes
        apply(self._tx, self, checked)

    def _insert_keyless(self, rows: Sequence[Given]) -> None:
        insert_keyless(self._tx, self, [check_row(self.binding.write_spec, row) for row in rows])

    def _update_many(self, updates: list[Given], default: Given | None) -> Answer:
        binding = self.binding
        return self._keys_of(update_batch(self._tx, self, binding, checked_updates(binding, updates, default)))

    def _keys_of(self, updates: Iterable[KeyUpdates]) -> Answer:
        key = self.binding.spec.primary_key
        return [check_key(self.binding.spec, tuple([one.row[name] for name in key])) for one in updates]

    def _many(self, writes: RowWrites, argument: str = "rows") -> list[Given]:
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
        self.written = True
        return (_KEYLESS if spec.keyless else _KEYED)[writes.verb.name](self, writes)

    @on_current_schema
    def _write_range(self, write: RangeWrite) -> int:
        tx, changes = self._tx, write.changes
        tx.require_usable()
        check_verb(self.binding.spec, write.name)
        tx.require_writable()
        self.written = True
        checked = None if changes is None else check_changes(self.binding.write_spec, changes)
        request = self._request(Scan((write.range,), write.where))
        self.seen.clear()
        if checked is None:
            return delete_matching(tx, self, request)
        return update_matching(tx, self, request, checked)


_Writer = Callable[[PostgreSQLTable, RowWrites], Answer | None]
_KEYED: dict[str, _Writer] = {
    "upsert": lambda table, writes: table._upsert(writes.rows[0]),
    "replace": lambda table, writes: table._replace(writes.rows[0]),
    "insert": lambda table, writes: table._insert(writes.rows[0]),
    "update": lambda table, writes: table._update(writes.rows[0], writes.default),
    "compare_and_swap": lambda table, writes: table._swap(*writes.rows[0]),
    "increment": lambda table, writes: table._increment(*writes.rows[0]),
    "delete": lambda table, writes: table._delete(writes.rows[0]),
    "upsert_many": lambda table, writes: table._upsert_many(table._many(writes)),
    "replace_many": lambda table, writes: table._replace_many(table._many(writes)),
    "insert_many": lambda table, writes: insert_batch(table._tx, table, table._many(writes)),
    "apply_changes": lambda table, writes: table._apply_changes(writes.rows),
    "update_many": lambda table, writes: table._update_many(table._many(writes, "updates"), writes.default),
    "increment_many": lambda table, writes: increment_batch(
        table._tx, table, check_increments(table.binding.spec, writes.rows)
    ),
    "delete_many": lambda table, writes: delete_keys(
        table._tx, table, table.binding.encoded_keys(table._many(writes, "keys"))
    ),
}
_KEYLESS: dict[str, _Writer] = {
    "insert": lambda table, writes: table._insert_keyless(writes.rows),
    "insert_many": lambda table, writes: table._insert_keyless(table._many(writes)),
    "apply_changes": _KEYED["apply_changes"],
}
"""The functions of the verbs, by their names."""
