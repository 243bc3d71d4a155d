"""Parts of a table, about equal ones, which are filled independently: cut at keys sampled from the splits of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from structable.spi import Storage, TableSpecification, UnsupportedOperationError, Value, check_key

from .key_texts import text_of_key

__all__ = ["PARTS", "Part", "cut"]

PARTS = 64
_SAMPLED = 8
"""Keys of each split: rows of a split are in no order in some stores."""
_STEP = 1000
"""Rows between two keys sampled by a scan."""
_SCANNED = 200_000


class Part(NamedTuple):
    """Keys from `begin` on to before `end`, as texts; None is open."""

    begin: str | None
    end: str | None


def cut(storage: Storage, spec: TableSpecification, parts: int = PARTS) -> list[Part]:
    """Return parts that cover all keys, at most about that many; their sizes do not matter for what becomes of rows."""
    try:
        keys = _sampled_from_splits(storage, spec, parts)
    except (UnsupportedOperationError, ImportError):  # a store of one process, or no Arrow
        keys = _sampled_by_scan(storage, spec)
    distinct = sorted(set(keys))[1:]  # few rows, if any, are below the lowest
    wanted = min(parts - 1, len(distinct))
    cuts = [text_of_key(spec, distinct[number * len(distinct) // wanted]) for number in range(wanted)]
    return [Part(begin, end) for begin, end in zip([None, *cuts], [*cuts, None], strict=True)]


def _sampled_from_splits(storage: Storage, spec: TableSpecification, parts: int) -> Iterable[tuple[Value, ...]]:
    keys: list[tuple[Value, ...]] = []
    with storage.plan_scan(spec.name, columns=spec.primary_key, splits=parts) as plan:
        for split in plan.splits:
            for batch in islice((one for one in storage.read_split(split) if one.num_rows), 1):
                step = 1 if plan.ordered else max(1, batch.num_rows // _SAMPLED)
                rows = [0] if plan.ordered else range(0, batch.num_rows, step)
                for row in rows:
                    found = tuple(batch.column(name)[row].as_py() for name in spec.primary_key)
                    keys.append(check_key(spec, found))
    return keys


def _sampled_by_scan(storage: Storage, spec: TableSpecification) -> Iterable[tuple[Value, ...]]:
    with storage.transaction(read_only=True) as tx, tx.table(spec.name).scan(columns=spec.primary_key) as rows:
        return [row.key for row in islice(rows, _STEP, _SCANNED, _STEP)]
