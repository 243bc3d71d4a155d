"""The tables whose options change what writes do: those that merge, and those without a key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from structable.backends.base.keyless import KeylessTable
from structable.backends.base.transaction import TransactionLifecycle
from structable.spi import Change, InvalidFieldError, Key, RowKind, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_increments, check_row_kinds
from structable.spi.rules.rows import check_row

from .engine import EngineSnapshot, Increment, Operand, ReadSet, Step
from .merging import merged_row, merged_rows
from .scan.execution import matching_rows
from .scan.planning import ScanPath
from .scan.request import KeyedRequest
from .schema.binding import TableBinding
from .table import OrderedTable

__all__ = ["OrderedBlindTable", "OrderedKeylessTable", "OrderedMergingTable"]


class OrderedMergingTable(OrderedTable):
    """A table with a merge engine, or with a sequence or a soft delete."""

    __slots__ = ()

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written = merged_row(self, RowKind.UPDATE_AFTER, row)
        if written:
            self.write_raw(*written)

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        written = merged_rows(
            self, [(RowKind.UPDATE_AFTER, row) for row in check_many(self.binding.spec, "rows", rows)]
        )
        if written:
            self.write_all(written)


class OrderedBlindTable(OrderedMergingTable):
    """A table whose merges commute, and therefore read no row and do not conflict with one another."""

    __slots__ = ("_operands",)

    def __init__(
        self,
        transaction: TransactionLifecycle,
        reads: ReadSet | None,
        binding: TableBinding,
        snapshot: EngineSnapshot,
    ) -> None:
        super().__init__(transaction, reads, binding, snapshot)
        assert binding.operands is not None
        self._operands = binding.operands

    def upsert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key, operand = self._operands.encode_added(row) or self._encoded(row)
        increments = self.increments
        if raw_key in self.writes or raw_key in increments:
            self._merge_blindly([(raw_key, operand)])
            return
        if not increments:
            self.snapshot.pin()
        increments[raw_key] = (Operand(self.binding.raw_schema, operand),)

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        given: list[Mapping[str, Value]] = check_many(self.binding.spec, "rows", rows)
        encode = self._operands.encode_added
        self._merge_blindly([encode(row) or self._encoded(row) for row in given])

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        binding, codec = self.binding, self._operands
        given = check_row_kinds(binding.spec, changes)
        operands: list[tuple[bytes, bytes]] = []
        for kind, row in given:
            if not kind.retracts:
                operands.append(codec.encode_added(row) or self._encoded(row))
                continue
            checked = check_row(binding.write_spec, row)
            if binding.merger.drops(kind):
                continue
            operand = codec.encode(kind, checked)
            if operand is None:
                if written := merged_rows(self, given):
                    self.write_all(written)
                return
            operands.append((binding.checked_raw_key(checked), operand))
        self._merge_blindly(operands)

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        if self.increments and self.transaction.writable:
            self._settle([self.binding.raw_key(key)])
        super().increment(key, field, amount)

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        if self.increments and self.transaction.writable:
            spec, encode = self.binding.spec, self.binding.keys.encode_checked
            increments = check_many(spec, "increments", increments)
            self._settle([encode(key) for key, _, _ in check_increments(spec, increments)])
        super().increment_many(increments)

    def _encoded(self, row: Mapping[str, Value]) -> tuple[bytes, bytes]:
        checked = check_row(self.binding.write_spec, row)
        operand = self._operands.encode(RowKind.UPDATE_AFTER, checked)
        assert operand is not None, "an add is always an operand"
        return self.binding.checked_raw_key(checked), operand

    def _merge_blindly(self, operands: Sequence[tuple[bytes, bytes]]) -> None:
        """Merge operands, by raw key, all or none: into rows that this transaction wrote, else without reading them."""
        writes, increments, absorb = self.writes, self.increments, self._operands.absorb
        written = self._rows_after([raw_key for raw_key, _ in operands], Increment) if increments else {}
        blind: dict[bytes, tuple[Step, ...]] = {}
        for raw_key, operand in operands:
            if raw_key in written or raw_key in writes:
                written[raw_key] = absorb(written[raw_key] if raw_key in written else writes[raw_key], operand)
            else:
                before = blind.get(raw_key) or increments.get(raw_key, ())
                blind[raw_key] = self._followed(before, operand) if before else self._step(operand)
        if written:
            self.write_all(written)
        if blind:
            if not increments:
                self.snapshot.pin()
            increments.update(blind)

    def _step(self, operand: bytes) -> tuple[Step, ...]:
        return (Operand(self.binding.raw_schema, operand),)

    def _followed(self, before: tuple[Step, ...], operand: bytes) -> tuple[Step, ...]:
        """Return operands with one more, merged into the last if the result fits."""
        last = before[-1]
        assert isinstance(last, Operand)
        try:
            return before[:-1] + self._step(self._operands.absorb(last.row, operand))
        except InvalidFieldError:
            return before + self._step(operand)  # they may fit one after the other

    def _settle(self, raw_keys: Sequence[bytes]) -> None:
        """Make writes of those rows that operands were merged into: an increment cannot follow them."""
        if written := self._rows_after(raw_keys, Operand):
            self.write_all(written)

    def _rows_after(self, raw_keys: Iterable[bytes], kind: type[Step]) -> dict[bytes, bytes | None]:
        """Return those rows that steps of a kind have changed."""
        increments = self.increments
        changed = sorted(
            {raw_key for raw_key in raw_keys if raw_key in increments if increments[raw_key][0].__class__ is kind}
        )
        return dict(zip(changed, self.raw_values(changed), strict=True)) if changed else {}


class OrderedKeylessTable(KeylessTable, OrderedTable):
    """A table without a key: rows are only added, or it is a bag of rows."""

    __slots__ = ()

    def insert(self, row: Mapping[str, Value]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        raw_key, raw = self._new_row(row)
        self._add_rows({raw_key: raw})

    def insert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        if not self.transaction.writable:
            self.transaction.refuse_write()
        self._add_rows(dict([self._new_row(row) for row in check_many(self.binding.spec, "rows", rows)]))

    def apply_changes(self, changes: Iterable[Change | tuple[RowKind | str, Mapping[str, Value]]]) -> None:
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
            if self.binding.derives:
                self.know_absent(rows)
            self.write_all(rows)

    def _equal_rows(self, taken: Counter[tuple[bytes, bytes]]) -> list[bytes]:
        """Return the keys of the wanted number of rows of each interval, or of all if there are fewer."""
        left = {begin: number for (begin, _), number in taken.items()}
        request = KeyedRequest((), None, None, None, False, None, limit_per_range=max(left.values()))
        found: list[bytes] = []
        for raw_key, _ in matching_rows(self, ScanPath(request, None, sorted(taken), None, None, (), None)):
            begin, _ = self.binding.keys.equal_rows(raw_key)
            if left[begin]:
                left[begin] -= 1
                found.append(raw_key)
        return found
