"""Python, `struct`, key and NumPy forms of each field type, in one table for all stores."""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass
from decimal import Decimal

from structable.spi import FieldType
from structable.spi.authors import own_class


@dataclass(frozen=True, slots=True)
class TypeForm:
    """One line of the table."""

    python: type
    """The exact class of stored values."""
    number: str = ""
    """The `struct` format of the number that represents a value; empty for STRING and BYTES.

    Dates and times are days or microseconds since 1970; a decimal is its unscaled value in 16 bytes.
    """
    key: str = ""
    """The unsigned format of the same number, used in keys; empty if the type is of variable width or not keyable."""
    numpy: str = ""  # dtype of the number, without byte order
    unit: str = ""  # NumPy's unit of the number, for dates and times
    least: int = 0  # the contract's bounds (the years 1 to 9999) where the number's own range is wider
    greatest: int = 0

    @property
    def width(self) -> int:
        """The width of the number in bytes; 0 for types without one."""
        return struct.calcsize(f"<{self.number}")


_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH
_DAY = 86_400_000_000
_DAYS = ("D", _FIRST_DAY, _LAST_DAY)
_MICROSECONDS = ("us", _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)

FIELD_TYPES = {
    FieldType.BOOLEAN: TypeForm(bool, "?", "?", "u1"),
    FieldType.BYTE: TypeForm(int, "b", "B", "i1"),
    FieldType.SHORT: TypeForm(int, "h", "H", "i2"),
    FieldType.INT: TypeForm(int, "i", "I", "i4"),
    FieldType.LONG: TypeForm(int, "q", "Q", "i8"),
    FieldType.FLOAT: TypeForm(float, "f", "", "f4"),
    FieldType.DOUBLE: TypeForm(float, "d", "", "f8"),
    FieldType.DECIMAL: TypeForm(Decimal, "16s", "", "V16"),
    FieldType.STRING: TypeForm(str),
    FieldType.BYTES: TypeForm(bytes),
    FieldType.DATE: TypeForm(own_class(dt.date), "i", "I", "i4", *_DAYS),
    FieldType.TIMESTAMP: TypeForm(own_class(dt.datetime), "q", "Q", "i8", *_MICROSECONDS),
    FieldType.TIMESTAMP_NTZ: TypeForm(own_class(dt.datetime), "q", "Q", "i8", *_MICROSECONDS),
}
