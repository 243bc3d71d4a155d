"""Options for the text of values in a file, where it differs from the text of `structable.spi.text`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from structable.spi import Field, FieldType, Value
from structable.spi.text import LiteralError, checked_value, day_of, parse_time, parse_value, shown_text

_TIMES = (FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form of a file's texts.

    Parameters
    ----------
    nulls : tuple of str
        The texts of null, in addition to the empty cell.
    date_format, timestamp_format : str
        Formats of Python's strptime; empty for ISO 8601.
    time_zone : tzinfo or None
        The zone of times without one, in timestamp fields.
    decimal : str
        The decimal mark, `.` or `,`.
    true, false : tuple of str
        The texts of true and false; empty for the words themselves.
    """

    nulls: tuple[str, ...] = ()
    date_format: str = ""
    timestamp_format: str = ""
    time_zone: dt.tzinfo | None = None
    decimal: str = "."
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def is_plain(self, field: Field) -> bool:
        """Return whether the texts of a field are read as `literals` reads them."""
        kind = field.type
        if kind is FieldType.BOOLEAN:
            return not (self.true or self.false)
        if kind is FieldType.DATE:
            return not self.date_format
        if kind in _TIMES:
            return not self.timestamp_format and (self.time_zone is None or kind is FieldType.TIMESTAMP_NTZ)
        return self.decimal == "." or kind in (FieldType.STRING, FieldType.BYTES)

    def parse(self, field: Field, text: str) -> Value:
        """Return the value of a text, never null, or raise `LiteralError`."""
        if self.is_plain(field):
            return parse_value(field, text)
        if field.type is FieldType.BOOLEAN:
            return self._truth(text)
        if field.type is FieldType.DATE:
            return checked_value(field, day_of(text, _by_format(text, self.date_format, "date")))
        if field.type in _TIMES:
            return checked_value(field, self._moment(field, text))
        if "." in text:
            raise LiteralError(
                f"{shown_text(text)} has a point; the decimal mark is a comma, and nothing groups digits"
            )
        return parse_value(field, text.replace(",", "."))

    def _truth(self, text: str) -> bool:
        if text in self.true:
            return True
        if text in self.false:
            return False
        raise LiteralError(f"{shown_text(text)} is not one of {', '.join((*self.true, *self.false))}")

    def _moment(self, field: Field, text: str) -> dt.datetime:
        if self.timestamp_format:
            moment = _by_format(text, self.timestamp_format, "timestamp")
        else:
            moment = parse_time(text, "2024-05-31T08:30:00")
        if field.type is FieldType.TIMESTAMP and moment.tzinfo is None:
            if self.time_zone is None:
                raise LiteralError(f"{shown_text(text)} has no time zone; name it with --time-zone")
            return _in_zone(text, moment, self.time_zone)
        return moment


PLAIN = TextForm()
"""The form in which this command writes values."""


def _by_format(text: str, form: str, kind: str) -> dt.datetime:
    try:
        return dt.datetime.strptime(text, form)
    except ValueError:
        raise LiteralError(f"{shown_text(text)} is not a {kind} of the format {form!r}") from None


def _in_zone(text: str, moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    there = first.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None, fold=0) == moment
    fault = "comes twice" if there else "does not come"
    raise LiteralError(f"{shown_text(text)} {fault} in {zone}, where clocks change; write it with its offset")
