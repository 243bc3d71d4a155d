"""Merges of changes with the rows of a table, as its merge engine says: rows are read, merged, and put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from structable.spi import RowKind, Value
from structable.spi.merging import IGNORED, Values
from structable.spi.rules.rows import check_row
from structable.spi.table_options import MergeEngine

from .overlay import TableOverlay
from .schema.binding import TableBinding

__all__ = ["merged_row", "merged_rows"]


def merged_row(table: TableOverlay, kind: RowKind, row: Mapping[str, Value]) -> tuple[bytes, bytes | None] | None:
    """Return the key and the row that a user's change writes: None for a deleted row, or if nothing is written."""
    binding = table.binding
    raw_key, row = _checked(binding, row)
    raw = None if _replaces(binding, kind, row) else table.raw_value(raw_key)
    old = None if raw is None else binding.rows.decode_values(raw)
    new = binding.merger.apply(old, kind, row)
    if new is IGNORED or (new is None and raw is None):
        return None
    return raw_key, None if new is None else binding.encoded(raw_key, new)


def merged_rows(
    table: TableOverlay, changes: Sequence[tuple[RowKind, Mapping[str, Value]]]
) -> dict[bytes, bytes | None]:
    """Return what a user's changes write, one after the other: they are merged with one another, too."""
    binding = table.binding
    checked = [(kind, *_checked(binding, row)) for kind, row in changes]
    rows: dict[bytes, Values | None] = {}
    unread: set[bytes] = set()
    for kind, raw_key, row in checked:
        if raw_key not in rows:
            rows[raw_key] = None
            if not _replaces(binding, kind, row):
                unread.add(raw_key)
    if unread:
        decode, raw_keys = binding.rows.decode_values, sorted(unread)
        for raw_key, raw in zip(raw_keys, table.raw_values(raw_keys), strict=True):
            if raw is not None:
                rows[raw_key] = decode(raw)
    merge = binding.merger.apply
    written: set[bytes] = set()
    for kind, raw_key, row in checked:
        old = rows[raw_key]
        new = merge(old, kind, row)
        if new is not IGNORED and not (new is old is None and raw_key not in written):
            rows[raw_key] = new
            written.add(raw_key)
    encoded: dict[bytes, bytes | None] = {}
    for raw_key in written:
        values = rows[raw_key]
        encoded[raw_key] = None if values is None else binding.encoded(raw_key, values)
    return encoded


def _checked(binding: TableBinding, row: Mapping[str, Value]) -> tuple[bytes, Mapping[str, Value]]:
    raw_key = binding.patches.checked_key(row)
    if raw_key is not None:
        return raw_key, row
    checked = check_row(binding.write_spec, row)
    return binding.checked_raw_key(checked), checked


def _replaces(binding: TableBinding, kind: RowKind, row: Mapping[str, Value]) -> bool:
    """Tell whether a change makes the row what it is, whatever it was before."""
    options = binding.spec.table_options
    if kind.retracts or options.merge_engine is not MergeEngine.DEDUPLICATE or options.sequence:
        return False
    unnamed = len(binding.spec.fields) - len(row)
    return unnamed == 0 or (unnamed == 1 and options.soft_delete is not None and options.soft_delete not in row)
