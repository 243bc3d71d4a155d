"""The cells of a row: versions and intents, and the state that they make at a snapshot."""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from structable.backends.hbase.layout import (
    INTENT,
    LANE_BYTES,
    OWN_COLUMN,
    SESSION_BYTES,
    TXID_BYTES,
    VALUE,
    intent_column,
)
from structable.backends.hbase.thrift.requests import Cells
from structable.backends.ordered.engine import Increment
from structable.spi.errors import DataCorruptionError

__all__ = [
    "INCREMENT",
    "LOCK",
    "MERGED",
    "PUT",
    "TOMBSTONE",
    "Merge",
    "RowState",
    "base_of",
    "changed_since",
    "fold",
    "fold_stepwise",
    "increment_intent",
    "increments_of",
    "intent_of",
    "intents_of",
    "intent_cells",
    "write_intent",
]

PUT, TOMBSTONE, MERGED, INCREMENT, LOCK = b"PDMIL"
"""The first byte of a version or an intent: a value, no value, a value made by increments; an increment, no change."""

Merge: TypeAlias = Callable[[bytes | None, Sequence[Increment]], bytes]
"""`Engine.merge`."""

_KINDS = frozenset({b"P", b"D", b"M"})
_LAST_WRITE = struct.Struct(">Q")
_SCHEMA = struct.Struct(">I")
_MERGED_START = 1 + _LAST_WRITE.size
_INTENT_START = len(INTENT)
_SESSION_END = _INTENT_START + SESSION_BYTES
_OWN_COLUMN_END = _INTENT_START + TXID_BYTES
_LANE_END = _SESSION_END + LANE_BYTES
_NUMBER_BYTES = TXID_BYTES - SESSION_BYTES


@dataclass(slots=True)
class RowState:
    """A row at a snapshot."""

    value: bytes | None  # None for an absent row
    version: int  # timestamp of the newest visible commit; 0 if there is none
    last_write: int  # timestamp of the newest visible commit other than an increment

    @property
    def version_cell(self) -> bytes:
        """The cell x:v that holds this state, if an increment made it."""
        assert self.value is not None
        return b"M" + _LAST_WRITE.pack(self.last_write) + self.value


def write_intent(value: bytes | None) -> bytes:
    """Return the intent of a write, which is the version that it will become: None deletes."""
    return b"D" if value is None else b"P" + value


def increment_intent(increments: Sequence[Increment]) -> bytes:
    """Return the intent of increments of one row."""
    schema = increments[0].schema
    steps = json.dumps([(one.field, one.amount) for one in increments]).encode()
    return b"I" + _SCHEMA.pack(len(schema)) + schema + steps


def increments_of(intent: bytes) -> list[Increment]:
    """Return the increments in the result of `increment_intent`."""
    start = 1 + _SCHEMA.size
    end = start + _SCHEMA.unpack_from(intent, 1)[0]
    return [Increment(intent[start:end], field, amount) for field, amount in json.loads(intent[end:])]


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
    if kind == MERGED:
        return RowState(raw[_MERGED_START:], version, _LAST_WRITE.unpack_from(raw, 1)[0])
    raise DataCorruptionError(f"a cell of column x:v at timestamp {version} is not structable's: {raw[:20]!r}")


def changed_since(start: int, cells: Cells, *, increments: bool) -> bool:
    """Whether a row, without its intents, was written after a timestamp; with `increments`, these are no writes."""
    cell = cells.get(VALUE)
    if cell is None:
        return False
    raw, version = cell
    if version <= start and raw[:1] in _KINDS:
        return False
    base = base_of(cells)
    return (base.last_write if increments else base.version) > start


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


def fold(state: RowState, committed: Iterable[tuple[int, bytes]], merge: Merge) -> RowState:
    """Return a row's state after intents, each with its commit timestamp, that are committed and not yet finalised.

    Intents already in the state are ignored.
    """
    for cts, intent in sorted(committed):
        if cts <= state.version or intent[0] == LOCK:
            continue
        if intent[0] == INCREMENT:
            state = RowState(merge(state.value, increments_of(intent)), cts, state.last_write)
        else:
            state = RowState(intent[1:] if intent[0] == PUT else None, cts, cts)
    return state


def fold_stepwise(
    bases: Mapping[int, RowState], committed: Iterable[tuple[int, bytes]], merge: Merge
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
