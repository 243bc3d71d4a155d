"""Changes of some fields of many rows: the rows are read at once, changed one after the other, and put."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from structable.spi import TableSpecification, UpdateMessage, Value
from structable.spi.rules.arguments import check_many
from structable.spi.rules.changes import check_default, update_with_default
from structable.spi.rules.rows import check_row

from .codec.row_patching import RowPatch
from .engine import Pair
from .overlay import TableOverlay

__all__ = ["updated_rows", "upserted_rows"]


def upserted_rows(table: TableOverlay, rows: Sequence[Mapping[str, Value]]) -> dict[bytes, bytes | None]:
    """Merge rows, each naming some or all fields, with existing rows and with one another."""
    patches, raw_keys, newest = _located(table, rows)
    changed = table.binding.changed
    for raw_key, patch, row in zip(raw_keys, patches, rows, strict=True):
        old = newest[raw_key]
        raw = None if patch is None or old is None else patch.change(row, raw_key, old)
        newest[raw_key] = changed(row, old) if raw is None else raw
    return newest


def updated_rows(
    table: TableOverlay,
    updates: Iterable[Mapping[str, Value] | UpdateMessage],
    default: Mapping[str, Value] | None,
    each: list[Pair] | None = None,
) -> tuple[Mapping[bytes, bytes | None], list[bytes]]:
    """Return the rows after all updates, in the order of keys, and the keys of which one was skipped.

    Adds the row after each update that is not skipped to `each`.
    """
    spec, changed = table.binding.write_spec, table.binding.changed
    rows, starts = _with_defaults(spec, check_many(spec, "updates", updates), default)
    patches, raw_keys, newest = _located(table, rows)
    missing: dict[bytes, None] = {}
    for raw_key, patch, row, start in zip(raw_keys, patches, rows, starts, strict=True):
        old = newest[raw_key]
        if old is None and start is None:
            check_row(spec, row)
            missing[raw_key] = None
            continue
        raw = None if patch is None or old is None else patch.change(row, raw_key, old)
        if raw is None:
            raw = changed(row if old is not None or start is None else {**start, **row}, old)
        newest[raw_key] = raw
        if each is not None:
            each.append((raw_key, raw))
    if missing:
        newest = {raw_key: raw for raw_key, raw in newest.items() if raw is not None}
    return newest, list(missing)


def _with_defaults(
    spec: TableSpecification, updates: list[Any], default: Mapping[str, Value] | None
) -> tuple[list[Any], Sequence[Mapping[str, Value] | None]]:
    """Return the rows of updates, and the checked default of each."""
    if default is None and _all_dicts(updates):
        return updates, [None] * len(updates)
    rows: list[Any] = []
    starts: list[Mapping[str, Value] | None] = []
    for one in updates:
        row, start = update_with_default(one, default)
        rows.append(row)
        starts.append(None if start is None else check_default(spec, check_row(spec, row), start))
    return rows, starts


def _located(
    table: TableOverlay, rows: Sequence[Mapping[str, Value]]
) -> tuple[list[RowPatch | None], list[bytes], dict[bytes, bytes | None]]:
    """Return the patches and the keys of rows, and what the table has of these keys."""
    patches, row_key = table.binding.patches, table.binding.row_key
    found: list[RowPatch | None]
    if _all_dicts(rows) and len(set(map(tuple, rows))) == 1:
        found = [patches.of(rows[0])] * len(rows)
    else:
        found = [patches.of(row) for row in rows]
    raw_keys = [
        (None if patch is None else patch.key(row)) or row_key(row) for patch, row in zip(found, rows, strict=True)
    ]
    distinct = sorted(set(raw_keys))
    return found, raw_keys, dict(zip(distinct, table.raw_values(distinct), strict=True))


def _all_dicts(rows: Sequence[object]) -> bool:
    return set(map(type, rows)) == {dict}
