"""Inference of the type of a column of texts: the narrowest that keeps each value as written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from structable.spi import Field, FieldType
from structable.spi.text import LiteralError

from .text_form import TextForm

DATES = (FieldType.DATE, FieldType.TIMESTAMP_NTZ, FieldType.TIMESTAMP)
_ALL = (FieldType.LONG, FieldType.DOUBLE, FieldType.BOOLEAN, *DATES)
_ALSO = {FieldType.LONG: FieldType.DOUBLE, FieldType.DATE: FieldType.TIMESTAMP_NTZ}
"""Types whose texts are all texts of another type."""
_BOOLEANS = pa.array(["true", "false", None], pa.string())
_MOST_EXACT = 2**53
_FIRST = 50
_CASTS: dict[FieldType, pa.DataType] = {
    FieldType.DATE: pa.date32(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.TIMESTAMP_NTZ: pa.timestamp("us"),
}


class TextGuess:
    """The types that all texts seen so far can have.

    A text that conversion to a number would change is a string: `007`, and whole numbers beyond a long, or among
    fractions beyond the digits of a float. A column without a text is also a string.
    """

    def __init__(self, form: TextForm, kinds: tuple[FieldType, ...] = _ALL) -> None:
        self._form = form
        self._kinds = list(kinds)
        self._seen = False
        self._exact = True
        """Whether a float can hold all whole numbers up to the largest seen so far."""

    @property
    def is_settled(self) -> bool:
        """Whether the column must be STRING, whatever its further values."""
        return not self._kinds

    @property
    def field_type(self) -> FieldType:
        """The type."""
        if not self._seen or not self._kinds:
            return FieldType.STRING
        kind = self._kinds[0]
        zoned = kind is FieldType.TIMESTAMP_NTZ and self._form.time_zone is not None
        return FieldType.TIMESTAMP if zoned else kind

    def see(self, texts: pa.Array[Any]) -> None:
        """Take a part of the column into account."""
        if not self._kinds or texts.null_count == len(texts):
            return
        fitting: list[FieldType] = []
        for kind in self._kinds:
            if kind in fitting or (not fitting and self._fits(kind, texts)):
                fitting.append(kind)
                other = _ALSO.get(kind)
                if other in self._kinds and (other is not FieldType.DOUBLE or self._exact):
                    fitting.append(other)
        self._kinds = list(dict.fromkeys(fitting))
        self._seen = True

    def _fits(self, kind: FieldType, texts: pa.Array[Any]) -> bool:
        # A failing cast takes ten times as long as a successful one; later parts seldom fail.
        return (self._seen or self._all_fit(kind, texts.slice(0, _FIRST))) and self._all_fit(kind, texts)

    def _all_fit(self, kind: FieldType, texts: pa.Array[Any]) -> bool:
        form, field = self._form, Field("guess", kind)
        if kind in (FieldType.LONG, FieldType.DOUBLE):
            return self._is_number(kind, texts)
        if not form.is_plain(field):
            return self._is_read(field, texts)
        if kind is FieldType.BOOLEAN:
            # If all are spelled in one way, this check takes a fifth of the time of the regular expression.
            return bool(pc.all(pc.is_in(texts, _BOOLEANS)).as_py()) or _all(texts, "^(?i:true|false)$")
        return _is_time(texts, _CASTS[kind])

    def _is_read(self, field: Field, texts: pa.Array[Any]) -> bool:
        different: Any = texts.unique()
        try:
            for text in different.to_pylist():
                if text is not None:
                    self._form.parse(field, text)
        except LiteralError:
            return False
        return True

    def _is_number(self, kind: FieldType, texts: pa.Array[Any]) -> bool:
        plain: Any = texts
        if self._form.decimal == "," and kind is FieldType.DOUBLE:
            if pc.any(pc.match_substring(plain, ".")).as_py():
                return False
            plain = pc.replace_substring(plain, ",", ".")
        for begin in ("0", "-0"):
            if _has_code(plain, begin):
                return False
        try:
            numbers: Any = plain.cast(pa.int64() if kind is FieldType.LONG else pa.float64())
        except pa.ArrowInvalid:
            return False
        self._exact = _is_exact(numbers)
        if kind is FieldType.LONG:
            return True
        if not _all(plain.filter(pc.is_inf(numbers)), "^(?i:[+-]?inf(inity)?)$"):
            return False  # beyond the largest
        if not _all(plain.filter(pc.equal(numbers, pa.scalar(0.0))), r"^-?[0.]*([eE].*)?$"):
            return False  # nearer to 0 than the least
        return self._exact or _is_exact(numbers.filter(pc.match_substring_regex(plain, r"^[+-]?[0-9]{16,}(\.0*)?$")))


def _is_exact(numbers: pa.Array[Any]) -> bool:
    """Return whether a 64-bit float can hold all whole numbers up to the largest of some numbers."""
    found: Any = pc.min_max(numbers)
    return bool(max(abs(found[end].as_py() or 0) for end in ("min", "max")) < _MOST_EXACT)


def _has_code(texts: pa.Array[Any], zero: str) -> bool:
    """Return whether a text begins with a zero, and is neither zero nor a fraction: a code, not a number."""
    plain: Any = texts
    codes: Any = pc.starts_with(plain, zero)
    for mark in ".eE":
        if not pc.any(codes).as_py():
            return False
        codes = pc.and_not(codes, pc.starts_with(plain, zero + mark))
    return bool(pc.any(pc.and_not(codes, pc.equal(plain, pa.scalar(zero)))).as_py())


def _is_time(texts: pa.Array[Any], kind: pa.DataType) -> bool:
    """Return whether all texts are times of the years 1 to 9999; Arrow also reads the year 0."""
    try:
        pc.min_max(texts.cast(kind)).as_py()
    except (ValueError, OverflowError):  # errors of Arrow's cast, and of Python's times
        return False
    return True


def _all(texts: pa.Array[Any], pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())
