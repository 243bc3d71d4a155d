"""Text that the command reads, and rows as JSON objects, in the forms of `literals`.

Text is UTF-8, with or without a byte-order mark at its beginning.
"""

from __future__ import annotations

import decimal
import json
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Mapping, Sequence

from structable.cli.language.errors import UsageProblem
from structable.spi import Field, TableSpecification, Value
from structable.spi.authors import EXACT, not_a_field
from structable.spi.text import LiteralError, parse_value, value_from_json, value_to_json

from .file_columns import NamedFields


def without_mark(name: str, begin: bytes) -> bytes:
    """Return a text's beginning, at least 4 bytes, without its mark; raises `UsageProblem` for UTF-16 and UTF-32."""
    other = ""
    if begin.startswith((BOM_UTF32_LE, BOM_UTF32_BE)) or begin[:2] == b"\0\0" or begin[2:4] == b"\0\0":
        other = "UTF-32"
    elif begin.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in begin[:2]:
        other = "UTF-16"
    if other:
        raise UsageProblem(f"{name}: the text is {other}, not UTF-8; convert it, as by iconv -f {other} -t UTF-8")
    return begin.removeprefix(BOM_UTF8)


def decoded(name: str, content: bytes) -> str:
    """Return a whole text; raises `UsageProblem` if it is not UTF-8."""
    content = without_mark(name, content)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageProblem(f"{name}, line {line}: the text is not UTF-8") from error


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
