"""`OrderedTable`: the operations on a table inside a transaction, on top of a snapshot and the writes so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from structable.spi import (
    Filter,
    Key,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Row,
    RowIterator,
    ScanExplanation,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    Value,
)
from structable.spi.evaluation import equal
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_changes, check_default, check_swap
from structable.spi.rules.rows import check_row
from structable.spi.rules.scans import ScanRequest

from .engine import EngineSnapshot, Increment, SchemaChangedError, WriteSet
from .scan.execution import ScanRows, count_pairs, matching_rows
from .scan.lookup import values_of
from .scan.planning import explain, plan
from .schema.binding import TableBinding

if TYPE_CHECKING:
    from .transaction import OrderedTransaction

__all__ = ["OrderedTable"]

_ALL = Range()
_ENGINE_FAILURES = (TransactionConflictError, StorageUnavailableError, SchemaChangedError)
_MOST_ORIGINALS = 4_096
_LARGEST_ORIGINAL = 4_096
"""Bytes; so a transaction that reads much holds at most 16 MiB of it."""


class OrderedTable(StructuredTable):
    """One table in one transaction.

    Parameters
    ----------
    transaction : OrderedTransaction
        The transaction.
    binding : TableBinding
        The table, as of the transaction's snapshot.
    snapshot : EngineSnapshot
        The state that the transaction reads.
    """

    __slots__ = ("_originals", "_snapshot", "_tx", "binding", "increments", "writes")

    def __init__(self, transaction: OrderedTransaction, binding: TableBinding, snapshot: EngineSnapshot) -> None:
        self._tx = transaction
        self.binding = binding
        self._snapshot = snapshot
        self.writes: dict[bytes, bytes | None] = {}
        self.increments: dict[bytes, tuple[Increment, ...]] = {}
        # Rows of the snapshot that were read: what is read is often written next, and the commit needs them to find
        # their index entries.
        self._originals: dict[bytes, bytes | None] = {}

    @property
    def specification(self) -> TableSpecification:
        """The table's schema as of the transaction's snapshot."""
        if not self._tx.usable:
            self._tx.refuse()
        return self.binding.spec

    # Reading

    def _get(self, raw_key: bytes) -> bytes | None:
        """Return a row's raw value: the transaction's own, else the snapshot's."""
        if raw_key in self.writes:
            return self.writes[raw_key]
        originals = self._originals
        if raw_key in originals:
            raw = originals[raw_key]
        else:
            tx = self._tx
            try:
                raw = self._snapshot.get(raw_key)
            except _ENGINE_FAILURES as error:
                tx.fail(error)
            if tx.reads is not None:
                tx.reads.keys.add(raw_key)
            if len(originals) < _MOST_ORIGINALS and (raw is None or len(raw) <= _LARGEST_ORIGINAL):
                originals[raw_key] = raw
        if self.increments and raw_key in self.increments:
            raw = self.binding.incremented(raw, self.increments[raw_key])
        return raw

    def _get_many(self, raw_keys: list[bytes]) -> list[bytes | None]:
        """Return the raw values of sorted raw keys."""
        tx = self._tx
        try:
            found = values_of(self._snapshot, raw_keys)
        except _ENGINE_FAILURES as error:
            tx.fail(error)
        if tx.reads is not None:
            tx.reads.keys.update(raw_keys)
        largest = max(map(len, filter(None, found)), default=0)
        if len(self._originals) + len(raw_keys) <= _MOST_ORIGINALS and largest <= _LARGEST_ORIGINAL:
            self._originals.update(zip(raw_keys, found, strict=True))
        if self.writes or self.increments:
            writes, increments = self.writes, self.increments
            for position, raw_key in enumerate(raw_keys):
                if raw_key in writes:
                    found[position] = writes[raw_key]
                elif raw_key in increments:
                    found[position] = self.binding.incremented(found[position], increments[raw_key])
        return found

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        """See `StructuredTable.read`."""
        tx = self._tx
        if not tx.usable:
            tx.refuse()
        binding = self.binding
        raw_key = binding.encode_tuple(key)
        if raw_key is None or columns is not None:
            raw_key = binding.raw_key(key)
            decode = binding.row_decoder(binding.row_columns(columns))
            raw = self._get(raw_key)
            return None if raw is None else decode(raw_key, raw)
        raw = self._get(raw_key)
        return None if raw is None else binding.row_of(raw, key)

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        """See `StructuredTable.multi_read`."""
        if not self._tx.usable:
            self._tx.refuse()
        binding = self.binding
        raw_keys = sorted({binding.raw_key(key) for key in check_many(binding.spec, "keys", keys)})
        decode = binding.row_decoder(binding.row_columns(columns))
        found = zip(raw_keys, self._get_many(raw_keys), strict=True)
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
    ) -> ScanRequest:
        if not self._tx.usable:
            self._tx.refuse()
        return ScanRequest.checked(self.binding.spec, ranges, where, columns, order_by, reverse, limit)

    def _rows(self, request: ScanRequest) -> RowIterator:
        return ScanRows(self._tx, self, plan(self.binding, request))

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
        """See `StructuredTable.scan`."""
        return self._rows(self._request((range,), where, columns, order_by, reverse, limit))

    def multi_scan(
        self,
        ranges: Iterable[Range],
        *,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        order_by: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> RowIterator:
        """See `StructuredTable.multi_scan`."""
        return self._rows(self._request(ranges, where, columns, order_by, reverse, limit))

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
        """See `StructuredTable.scan_index`."""
        request = self._request((range,), where, columns, order_by, reverse, limit)
        return self._rows(request.with_index_value(self.binding.spec, field, value))

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
        """See `StructuredTable.explain`."""
        return explain(
            self.binding, plan(self.binding, self._request((range,), where, columns, order_by, reverse, limit))
        )

    def count(self, ranges: Iterable[Range] | None = None, where: Filter | None = None) -> int:
        """See `StructuredTable.count`."""
        wanted = (_ALL,) if ranges is None else (ranges,) if isinstance(ranges, Range) else ranges
        request = self._request(wanted, where, self.binding.spec.primary_key)
        return count_pairs(self._tx, self, plan(self.binding, request))

    # Writing

    def _put(self, raw_key: bytes, raw: bytes | None) -> None:
        if not self.writes:
            self._snapshot.pin()
        self.writes[raw_key] = raw
        if self.increments:
            self.increments.pop(raw_key, None)

    def upsert(self, row: Mapping[str, Value]) -> None:
        """See `StructuredTable.upsert`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        encoded = self.binding.encode_full(row) or self._changed(row)
        if not self.writes:
            self._snapshot.pin()
        self.writes[encoded[0]] = encoded[1]
        if self.increments:
            self.increments.pop(encoded[0], None)

    def _changed(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        binding = self.binding
        patch = binding.patches.of(row)
        raw_key = None if patch is None else patch.key(row)
        if patch is None or raw_key is None:
            raw_key = binding.row_key(row)
            return raw_key, binding.changed(row, self._get(raw_key))
        old = self._get(raw_key)
        raw = None if old is None else patch.change(row, raw_key, old)
        return raw_key, binding.changed(row, old) if raw is None else raw

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """See `StructuredTable.upsert_many`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        encode_full = self.binding.encode_full
        given: list[Mapping[str, Value]] = check_many(self.binding.spec, "rows", rows)
        encoded = [encode_full(row) for row in given]
        if None in encoded:
            written: Mapping[bytes, bytes | None] = self._merged_rows(given)
        else:
            written = dict(encoded)  # type: ignore[arg-type]
        if not self.writes:
            self._snapshot.pin()
        self.writes.update(written)
        for raw_key in self.increments.keys() & written.keys() if self.increments else ():
            del self.increments[raw_key]

    def _merged_rows(self, rows: list[Mapping[str, Value]]) -> dict[bytes, bytes | None]:
        """Merge rows, each naming some or all fields, with what is there and with one another."""
        binding = self.binding
        raw_keys = [binding.row_key(row) for row in rows]
        distinct = sorted(set(raw_keys))
        newest = dict(zip(distinct, self._get_many(distinct), strict=True))
        for raw_key, row in zip(raw_keys, rows, strict=True):
            newest[raw_key] = binding.changed(row, newest[raw_key])
        return newest

    def replace(self, row: Mapping[str, Value]) -> None:
        """See `StructuredTable.replace`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        self._put(*self._whole_row(row))

    def _whole_row(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        binding = self.binding
        encoded = binding.encode_full(row)
        if encoded is None:
            encoded = binding.row_key(row), binding.changed(row, None)
        return encoded

    def insert(self, row: Mapping[str, Value]) -> None:
        """See `StructuredTable.insert`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        raw_key, raw = self._whole_row(row)
        if self._get(raw_key) is not None:
            raise RecordExistsError(self.binding.spec.name, self.binding.keys.decode(raw_key))
        self._put(raw_key, raw)

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        """See `StructuredTable.update`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        binding = self.binding
        raw_key = binding.row_key(row)
        spec = binding.write_spec
        start = None if default is None else check_default(spec, check_row(spec, row), default)
        raw = self._get(raw_key)
        changed = binding.changed(row if raw is not None or start is None else {**start, **row}, raw)
        if raw is None and start is None:
            raise RecordNotFoundError(binding.spec.name, binding.keys.decode(raw_key))
        self._put(raw_key, changed)

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        """See `StructuredTable.compare_and_swap`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        binding = self.binding
        raw_key = binding.raw_key(key)
        wanted, new = check_swap(binding.write_spec, field, expected, value)
        raw = self._get(raw_key)
        found = None if raw is None else binding.rows.decode_values(raw)[binding.value_positions[field]]
        if (found is None) != (wanted is None) or (found is not None and not equal(found, wanted)):
            return False
        self._put(raw_key, binding.merged(raw_key, raw, {field: new}))
        return True

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        """See `StructuredTable.increment`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        binding = self.binding
        raw_key = binding.raw_key(key)
        step = binding.checked_increment(field, amount)
        if raw_key in self.writes:
            self.writes[raw_key] = binding.incremented(self.writes[raw_key], (step,))
            return
        # Blind, unless index entries depend on the outcome: of the field itself, or of a row that comes into being.
        if binding.maintained and (field in binding.schema.maintained or self._get(raw_key) is None):
            self._put(raw_key, binding.incremented(self._get(raw_key), (step,)))
            return
        if not self.increments:
            self._snapshot.pin()
        self.increments[raw_key] = (*self.increments.get(raw_key, ()), step)

    def delete(self, key: Key) -> None:
        """See `StructuredTable.delete`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        raw_key = self.binding.raw_key(key)
        if self._get(raw_key) is not None:
            self._put(raw_key, None)

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        """See `StructuredTable.delete_all`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        request = self._request((range,), where, self.binding.spec.primary_key)
        doomed = [raw_key for raw_key, _ in matching_rows(self._tx, self, plan(self.binding, request))]
        for raw_key in doomed:
            self._put(raw_key, None)
        return len(doomed)

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        """See `StructuredTable.update_all`."""
        if not self._tx.writable:
            self._tx.refuse_write()
        binding = self.binding
        checked = check_changes(binding.write_spec, changes)
        request = self._request((range,), where)
        updated: dict[bytes, bytes | None] = {}
        for raw_key, raw in matching_rows(self._tx, self, plan(binding, request)):
            updated[raw_key] = binding.merged(raw_key, raw, checked)
        for raw_key, new in updated.items():
            self._put(raw_key, new)
        return len(updated)

    # Committing

    def collect(self, changes: WriteSet) -> None:
        """Add this table's writes, and the index entries that follow from them, to a write set."""
        writes, increments, binding = self.writes, self.increments, self.binding
        if not writes and not increments:
            return
        changes.spaces.add(binding.schema.space)
        if changes.writes:
            changes.writes = changes.writes | writes  # a new one: the other is the first table's own
        else:
            changes.writes = writes
        if increments:
            changes.increments.update(increments)
        if binding.maintained and writes:
            originals = self._originals
            unknown = sorted([raw_key for raw_key in writes if raw_key not in originals])
            if unknown:
                originals.update(zip(unknown, values_of(self._snapshot, unknown), strict=True))
            binding.derive(writes, originals, changes.derived)
