"""Keys as texts, in which tasks keep where a part begins, ends, and how far it is done."""

from __future__ import annotations

import json

from structable.spi import Range, TableSpecification, Value
from structable.spi.literals import value_from_json, value_to_json

__all__ = ["key_of_text", "range_of_texts", "text_of_key"]


def text_of_key(spec: TableSpecification, key: tuple[Value, ...]) -> str:
    """Return a key as a JSON array, the same text for equal keys."""
    values = [value_to_json(field, value) for field, value in zip(spec.key_fields, key, strict=True)]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def key_of_text(spec: TableSpecification, text: str) -> tuple[Value, ...]:
    """Return the key of a text, whose table may have become another one only in fields outside the key."""
    return tuple(value_from_json(field, value) for field, value in zip(spec.key_fields, json.loads(text), strict=True))


def range_of_texts(spec: TableSpecification, begin: str | None, end: str | None, cursor: str | None) -> Range:
    """Return the keys from `begin` on, or behind `cursor` if that is given, to before `end`."""
    first = begin if cursor is None else cursor
    return Range(
        None if first is None else key_of_text(spec, first),
        None if end is None else key_of_text(spec, end),
        cursor is None,
        False,
    )
