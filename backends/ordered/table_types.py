"""The tables whose options change what writes do: those that merge, and those without a key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from structable.backends.base.keyless import KeylessTable
from structable.spi import Change, RowKind, TableSpecification, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_row_kinds
from structable.spi.rules.rows import check_row

from .merging import merged_row, merged_rows
from .scan.execution import matching_rows
from .scan.planning import ScanPath
from .scan.request import KeyedRequest
from .table import OrderedTable

__all__ = ["OrderedKeylessTable", "OrderedMergingTable", "table_class"]


def table_class(spec: TableSpecification) -> type[OrderedTable]:
    """Return the class of a table in transactions."""
    if spec.keyless:
        return OrderedKeylessTable
    return OrderedMergingTable if spec.table_options.merges else OrderedTable


class OrderedMergingTable(OrderedTable):
    """A table with a merge engine, or with a sequence or a soft delete."""

    __slots__ = ()

    def upsert(self, row: Mapping[str, Value]) -> None:
        """See `StructuredTable.upsert`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written = merged_row(self, RowKind.UPDATE_AFTER, row)
        if written:
            self.write_raw(*written)

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """See `StructuredTable.upsert_many`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written = merged_rows(
            self, [(RowKind.UPDATE_AFTER, row) for row in check_many(self.binding.spec, "rows", rows)]
        )
        if written:
            self.write_all(written)


class OrderedKeylessTable(KeylessTable, OrderedTable):
    """A table without a key: rows are only added, or it is a bag of rows."""

    __slots__ = ()

    def insert(self, row: Mapping[str, Value]) -> None:
        """See `StructuredTable.insert`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key, raw = self._new_row(row)
        self._add_rows({raw_key: raw})

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """See `StructuredTable.insert_many`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        self._add_rows(dict([self._new_row(row) for row in check_many(self.binding.spec, "rows", rows)]))

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        """See `StructuredTable.apply_changes`."""
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding, equal_rows = self.binding, self.binding.keys.equal_rows
        given = check_row_kinds(binding.spec, changes)
        with_retracts = any(kind.retracts for kind, _ in given)
        added: dict[bytes, bytes] = {}
        of_equal: defaultdict[bytes, list[bytes]] = defaultdict(list)
        taken: Counter[tuple[bytes, bytes]] = Counter()
        for kind, row in given:
            if not kind.retracts:
                raw_key, raw = self._new_row(row)
                added[raw_key] = raw
                if with_retracts:
                    of_equal[equal_rows(raw_key)[0]].append(raw_key)
                continue
            equal = equal_rows(binding.checked_raw_key(check_row(binding.write_spec, row)))
            if of_equal[equal[0]]:
                del added[of_equal[equal[0]].pop()]
            else:
                taken[equal] += 1
        doomed = self._equal_rows(taken) if taken else []
        self._add_rows(added)
        if doomed:
            self.write_all(dict.fromkeys(doomed))

    def _new_row(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        binding = self.binding
        encoded = binding.encode_full(row)
        if encoded is not None:
            return encoded
        checked = check_row(binding.write_spec, row)
        raw_key = binding.checked_raw_key(checked)
        return raw_key, binding.merged(raw_key, None, checked)

    def _add_rows(self, rows: Mapping[bytes, bytes]) -> None:
        if rows:
            if self.binding.maintained:
                self.know_absent(rows)
            self.write_all(rows)

    def _equal_rows(self, taken: Counter[tuple[bytes, bytes]]) -> list[bytes]:
        """Return the keys of so many rows of each interval, or of all if there are fewer."""
        left = {begin: number for (begin, _), number in taken.items()}
        request = KeyedRequest((), None, None, None, False, None, limit_per_range=max(left.values()))
        found: list[bytes] = []
        for raw_key, _ in matching_rows(self, ScanPath(request, None, sorted(taken), None, None, (), None)):
            begin, _ = self.binding.keys.equal_rows(raw_key)
            if left[begin]:
                left[begin] -= 1
                found.append(raw_key)
        return found
