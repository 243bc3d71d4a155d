"""Converts columns of text to columns of values and back like `literals`; by Arrow's casts where both agree."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import Field, FieldType
from structable.spi.arrow import CastError, arrow_type
from structable.spi.text import LiteralError, format_value

from .text_form import PLAIN, TextForm

# Texts that Arrow and `literals` read alike; `literals` reads all others.
_PLAIN = {
    FieldType.DOUBLE: r"^-?[0-9]{1,15}(\.[0-9]{1,25})?([eE]-[0-9]{1,2})?$",
    FieldType.DATE: r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    FieldType.TIMESTAMP: r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$",
    FieldType.TIMESTAMP_NTZ: r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
    **dict.fromkeys((kind for kind in FieldType if kind.integer_bits), r"^-?[0-9]{1,19}$"),
}


def column_to_text(field: Field, column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the texts of a column's values; nulls stay null."""
    if field.type is FieldType.STRING:
        return column
    if field.type in (FieldType.BOOLEAN, FieldType.DATE) or field.type.integer_bits:
        return column.cast(pa.string())
    if field.type in (FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ):
        local: Any = column.cast(pa.timestamp("us"))  # the stubs of strftime lack timestamps
        times: pa.StringArray = pc.strftime(local, "%Y-%m-%dT%H:%M:%S")
        zone = "Z" if field.type is FieldType.TIMESTAMP else ""
        return pc.replace_substring_regex(times, r"^(.*?)(\.000000)?$", rf"\1{zone}")
    texts = [None if value is None else format_value(field, value) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def column_from_text(field: Field, texts: pa.Array[Any], form: TextForm = PLAIN) -> pa.Array[Any]:
    """Return the values of a column of texts, nulls included; `CastError` for the first text that is not a value."""
    kind = arrow_type(field)
    if field.type is FieldType.STRING:
        return texts
    plain = _plain_texts(field, texts) if form.is_plain(field) else None
    if plain is not None:
        try:
            cast: Any = plain.cast(kind)
        except pa.ArrowInvalid:
            pass  # out of range, or no valid day: found below, with its position
        else:
            if plain.null_count == texts.null_count:
                return cast  # type: ignore[no-any-return]
            rest = pc.if_else(pc.is_valid(plain), pa.scalar(None, pa.string()), texts)
            return pc.coalesce(cast, _one_by_one(field, rest, form))
    return _one_by_one(field, texts, form)


def _one_by_one(field: Field, texts: pa.Array[Any], form: TextForm) -> pa.Array[Any]:
    different: Any = texts.dictionary_encode()
    values = []
    for number, text in enumerate(different.dictionary.to_pylist()):
        try:
            values.append(form.parse(field, text))
        except LiteralError as error:
            raise CastError(str(error), pc.index(different.indices, pa.scalar(number, pa.int32())).as_py()) from None
    return pa.array(values, arrow_type(field)).take(different.indices)


def _plain_texts(field: Field, texts: pa.Array[Any]) -> pa.Array[Any] | None:
    """Return the texts that Arrow's casts and `literals` read alike, with nulls for others; None for other types."""
    pattern = _plain_pattern(field)
    if not pattern:
        return None
    plain: Any = texts
    fits: Any = pc.match_substring_regex(plain, pattern)
    if field.type.integer_bits and not pc.all(fits, min_count=0).as_py():
        # As pandas writes a column of integers with a missing value.
        plain = pc.replace_substring_regex(plain, r"^(-?[0-9]+)\.0*$", r"\1")
        fits = pc.match_substring_regex(plain, pattern)
    if not pc.all(fits, min_count=0).as_py():
        plain = pc.if_else(fits, plain, pa.scalar(None, pa.string()))
    return plain  # type: ignore[no-any-return]


def _plain_pattern(field: Field) -> str:
    if field.type is FieldType.DECIMAL:
        scale, whole = field.scale or 0, (field.precision or 0) - (field.scale or 0)
        return rf"^-?[0-9]{{1,{whole}}}(\.[0-9]{{1,{scale}}})?$" if scale and whole else ""
    return _PLAIN.get(field.type, "")
