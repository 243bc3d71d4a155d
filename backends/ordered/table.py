"""`OrderedTable`: the operations on a table inside a transaction, on top of a snapshot and the transaction's writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import Key, Row, RowIterator, RowKind, ScanExplanation, StructuredTable, TableSpecification, Value
from structable.spi.authors import (
    INSERT,
    Answer,
    Lookup,
    RangeWrite,
    RowWrites,
    Scan,
    check_changes,
    check_many,
    check_verb,
)

from .codec.change_records import EncodedChange, pack_numbered
from .engine import EngineSnapshot, Pair, ReadSet, WriteSet
from .overlay import TableOverlay
from .row_writers import PLAIN, Pairs, RowWriter, changed_row, given_row, records_of
from .scan.execution import ScanRows, count_pairs, matching_rows
from .scan.planning import explain, plan
from .scan.request import KeyedRequest
from .schema.binding import TableBinding


class OrderedTable(TableOverlay, StructuredTable):
    """One table in one transaction."""

    writer: RowWriter = PLAIN

    __slots__ = ()

    @property
    def specification(self) -> TableSpecification:
        if not self.transaction.usable:
            self.transaction.refuse()
        return self.binding.spec

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

    def _lookup(self, lookup: Lookup) -> list[Row]:
        if not self.transaction.usable:
            self.transaction.refuse()
        binding, encode = self.binding, self.binding.encode_tuple
        keys = check_many(binding.spec, "keys", lookup.keys)
        raw_keys = sorted({encode(key) or binding.raw_key(key) for key in keys})
        decode = binding.row_decoder(binding.row_columns(lookup.columns))
        found = zip(raw_keys, self.raw_values(raw_keys), strict=True)
        return [decode(raw_key, raw) for raw_key, raw in found if raw is not None]

    def _request(self, scan: Scan) -> KeyedRequest:
        if not self.transaction.usable:
            self.transaction.refuse()
        return KeyedRequest.of(self.binding, scan)

    def _scan(self, scan: Scan) -> RowIterator:
        return ScanRows(self, self._request(scan))

    def _explain(self, scan: Scan) -> ScanExplanation:
        return explain(self.binding, plan(self.binding, self._request(scan)))

    def _count(self, scan: Scan) -> int:
        return count_pairs(self, plan(self.binding, self._request(scan)))

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key, raw = self.binding.encode_full(row) or changed_row(self, row)
        if not self.writes:
            self.snapshot.pin()
        self.writes[raw_key] = raw
        if self.increments:
            self.increments.pop(raw_key, None)

    def _admit(self, operation: str) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()

    def _write(self, writes: RowWrites) -> Answer | None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        pairs, missing = self.writer.written(self, writes)
        if len(pairs) == 1:
            self.write_raw(*pairs[0])
        elif pairs:
            self.write_all(dict(pairs))
        return [self.binding.keys.decode(raw_key) for raw_key in missing] if missing else None

    def _write_range(self, write: RangeWrite) -> int:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding, changes = self.binding, write.changes
        checked = None if changes is None else check_changes(binding.write_spec, changes)
        rows = matching_rows(self, plan(binding, self._request(Scan((write.range,), write.where))))
        if checked is None:
            return self._removed([*rows])
        return self._changed([(raw_key, binding.merged(raw_key, raw, checked)) for raw_key, raw in rows])

    def _removed(self, rows: Sequence[Pair]) -> int:
        if rows:
            self.write_all({raw_key: None for raw_key, _ in rows})
        return len(rows)

    def _changed(self, rows: Sequence[Pair]) -> int:
        if rows:
            self.write_all(dict(rows))
        return len(rows)


class TypedOrderedTable(OrderedTable):
    """A table whose options change the effects of writes, or whose feed holds the given rows.

    A call records its rows after it has succeeded: a call that raises records nothing.
    """

    __slots__ = ("records", "writer")

    def __init__(
        self,
        transaction: TransactionLifecycle,
        reads: ReadSet | None,
        binding: TableBinding,
        snapshot: EngineSnapshot,
        writer: RowWriter,
    ) -> None:
        super().__init__(transaction, reads, binding, snapshot)
        self.writer = writer
        self.records: list[EncodedChange] = []

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self.binding.merges_alone or not self.transaction.writable:
            StructuredTable.upsert(self, row)
        elif (pair := self.writer.upserted(self, row)) is not None:
            self.write_raw(*pair)

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        check_verb(self.specification, "read")
        return super().read(key, columns)

    def _lookup(self, lookup: Lookup) -> list[Row]:
        check_verb(self.specification, lookup.name)
        return super()._lookup(lookup)

    def _admit(self, operation: str) -> None:
        check_verb(self.specification, operation)
        super()._admit(operation)

    def _write(self, writes: RowWrites) -> Answer | None:
        binding = self.binding
        if binding.log and writes.verb is INSERT and self.transaction.writable:
            self._append((given_row(binding, writes.rows[0]),))  # the same as below, with fewer calls
            return None
        if binding.keyless:
            self._admit(writes.verb.name)
        if not binding.feeds_input:
            return super()._write(writes)
        if not self.transaction.writable:
            self.transaction.refuse_write()
        pairs, missing = self.writer.written(self, writes)
        if binding.log:
            self._append(pairs)
            return None
        if pairs:
            self.write_all(dict(pairs))
        self.records += records_of(binding, writes, pairs)
        return [binding.keys.decode(raw_key) for raw_key in missing]

    def _append(self, pairs: Pairs) -> None:
        """Add rows to a log."""
        if not self.records:
            self.snapshot.pin()  # as the first write of any other table does
        self.records += [(RowKind.INSERT, raw_key, raw) for raw_key, raw in pairs if raw is not None]

    def _write_range(self, write: RangeWrite) -> int:
        self._admit(write.name)
        return super()._write_range(write)

    def _removed(self, rows: Sequence[Pair]) -> int:
        if self.binding.feeds_input:
            nulls = None if self.binding.keyless else self.binding.raw_nulls
            self.records += [(RowKind.DELETE, raw_key, nulls or raw) for raw_key, raw in rows]
        return super()._removed(rows)

    def _changed(self, rows: Sequence[Pair]) -> int:
        if self.binding.feeds_input:
            self.records += [(RowKind.UPDATE_AFTER, raw_key, raw) for raw_key, raw in rows]
        return super()._changed(rows)

    def collect(self, changes: WriteSet) -> None:
        super().collect(changes)
        schema = self.binding.schema
        if self.records and schema.feed is not None:
            changes.spaces.add(schema.space)
            changes.appends[schema.feed.space] = pack_numbered(self.records)
