"""Rows as JSON objects, in the forms of `literals`."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping, Sequence

from structable.spi import Field, TableSpecification, Value
from structable.spi.literals import LiteralError, parse_value, value_from_json, value_to_json
from structable.spi.showing import not_a_field
from structable.spi.values import EXACT

from .file_columns import NamedFields

__all__ = ["JsonObject", "decoded_object", "row_from_json", "row_of_object", "row_to_json"]


class JsonObject(list[tuple[str, object]]):
    """An object as its pairs: a `dict` would silently keep the last of two values of a name."""


def row_to_json(spec: TableSpecification, row: Mapping[str, Value], columns: Sequence[str]) -> str:
    """Return the columns of a row as a JSON object."""
    document = {name: value_to_json(spec.field(name), row[name]) for name in columns}
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def row_from_json(fields: NamedFields, text: str) -> dict[str, Value]:
    """Return the fields that a JSON object names; raises `LiteralError` or json.JSONDecodeError."""
    return row_of_object(fields, decoded_object(text))


def decoded_object(text: str) -> JsonObject:
    """Return the pairs of a JSON object; raises `LiteralError` or json.JSONDecodeError."""
    try:
        document = _DECODER.decode(text)
    except RecursionError:
        raise LiteralError("the object is nested too deeply") from None
    if not isinstance(document, JsonObject):
        raise LiteralError('a JSON object is needed, like {"field": 1}')
    return document


def row_of_object(
    fields: NamedFields, document: JsonObject, parse: Callable[[Field, str], Value] = parse_value
) -> dict[str, Value]:
    """Return the fields that an object names, whose strings `parse` reads; raises `LiteralError`."""
    row: dict[str, Value] = {}
    for name, value in document:
        if name not in fields:
            raise LiteralError(f"{name!r} {not_a_field(fields.field_names)}")
        if name in row:
            raise LiteralError(f"field {name!r} appears twice")
        try:
            row[name] = value_from_json(fields.field(name), value, parse)
        except LiteralError as error:
            raise LiteralError(f"field {name!r}: {error}") from None
    return row


def _fraction(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text, EXACT)
    except ArithmeticError:
        raise LiteralError(f"the exponent of {text} is out of range") from None


_DECODER = json.JSONDecoder(object_pairs_hook=JsonObject, parse_float=_fraction)
