"""The cells of a row: reading them, and the state that its versions and intents make at a snapshot."""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from structable.backends.hbase.layout import (
    FAMILY,
    INTENT,
    LANE_BYTES,
    OWN_COLUMN,
    SESSION_BYTES,
    TXID_BYTES,
    VALUE,
    Layout,
    intent_column,
)
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import ROWS_AT_ONCE, Cells, ThriftCall, get_rows
from structable.backends.ordered.engine import BlindStep, Increment, MergeFunction, Operand
from structable.spi import DataCorruptionError

PUT, TOMBSTONE, MERGED, ABSORBED, INCREMENT, OPERAND, LOCK = b"PDMBIAL"
"""The first byte of a version or an intent.

A version is a value, no value, a value made by increments, or one made by operands. An intent is a value, no value,
increments, operands, or no change.
"""
STEPS: Mapping[int, int] = {INCREMENT: MERGED, OPERAND: ABSORBED}
"""The intents of steps, which do not conflict if they are of one kind, and the versions that they make."""

_MADE_BY = {version: intent for intent, version in STEPS.items()}
_KINDS = frozenset({b"P", b"D", b"M", b"B"})
_LAST_WRITE = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")
_MERGED_START = 1 + _LAST_WRITE.size
_INTENT_START = len(INTENT)
_SESSION_END = _INTENT_START + SESSION_BYTES
_OWN_COLUMN_END = _INTENT_START + TXID_BYTES
_LANE_END = _SESSION_END + LANE_BYTES
_NUMBER_BYTES = TXID_BYTES - SESSION_BYTES

RowId = tuple[bytes, bytes]
"""Space and row."""


@dataclass(slots=True)
class RowState:
    """A row at a snapshot."""

    value: bytes | None  # None for an absent row
    version: int  # timestamp of the newest visible commit; 0 if there is none
    last_write: int  # timestamp of the newest visible commit other than steps of the kind `made_by`
    made_by: int = 0  # the kind of intent that made it, if of steps

    def last_conflict(self, kind: int) -> int:
        """Return the timestamp of the newest visible commit with which an intent of a kind conflicts."""
        return self.last_write if kind == self.made_by else self.version

    @property
    def version_cell(self) -> bytes:
        """The cell x:v that holds this state, if steps made it."""
        assert self.value is not None
        return bytes([STEPS[self.made_by]]) + _LAST_WRITE.pack(self.last_write) + self.value


def write_intent(value: bytes | None) -> bytes:
    """Return the intent of a write, which is the version that it will become: None deletes."""
    return b"D" if value is None else b"P" + value


def steps_intent(steps: Sequence[BlindStep]) -> bytes:
    """Return the intent of steps of one kind, of one row."""
    schema = steps[0].schema
    head = _LENGTH.pack(len(schema)) + schema
    if isinstance(steps[0], Operand):
        rows = [step.row for step in steps if isinstance(step, Operand)]
        return b"A" + head + b"".join([_LENGTH.pack(len(row)) + row for row in rows])
    return b"I" + head + json.dumps([(one.field, one.amount) for one in steps if isinstance(one, Increment)]).encode()


def steps_of(intent: bytes) -> list[BlindStep]:
    """Return the steps in the result of `steps_intent`."""
    start = 1 + _LENGTH.size
    end = start + _LENGTH.unpack_from(intent, 1)[0]
    schema = intent[start:end]
    if intent[0] == INCREMENT:
        return [Increment(schema, field, amount) for field, amount in json.loads(intent[end:])]
    steps: list[BlindStep] = []
    while end < len(intent):
        start = end + _LENGTH.size
        end = start + _LENGTH.unpack_from(intent, end)[0]
        steps.append(Operand(schema, intent[start:end]))
    return steps


def base_of(cells: Cells) -> RowState:
    """Return the state of a row without its intents."""
    cell = cells.get(VALUE)
    if cell is None:
        return RowState(None, 0, 0)
    raw, version = cell
    kind = raw[0] if raw else 0
    if kind == PUT:
        return RowState(raw[1:], version, version)
    if kind == TOMBSTONE:
        return RowState(None, version, version)
    if kind in _MADE_BY:
        return RowState(raw[_MERGED_START:], version, _LAST_WRITE.unpack_from(raw, 1)[0], _MADE_BY[kind])
    raise DataCorruptionError(f"a cell of column x:v at timestamp {version} is not structable's: {raw[:20]!r}")


def changed_since(start: int, cells: Cells, kind: int) -> bool:
    """Return whether a row, without its intents, was changed after a timestamp and an intent of a kind conflicts."""
    cell = cells.get(VALUE)
    if cell is None:
        return False
    raw, version = cell
    if version <= start and raw[:1] in _KINDS:
        return False
    return base_of(cells).last_conflict(kind) > start


def intent_cells(txid: bytes, intents: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return the cells that hold intents in the transaction's `intent_column`."""
    if txid.endswith(OWN_COLUMN):
        return intents
    number = txid[SESSION_BYTES:]
    return {row: number + intent for row, intent in intents.items()}


def intents_of(cells: Cells) -> Iterable[tuple[bytes, bytes]]:
    """Yield transaction and intent for every intent of a row."""
    for column, (raw, _) in cells.items():
        if column.startswith(INTENT):
            if len(column) == _LANE_END:
                yield column[_INTENT_START:_SESSION_END] + raw[:_NUMBER_BYTES], raw[_NUMBER_BYTES:]
            elif len(column) == _OWN_COLUMN_END:
                yield column[_INTENT_START:], raw


def intent_of(txid: bytes, cells: Cells) -> bytes | None:
    """Return the intent of one transaction, if any; the column may hold another transaction's instead."""
    cell = cells.get(intent_column(txid))
    if cell is None:
        return None
    raw = cell[0]
    if txid.endswith(OWN_COLUMN):
        return raw
    return raw[_NUMBER_BYTES:] if raw.startswith(txid[SESSION_BYTES:]) else None


def fold(state: RowState, committed: Iterable[tuple[int, bytes]], merge: MergeFunction) -> RowState:
    """Return a row's state after intents, each with its commit timestamp, that are committed and not yet finalised.

    Intents already in the state are ignored.
    """
    for cts, intent in sorted(committed):
        if cts <= state.version or intent[0] == LOCK:
            continue
        kind = intent[0]
        if kind in STEPS:
            state = RowState(merge(state.value, steps_of(intent)), cts, state.last_conflict(kind), kind)
        else:
            state = RowState(intent[1:] if intent[0] == PUT else None, cts, cts)
    return state


def fold_stepwise(
    bases: Mapping[int, RowState], committed: Iterable[tuple[int, bytes]], merge: MergeFunction
) -> dict[int, RowState]:
    """Return a row's states at several timestamps; `bases` has the states without intents there, see `fold`."""
    ordered = sorted(committed)
    states: dict[int, RowState] = {}
    state = RowState(None, 0, 0)
    done = 0
    for at in sorted(bases):
        if bases[at].version > state.version:
            state = bases[at]
        end = bisect_right(ordered, at, key=lambda change: change[0])
        state = states[at] = fold(state, ordered[done:end], merge)
        done = end
    return states


def row_calls(
    layout: Layout, rows: Iterable[RowId], before: int | None = None
) -> tuple[list[ThriftCall[object]], Callable[[Sequence[object]], dict[RowId, Cells]]]:
    """Return the calls that read rows, and the function that decodes their results.

    Rows that were never written are missing from the result.
    """
    by_space: dict[bytes, list[bytes]] = {}
    for space, row in rows:
        by_space.setdefault(space, []).append(row)
    calls: list[ThriftCall[object]] = []
    spaces: list[bytes] = []
    for space, names in by_space.items():
        for begin in range(0, len(names), ROWS_AT_ONCE):
            spaces.append(space)
            calls.append(get_rows(layout.table(space), names[begin : begin + ROWS_AT_ONCE], [FAMILY], before))

    def decode(results: Sequence[object]) -> dict[RowId, Cells]:
        found: dict[RowId, Cells] = {}
        for space, result in zip(spaces, results, strict=True):
            assert isinstance(result, list)
            found.update(((space, row), cells) for row, cells in result)
        return found

    return calls, decode


def read_rows(gateway: Gateway, layout: Layout, rows: Iterable[RowId], before: int | None = None) -> dict[RowId, Cells]:
    """Return the cells of rows; rows never written are omitted."""
    calls, decode = row_calls(layout, rows, before)
    return decode(gateway.flight(calls, retry=True))
