"""Plain documents: dicts, lists and scalars, with sets in an order that is the same in every process."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import msgspec

from structable.spi.authors import plain_value

_MINUTE = dt.timedelta(minutes=1)
_JSON_SCALARS = frozenset({str, bool, int, type(None)})


def plain(value: object, *, kept: tuple[type, ...] = ()) -> Any:  # noqa: ANN401 - JSON
    """Return a document as dicts with text keys, lists and scalars.

    A set becomes a list: in the order of its elements where they have one, otherwise in the order of their texts.

    Parameters
    ----------
    value : object
        The document.
    kept : tuple of type
        Types of scalars that are returned unchanged, not as texts.

    Raises
    ------
    TypeError, RecursionError
        If msgspec cannot encode it.
    ValueError
        If JSON has no text for a part of it that reads as the same value.
    """
    result = msgspec.to_builtins(value, str_keys=True, builtin_types=(*kept, msgspec.Raw), enc_hook=plain_value)
    sets = []
    open_parts = [(value, result)]
    while open_parts:
        part, made = open_parts.pop()
        if type(part) in _JSON_SCALARS:
            continue
        if isinstance(part, dict):
            _check_keys(part, made)
            open_parts += zip(part.values(), made.values(), strict=True)
        elif isinstance(part, list | tuple):
            open_parts += zip(part, made, strict=True)
        elif isinstance(part, set | frozenset):
            sets.append((part, made))
            open_parts += zip(part, made, strict=True)
        elif isinstance(made, dict):
            open_parts += [(one, made[name]) for name, one in members(part).items() if name in made]
        elif isinstance(made, list):  # of a struct
            open_parts += zip(members(part).values(), made[tag_of(part) is not None :], strict=True)
        else:
            _check_scalar(part)
    for part, made in reversed(sets):  # inner sets first: the order of the others may depend on their texts
        made[:] = _in_order(part, made)
    return result


def is_plain(value: object) -> bool:
    """Return whether a document has no sets, and only scalars that JSON knows."""
    open_parts: list[Any] = [[value]]
    while open_parts:
        part = open_parts.pop()
        if type(part) is float and math.isfinite(part):
            continue
        if isinstance(part, dict):
            parts: Collection[Any] = part.values()
        elif isinstance(part, list | tuple):
            parts = part
        else:
            parts = members(part).values()
            if not parts:
                return False
        if not _JSON_SCALARS.issuperset(map(type, parts)):
            open_parts += [one for one in parts if type(one) not in _JSON_SCALARS]
    return True


def members(value: object) -> dict[str, Any]:
    """Return the members of a struct, dataclass or attrs object under their names in JSON; none of anything else."""
    if isinstance(value, msgspec.Struct):
        return dict(zip(value.__struct_encode_fields__, msgspec.structs.astuple(value), strict=True))
    kind = type(value)
    names = getattr(kind, "__dataclass_fields__", ()) or [one.name for one in getattr(kind, "__attrs_attrs__", ())]
    return {name: getattr(value, name, msgspec.UNSET) for name in names}


def tag_of(value: object) -> str | None:
    """Return the name of a struct's tag, if it has one."""
    return value.__struct_config__.tag_field if isinstance(value, msgspec.Struct) else None


def _in_order(elements: set[Any] | frozenset[Any], made: list[Any]) -> list[Any]:
    pairs = list(zip(elements, made, strict=True))
    try:
        if not all(map(_has_order, elements)):
            raise TypeError("sets have no order: < compares a set with its supersets only")
        pairs.sort(key=lambda pair: pair[0])
    except TypeError:
        pairs.sort(key=lambda pair: msgspec.json.encode(pair[1], order="sorted"))
    return [one for _, one in pairs]


def _has_order(element: object) -> bool:
    """Return whether `<` orders all values like this one, or raises a TypeError."""
    if isinstance(element, tuple):
        return all(map(_has_order, element))
    return not isinstance(element, frozenset) and not members(element)


def _check_keys(part: dict[Any, Any], made: dict[str, Any]) -> None:
    if len(part) != len(made):
        raise ValueError("two of its keys have one text")
    for key in part:
        if type(key) is not str:
            _check_scalar(key)


def _check_scalar(value: object) -> None:
    if (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, Decimal) and not value.is_finite()
    ):
        raise ValueError(f"it holds {value!r}, and JSON lacks NaN and infinities")
    if isinstance(value, dt.datetime | dt.time):
        offset = value.utcoffset()
        if offset is not None and offset % _MINUTE:
            raise ValueError(f"the offset of {value} has seconds, which JSON's times lack; convert it to UTC")
