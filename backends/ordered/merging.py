"""Merges of changes with the rows of a table, as its merge engine says: rows are read, merged, and put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from structable.spi import RowKind, Value
from structable.spi.merging import IGNORED, Values
from structable.spi.table_options import MergeEngine

from .overlay import TableOverlay
from .schema.binding import TableBinding

__all__ = ["RowChange", "merged_row", "merged_rows"]

RowChange: TypeAlias = tuple[RowKind, dict[str, Value]]
"""The kind of a change, and its checked row."""


def merged_row(table: TableOverlay, kind: RowKind, row: Mapping[str, Value]) -> dict[bytes, bytes | None]:
    """Return what a change of one row writes: the row, None if deleted, or nothing at all."""
    return _read_and_merged(table, [(table.binding.checked_raw_key(row), kind, row)])


def merged_rows(table: TableOverlay, changes: Sequence[RowChange]) -> dict[bytes, bytes | None]:
    """Return what changes write, one after the other; they are merged with one another, too."""
    raw_key = table.binding.checked_raw_key
    return _read_and_merged(table, [(raw_key(row), kind, row) for kind, row in changes])


_KeyedChange: TypeAlias = tuple[bytes, RowKind, Mapping[str, Value]]


def _read_and_merged(table: TableOverlay, changes: Sequence[_KeyedChange]) -> dict[bytes, bytes | None]:
    binding = table.binding
    rows: dict[bytes, Values | None] = {}
    unread: set[bytes] = set()
    for raw_key, kind, row in changes:
        if raw_key not in rows:
            rows[raw_key] = None
            if not _replaces(binding, kind, row):
                unread.add(raw_key)
    if unread:
        decode, raw_keys = binding.rows.decode_values, sorted(unread)
        for raw_key, raw in zip(raw_keys, table.raw_values(raw_keys), strict=True):
            rows[raw_key] = None if raw is None else decode(raw)
    merge, written = binding.merger.apply, set()
    for raw_key, kind, row in changes:
        old = rows[raw_key]
        new = merge(old, kind, row)
        if new is not IGNORED and not (new is old is None and raw_key not in written):
            rows[raw_key] = new
            written.add(raw_key)
    return {raw_key: _encoded(binding, raw_key, rows[raw_key]) for raw_key in written}


def _replaces(binding: TableBinding, kind: RowKind, row: Mapping[str, Value]) -> bool:
    """Tell whether a change makes the row what it is, whatever it was before."""
    options = binding.spec.table_options
    if kind.retracts or options.merge_engine is not MergeEngine.DEDUPLICATE or options.sequence:
        return False
    unnamed = len(binding.spec.fields) - len(row)
    return unnamed == 0 or (unnamed == 1 and options.soft_delete is not None and options.soft_delete not in row)


def _encoded(binding: TableBinding, raw_key: bytes, values: Values | None) -> bytes | None:
    return None if values is None else binding.encoded(raw_key, values)
