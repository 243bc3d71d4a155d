"""`OrderedTable`: the operations on a table inside a transaction, on top of a snapshot and the transaction's writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from structable.spi import (
    Change,
    Filter,
    Key,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    RowIterator,
    RowKind,
    ScanExplanation,
    StructuredTable,
    TableSpecification,
    UpdateMessage,
    Value,
)
from structable.spi.evaluation import equal
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_changes, check_default, check_increments, check_row_kinds, check_swap
from structable.spi.rules.rows import check_row

from .engine import Increment, Pair
from .merging import merged_rows
from .overlay import TableOverlay
from .scan.execution import ScanRows, count_pairs, matching_rows
from .scan.planning import explain, plan
from .scan.request import KeyedRequest
from .updating import updated_rows, upserted_rows

__all__ = ["OrderedTable"]

_ALL = Range()


class OrderedTable(TableOverlay, StructuredTable):
    """One table in one transaction."""

    __slots__ = ()

    @property
    def specification(self) -> TableSpecification:
        if not self.transaction.usable:
            self.transaction.refuse()
        return self.binding.spec

    # Reading

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        tx = self.transaction
        if not tx.usable:
            tx.refuse()
        binding = self.binding
        raw_key = binding.encode_tuple(key)
        if raw_key is not None and columns is None:
            raw = self.raw_value(raw_key)
            return None if raw is None else binding.row_of(raw, key)
        if raw_key is None:
            raw_key = binding.raw_key(key)
        decode = binding.row_decoder(binding.row_columns(columns))
        raw = self.raw_value(raw_key)
        return None if raw is None else decode(raw_key, raw)

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        if not self.transaction.usable:
            self.transaction.refuse()
        binding = self.binding
        raw_keys = sorted({binding.raw_key(key) for key in check_many(binding.spec, "keys", keys)})
        decode = binding.row_decoder(binding.row_columns(columns))
        found = zip(raw_keys, self.raw_values(raw_keys), strict=True)
        return [decode(raw_key, raw) for raw_key, raw in found if raw is not None]

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
    ) -> KeyedRequest:
        if not self.transaction.usable:
            self.transaction.refuse()
        return KeyedRequest.of(self.binding, ranges, where, columns, order_by, reverse, limit, limit_per_range)

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
        return ScanRows(self, self._request((range,), where, columns, order_by, reverse, limit))

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
        return ScanRows(self, request)

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
        return ScanRows(self, request.with_index_value(self.binding.spec, field, value))

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
        return explain(
            self.binding, plan(self.binding, self._request((range,), where, columns, order_by, reverse, limit))
        )

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        wanted = (_ALL,) if ranges is None else (ranges,) if isinstance(ranges, Range) else ranges
        request = self._request(wanted, where)
        return count_pairs(self, plan(self.binding, request))

    # Writing

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        encoded = self.binding.encode_full(row) or self._changed(row)
        if not self.writes:
            self.snapshot.pin()
        self.writes[encoded[0]] = encoded[1]
        if self.increments:
            self.increments.pop(encoded[0], None)

    def _changed(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        binding = self.binding
        patch = binding.patches.of(row)
        raw_key = None if patch is None else patch.key(row)
        if patch is None or raw_key is None:
            raw_key = binding.row_key(row)
            return raw_key, binding.changed(row, self.raw_value(raw_key))
        old = self.raw_value(raw_key)
        raw = None if old is None else patch.change(row, raw_key, old)
        return raw_key, binding.changed(row, old) if raw is None else raw

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        encode_full = self.binding.encode_full
        given: list[Mapping[str, Value]] = check_many(self.binding.spec, "rows", rows)
        encoded = [encode_full(row) for row in given]
        if None in encoded:
            written: Mapping[bytes, bytes | None] = upserted_rows(self, given)
        else:
            written = dict(encoded)  # type: ignore[arg-type]
        self.write_all(written)

    def replace(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        self.write_raw(*self._whole_row(row))

    def _whole_row(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        binding = self.binding
        encoded = binding.encode_full(row)
        if encoded is None:
            encoded = binding.row_key(row), binding.changed(row, None)
        return encoded

    def insert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key, raw = self._whole_row(row)
        if self.raw_value(raw_key) is not None:
            raise RecordExistsError(self.binding.spec.name, self.binding.keys.decode(raw_key))
        self.write_raw(raw_key, raw)

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding = self.binding
        given = [self._whole_row(row) for row in check_many(binding.spec, "rows", rows)]
        raw_keys = sorted({raw_key for raw_key, _ in given})
        found = zip(raw_keys, self.raw_values(raw_keys), strict=True)
        taken = {raw_key for raw_key, raw in found if raw is not None}
        for raw_key, _ in given:
            if raw_key in taken:
                raise RecordExistsError(binding.spec.name, binding.keys.decode(raw_key))
            taken.add(raw_key)
        if given:
            self.write_all(dict(given))

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written = merged_rows(self, check_row_kinds(self.binding.spec, changes))
        if written:
            self.write_all(written)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding = self.binding
        raw_key = binding.row_key(row)
        spec = binding.write_spec
        start = None if default is None else check_default(spec, check_row(spec, row), default)
        raw = self.raw_value(raw_key)
        changed = binding.changed(row if raw is not None or start is None else {**start, **row}, raw)
        if raw is None and start is None:
            raise RecordNotFoundError(binding.spec.name, binding.keys.decode(raw_key))
        self.write_raw(raw_key, changed)

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        return self._update_rows(updates, default)

    def _update_rows(
        self,
        updates: Iterable[Mapping[str, Value] | UpdateMessage],
        default: Mapping[str, Value] | None,
        each: list[Pair] | None = None,
    ) -> list[tuple[Value, ...]]:
        """Update rows; return the keys that were skipped, and add the row after each update to `each`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written, missing = updated_rows(self, updates, default, each)
        if written:
            self.write_all(written)
        return [self.binding.keys.decode(raw_key) for raw_key in missing]

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding = self.binding
        raw_key = binding.raw_key(key)
        wanted, new = check_swap(binding.write_spec, field, expected, value)
        raw = self.raw_value(raw_key)
        found = None if raw is None else binding.rows.decode_values(raw)[binding.value_positions[field]]
        if (found is None) != (wanted is None) or (found is not None and not equal(found, wanted)):
            return False
        self.write_raw(raw_key, binding.merged(raw_key, raw, {field: new}))
        return True

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding = self.binding
        raw_key = binding.raw_key(key)
        step = binding.checked_increment(field, amount)
        if raw_key in self.writes:
            self.writes[raw_key] = binding.incremented(self.writes[raw_key], (step,))
            return
        # Blind, unless index entries depend on the result: those of the field itself, or of a row that the call
        # creates.
        if binding.maintained and (field in binding.schema.maintained or self.is_absent(raw_key)):
            self.write_raw(raw_key, binding.incremented(self.raw_value(raw_key), (step,)))
            return
        if not self.increments:
            self.snapshot.pin()
        self.increments[raw_key] = (*self.increments.get(raw_key, ()), step)

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding, indexed, steps = self.binding, self.binding.schema.maintained, self._steps(increments)
        known = {raw_key: self.writes[raw_key] for raw_key in steps.keys() & self.writes.keys()}
        unknown = sorted(steps.keys() - known.keys()) if binding.maintained else []
        rows = {**known, **dict(zip(unknown, self.raw_values(unknown), strict=True))}
        # As in `increment`: blind, unless index entries depend on the result.
        written = {
            raw_key: binding.incremented(raw, steps[raw_key])
            for raw_key, raw in rows.items()
            if raw_key in known or raw is None or any(step.field in indexed for step in steps[raw_key])
        }
        blind = {
            raw_key: (*self.increments.get(raw_key, ()), *steps[raw_key]) for raw_key in steps.keys() - written.keys()
        }
        if written:
            self.write_all(written)
        if blind:
            if not self.increments:
                self.snapshot.pin()
            self.increments.update(blind)

    def _steps(self, increments: Iterable[tuple[Key, str, int]]) -> dict[bytes, tuple[Increment, ...]]:
        binding = self.binding
        steps: dict[bytes, tuple[Increment, ...]] = {}
        for key, field, amount in check_increments(binding.spec, increments):
            raw_key = binding.keys.encode_checked(key)
            steps[raw_key] = (*steps.get(raw_key, ()), Increment(binding.raw_schema, field.name, amount))
        return steps

    def delete(self, key: Key) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key = self.binding.raw_key(key)
        if self.raw_value(raw_key) is not None:
            self.write_raw(raw_key, None)

    def delete_many(self, keys: Iterable[Key]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        if doomed := self._present(keys):
            self.write_all(dict.fromkeys(doomed))

    def _present(self, keys: Iterable[Key]) -> list[bytes]:
        """Return the raw keys of those rows that exist, each once."""
        binding = self.binding
        raw_keys = sorted({binding.raw_key(key) for key in check_many(binding.spec, "keys", keys)})
        found = zip(raw_keys, self.raw_values(raw_keys), strict=True)
        return [raw_key for raw_key, raw in found if raw is not None]

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        return self._delete_rows(self._matching(range, where))

    def _delete_rows(self, rows: Iterator[Pair]) -> int:
        doomed = [raw_key for raw_key, _ in rows]
        if doomed:
            self.write_all(dict.fromkeys(doomed))
        return len(doomed)

    def _matching(self, range: Range, where: Filter | None) -> Iterator[Pair]:
        return matching_rows(self, plan(self.binding, self._request((range,), where)))

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        if updated := self._updated(range, changes, where):
            self.write_all(updated)
        return len(updated)

    def _updated(self, range: Range, changes: Mapping[str, Value], where: Filter | None) -> dict[bytes, bytes]:
        binding = self.binding
        checked = check_changes(binding.write_spec, changes)
        return {raw_key: binding.merged(raw_key, raw, checked) for raw_key, raw in self._matching(range, where)}
