"""Tables whose feed holds what their verbs were given: the changelog producer input.

A call records when it has succeeded: one that raises records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import Change, Filter, Key, Range, RowKind, UpdateMessage, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_row_kinds

from .codec.change_records import NewRecord, pack_whole
from .engine import EngineSnapshot, Pair, ReadSet, WriteSet
from .schema.binding import TableBinding
from .table import OrderedTable
from .table_types import OrderedBlindTable, OrderedKeylessTable, OrderedMergingTable

__all__ = [
    "OrderedBlindInputTable",
    "OrderedInputTable",
    "OrderedKeylessInputTable",
    "OrderedMergingInputTable",
]


class _RecordingTable(OrderedTable):
    """Mixed into a table, before it."""

    __slots__ = ()

    records: list[NewRecord]

    def __init__(
        self,
        transaction: TransactionLifecycle,
        reads: ReadSet | None,
        binding: TableBinding,
        snapshot: EngineSnapshot,
    ) -> None:
        super().__init__(transaction, reads, binding, snapshot)
        self.records = []

    def collect(self, changes: WriteSet) -> None:
        super().collect(changes)
        schema = self.binding.schema
        if self.records and schema.feed is not None:
            changes.spaces.add(schema.space)
            changes.appends[schema.feed.space] = pack_whole(self.records)

    def _require_writable(self) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()

    def _record(self, kind: RowKind, rows: Iterable[Pair]) -> None:
        self.records += [(kind, raw_key, raw) for raw_key, raw in rows]


class _KeyedRecordingTable(_RecordingTable):
    """Mixed into a table with a key, before it."""

    __slots__ = ()

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._require_writable()
        given = self._whole_row(row)
        super().upsert(row)
        self._record(RowKind.UPDATE_AFTER, [given])

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._require_writable()
        rows = check_many(self.binding.spec, "rows", rows)
        given = [self._whole_row(row) for row in rows]
        super().upsert_many(rows)
        self._record(RowKind.UPDATE_AFTER, given)

    def replace(self, row: Mapping[str, Value]) -> None:
        self._require_writable()
        given = self._whole_row(row)
        self.write_raw(*given)
        self._record(RowKind.UPDATE_AFTER, [given])

    def insert(self, row: Mapping[str, Value]) -> None:
        self._require_writable()
        given = self._whole_row(row)
        super().insert(row)
        self._record(RowKind.INSERT, [given])

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._require_writable()
        rows = check_many(self.binding.spec, "rows", rows)
        given = [self._whole_row(row) for row in rows]
        super().insert_many(rows)
        self._record(RowKind.INSERT, given)

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._require_writable()
        checked = check_row_kinds(self.binding.spec, changes)
        given = [(kind, *self._whole_row(row)) for kind, row in checked]
        super().apply_changes(checked)
        self.records += given

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        super().update(row, default)
        self._record_written(self.binding.row_key(row))

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        each: list[Pair] = []
        missing = self._update_rows(updates, default, each)
        self._record(RowKind.UPDATE_AFTER, each)
        return missing

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        swapped = super().compare_and_swap(key, field, expected, value)
        if swapped:
            self._record_written(self.binding.raw_key(key))
        return swapped

    def _record_written(self, raw_key: bytes) -> None:
        raw = self.writes[raw_key]
        assert raw is not None, "the verb has put the row"
        self._record(RowKind.UPDATE_AFTER, [(raw_key, raw)])

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._require_writable()
        binding = self.binding
        raw_key, step = binding.raw_key(key), binding.checked_increment(field, amount)
        self._put({raw_key: binding.incremented(self.raw_value(raw_key), (step,))})

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        self._require_writable()
        binding, steps = self.binding, self._steps(increments)
        raw_keys = sorted(steps)
        olds = dict(zip(raw_keys, self.raw_values(raw_keys), strict=True))
        self._put({raw_key: binding.incremented(olds[raw_key], given) for raw_key, given in steps.items()})

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        self._require_writable()
        return self._put(self._updated(range, changes, where))

    def _put(self, rows: Mapping[bytes, bytes]) -> int:
        if rows:
            self.write_all(rows)
            self._record(RowKind.UPDATE_AFTER, rows.items())
        return len(rows)

    def delete(self, key: Key) -> None:
        super().delete(key)
        self._record_keys([self.binding.raw_key(key)])

    def delete_many(self, keys: Iterable[Key]) -> None:
        self._require_writable()
        self._delete_present(self._present(keys))

    def _delete_rows(self, rows: Iterator[Pair]) -> int:
        return self._delete_present([raw_key for raw_key, _ in rows])

    def _delete_present(self, raw_keys: list[bytes]) -> int:
        if raw_keys:
            self.write_all(dict.fromkeys(raw_keys))
            self._record_keys(raw_keys)
        return len(raw_keys)

    def _record_keys(self, raw_keys: Iterable[bytes]) -> None:
        nulls = self.binding.raw_nulls
        self._record(RowKind.DELETE, [(raw_key, nulls) for raw_key in raw_keys])


class OrderedInputTable(_KeyedRecordingTable, OrderedTable):
    """A table with a key whose upserts change the fields they name."""

    __slots__ = ("records",)


class OrderedMergingInputTable(_KeyedRecordingTable, OrderedMergingTable):
    """A table with a merge engine, or with a sequence or a soft delete."""

    __slots__ = ("records",)


class OrderedBlindInputTable(_KeyedRecordingTable, OrderedBlindTable):
    """A table whose merges commute; its increments read the row."""

    __slots__ = ("records",)


class OrderedKeylessInputTable(_RecordingTable, OrderedKeylessTable):
    """A table without a key."""

    __slots__ = ("records",)

    def insert(self, row: Mapping[str, Value]) -> None:
        self.insert_many([row])

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._require_writable()
        given = [self._new_row(row) for row in check_many(self.binding.spec, "rows", rows)]
        self._add_rows(dict(given))
        self._record(RowKind.INSERT, given)

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        self._require_writable()
        checked = check_row_kinds(self.binding.spec, changes)
        given = [(kind, *self._new_row(row)) for kind, row in checked]
        super().apply_changes(checked)
        self.records += given

    def _delete_rows(self, rows: Iterator[Pair]) -> int:
        doomed = dict(rows)
        if doomed:
            self.write_all(dict.fromkeys(doomed))
            self._record(RowKind.DELETE, doomed.items())
        return len(doomed)
