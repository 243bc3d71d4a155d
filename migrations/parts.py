"""Parts of a table, about equal in size and filled independently. They are cut at keys sampled from a plan's splits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from structable.spi import Range, Storage, TableSpecification, UnsupportedOperationError, Value
from structable.spi.authors import check_key
from structable.spi.text import value_from_json, value_to_json

_PARTS = 64
_SAMPLED = 8
"""The number of keys sampled from each split, whose rows are unordered in some stores."""
_STEP = 1000
"""The number of rows between two keys sampled by a scan."""
_SCANNED = 200_000


class Part(NamedTuple):
    """The keys from `begin` up to, but not including, `end`, as texts; None is open."""

    begin: str | None
    end: str | None


def cut(storage: Storage, spec: TableSpecification) -> list[Part]:
    """Return about 64 parts that cover all keys; their sizes do not affect the result."""
    try:
        keys = _sampled_from_splits(storage, spec)
    except (UnsupportedOperationError, ImportError):  # a store of one process, or no Arrow
        keys = _sampled_by_scan(storage, spec)
    distinct = sorted(set(keys))[1:]  # few rows lie below the lowest key
    wanted = min(_PARTS - 1, len(distinct))
    cuts = [text_of_key(spec, distinct[number * len(distinct) // wanted]) for number in range(wanted)]
    return [Part(begin, end) for begin, end in zip([None, *cuts], [*cuts, None], strict=True)]


def _sampled_from_splits(storage: Storage, spec: TableSpecification) -> Iterable[tuple[Value, ...]]:
    keys: list[tuple[Value, ...]] = []
    with storage.plan_scan(spec.name, columns=spec.primary_key, splits=_PARTS) as plan:
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


def text_of_key(spec: TableSpecification, key: tuple[Value, ...]) -> str:
    """Return a key as a JSON array, the same text for equal keys."""
    values = [value_to_json(field, value) for field, value in zip(spec.key_fields, key, strict=True)]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _key_of_text(spec: TableSpecification, text: str) -> tuple[Value, ...]:
    """Return the key of a text; the table may have changed only outside its key."""
    return tuple(value_from_json(field, value) for field, value in zip(spec.key_fields, json.loads(text), strict=True))


def range_of_texts(spec: TableSpecification, begin: str | None, end: str | None, cursor: str | None) -> Range:
    """Return the range from `begin`, or from behind `cursor` if given, up to but not including `end`."""
    first = begin if cursor is None else cursor
    return Range(
        None if first is None else _key_of_text(spec, first),
        None if end is None else _key_of_text(spec, end),
        cursor is None,
        False,
    )
