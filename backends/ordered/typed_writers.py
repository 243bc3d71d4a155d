"""The writers of tables whose options change the effects of writes: merging tables, and tables without a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from structable.spi import InvalidFieldError, RowKind
from structable.spi.authors import APPLY_CHANGES, RowWrites, check_increments, check_row, check_row_kinds

from .codec.change_records import EncodedChange
from .engine import BlindStep, Increment, Operand
from .jobs.merging import folded
from .overlay import TableOverlay
from .row_writers import (
    PLAIN,
    GivenRow,
    RowWriter,
    Written,
    WrittenPair,
    found_rows,
    given_row,
    merged_row,
    merged_rows,
    rows_of,
)
from .scan.execution import matching_rows
from .scan.planning import ScanPath
from .scan.request import KeyedRequest
from .schema.binding import TableBinding


class MergingWriter(RowWriter):
    """Writes of a table with a merge engine, or with a sequence or a soft delete."""

    def upserted(self, table: TableOverlay, row: GivenRow) -> WrittenPair | None:
        return merged_row(table, RowKind.UPDATE_AFTER, row)

    def merged(self, table: TableOverlay, writes: RowWrites) -> Written:
        if writes.verb is APPLY_CHANGES:
            return super().merged(table, writes)
        return merged_rows(table, [(RowKind.UPDATE_AFTER, row) for row in rows_of(table, writes, "rows")])


class BlindWriter(RowWriter):
    """Writes of a table whose merges commute, and therefore read no row and do not conflict with one another."""

    def upserted(self, table: TableOverlay, row: GivenRow) -> WrittenPair | None:
        binding = table.binding
        assert binding.operands is not None, "the merges of the table commute"
        raw_key, operand = binding.operands.encode_added(row) or _operand(binding, row)
        increments = table.increments
        if raw_key in table.writes or raw_key in increments:
            pairs, _ = _merged_blindly(table, [(raw_key, operand)])
            return pairs[0] if pairs else None
        if not increments:
            table.snapshot.pin()
        increments[raw_key] = (Operand(binding.raw_schema, operand),)
        return None

    def merged(self, table: TableOverlay, writes: RowWrites) -> Written:
        codec = table.binding.operands
        assert codec is not None, "the merges of the table commute"
        if writes.verb is not APPLY_CHANGES:
            rows, encode = rows_of(table, writes, "rows"), codec.encode_added
            return _merged_blindly(table, [encode(row) or _operand(table.binding, row) for row in rows])
        binding = table.binding
        given = check_row_kinds(binding.spec, writes.rows)
        operands: list[tuple[bytes, bytes]] = []
        for kind, row in given:
            if not kind.retracts:
                operands.append(codec.encode_added(row) or _operand(binding, row))
                continue
            checked = check_row(binding.write_spec, row)
            if binding.merger.drops(kind):
                continue
            operand = codec.encode(kind, checked)
            if operand is None:
                return merged_rows(table, given)
            operands.append((binding.checked_raw_key(checked), operand))
        return _merged_blindly(table, operands)

    def stepped(self, table: TableOverlay, writes: RowWrites) -> Written:
        if table.increments:
            # An increment cannot follow operands on a row, so the row is written.
            binding = table.binding
            if writes.rows.__class__ is tuple:
                raw_keys = [binding.raw_key(writes.rows[0][0])]
            else:
                encode = binding.keys.encode_checked
                raw_keys = [encode(key) for key, _, _ in check_increments(binding.spec, writes.rows)]
            if settled := _rows_after(table, raw_keys, Operand):
                table.write_all(settled)
        return super().stepped(table, writes)


class KeylessWriter(RowWriter):
    """Writes of a table without a key: rows are only added, or it is a bag of rows."""

    def put(self, table: TableOverlay, writes: RowWrites) -> Written:
        pairs = [given_row(table.binding, row) for row in rows_of(table, writes, "rows")]
        if table.binding.derives:
            table.know_absent([raw_key for raw_key, _ in pairs])
        return pairs, ()

    def merged(self, table: TableOverlay, writes: RowWrites) -> Written:
        binding = table.binding
        changes = check_row_kinds(binding.spec, writes.rows)
        left: list[EncodedChange] = [(kind, *given_row(binding, row)) for kind, row in changes]
        doomed: list[bytes] = []
        if any(kind.retracts for kind, _ in changes):
            of_equal: defaultdict[tuple[bytes, bytes], list[EncodedChange]] = defaultdict(list)
            for record in left:
                of_equal[binding.keys.equal_rows(record[1])].append(record)
            folds = {equal_to: folded(records) for equal_to, records in of_equal.items()}
            left = [record for records, _ in folds.values() for record in records]
            taken = {equal_to: retracts for equal_to, (_, retracts) in folds.items() if retracts}
            doomed = _equal_rows(table, taken) if taken else []
        if binding.derives:
            table.know_absent([raw_key for _, raw_key, _ in left])
        return [*((raw_key, raw) for _, raw_key, raw in left), *((raw_key, None) for raw_key in doomed)], ()


class LogWriter(KeylessWriter):
    """Writes of a log: their rows are only for its feed, and have no keys."""

    def merged(self, table: TableOverlay, writes: RowWrites) -> Written:
        binding = table.binding
        return [given_row(binding, row) for _, row in check_row_kinds(binding.spec, writes.rows)], ()


_MERGING, _BLIND, _KEYLESS, _LOG = MergingWriter(), BlindWriter(), KeylessWriter(), LogWriter()


def writer_of(binding: TableBinding, *, takes_operands: bool) -> RowWriter:
    """Return the writer of a table, on an engine that takes operands or not."""
    if binding.keyless:
        return _LOG if binding.log else _KEYLESS
    if not binding.merges:
        return PLAIN
    return _BLIND if takes_operands and binding.operands is not None else _MERGING


def _operand(binding: TableBinding, row: GivenRow) -> tuple[bytes, bytes]:
    checked = check_row(binding.write_spec, row)
    assert binding.operands is not None
    operand = binding.operands.encode(RowKind.UPDATE_AFTER, checked)
    assert operand is not None, "an add is always an operand"
    return binding.checked_raw_key(checked), operand


def _merged_blindly(table: TableOverlay, operands: Sequence[tuple[bytes, bytes]]) -> Written:
    """Merge operands, by raw key, all or nothing: into rows that this transaction wrote, else without reading rows."""
    binding, writes, increments = table.binding, table.writes, table.increments
    assert binding.operands is not None
    absorb = binding.operands.absorb
    written = _rows_after(table, [raw_key for raw_key, _ in operands], Increment) if increments else {}
    blind: dict[bytes, tuple[BlindStep, ...]] = {}
    for raw_key, operand in operands:
        if raw_key in written or raw_key in writes:
            written[raw_key] = absorb(written[raw_key] if raw_key in written else writes[raw_key], operand)
            continue
        step = Operand(binding.raw_schema, operand)
        before = blind.get(raw_key) or increments.get(raw_key, ())
        if before:
            last = before[-1]
            assert isinstance(last, Operand)
            try:
                blind[raw_key] = (*before[:-1], Operand(binding.raw_schema, absorb(last.row, operand)))
            except InvalidFieldError:
                blind[raw_key] = (*before, step)  # they may fit one after the other
        else:
            blind[raw_key] = (step,)
    table.note_steps(blind)
    return [*written.items()], ()


def _rows_after(table: TableOverlay, raw_keys: Iterable[bytes], kind: type[BlindStep]) -> dict[bytes, bytes | None]:
    """Return the rows that steps of a kind have changed."""
    steps = table.increments
    changed = {raw_key for raw_key in raw_keys if raw_key in steps if steps[raw_key][0].__class__ is kind}
    return found_rows(table, [*changed]) if changed else {}


def _equal_rows(table: TableOverlay, taken: Mapping[tuple[bytes, bytes], int]) -> list[bytes]:
    """Return the wanted number of rows' keys from each interval, or all keys if there are fewer."""
    left = {begin: number for (begin, _), number in taken.items()}
    request = KeyedRequest((), None, None, None, False, None, limit_per_range=max(left.values()))
    found: list[bytes] = []
    for raw_key, _ in matching_rows(table, ScanPath(request, None, sorted(taken), None, None, (), None)):
        begin, _ = table.binding.keys.equal_rows(raw_key)
        if left[begin]:
            left[begin] -= 1
            found.append(raw_key)
    return found
