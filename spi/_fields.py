"""Field types and fields."""

from __future__ import annotations

import builtins
import enum
import re
from dataclasses import dataclass
from typing import Final

from ._error_texts import shown
from ._errors import InvalidSpecificationError


class FieldType(enum.Enum):
    """The types of fields, the same in every store.

    The value is the type's name in catalogs, specification files and messages.
    """

    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"

    # By identity, in C: each check of a value looks its type up.
    __hash__ = object.__hash__

    @property
    def keyable(self) -> bool:
        """Whether the type may be part of a primary key or be indexed."""
        return self not in _NOT_KEYABLE

    @property
    def integer_bits(self) -> int:
        """Width in bits of an integer type; 0 for all others."""
        return _INTEGER_BITS.get(self, 0)

    @property
    def floating(self) -> bool:
        """Whether values are floats, among them infinities and NaN; their sum depends on their order."""
        return self in _FLOATS

    @property
    def width(self) -> int:
        """Bytes that a value counts in size limits; 0 for STRING and BYTES, which count their own length."""
        return _WIDTHS.get(self, 0)


_FLOATS = frozenset({FieldType.FLOAT, FieldType.DOUBLE})
_NOT_KEYABLE = _FLOATS | {FieldType.DECIMAL}
_INTEGER_BITS = {FieldType.BYTE: 8, FieldType.SHORT: 16, FieldType.INT: 32, FieldType.LONG: 64}
_WIDTHS = {
    FieldType.BOOLEAN: 1,
    FieldType.BYTE: 1,
    FieldType.SHORT: 2,
    FieldType.INT: 4,
    FieldType.LONG: 8,
    FieldType.FLOAT: 4,
    FieldType.DOUBLE: 8,
    FieldType.DECIMAL: 16,
    FieldType.DATE: 4,
    FieldType.TIMESTAMP: 8,
    FieldType.TIMESTAMP_NTZ: 8,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column; equal by content. A `TableSpecification` checks it.

    Parameters
    ----------
    name : str
        `[A-Za-z][A-Za-z0-9_]{0,47}`.
    type : FieldType
        Its type.
    precision, scale : int or None
        For DECIMAL only: 1 <= precision <= 38 digits; `scale` of them (0 <= scale <= precision) follow the point.
    """

    name: str
    type: FieldType
    precision: builtins.int | None = None
    scale: builtins.int | None = None

    @classmethod
    def boolean(cls, name: str) -> Field:
        """`bool`."""
        return cls(name, FieldType.BOOLEAN)

    @classmethod
    def byte(cls, name: str) -> Field:
        """`int` of 8 bits, signed."""
        return cls(name, FieldType.BYTE)

    @classmethod
    def short(cls, name: str) -> Field:
        """`int` of 16 bits, signed."""
        return cls(name, FieldType.SHORT)

    @classmethod
    def int(cls, name: str) -> Field:
        """`int` of 32 bits, signed."""
        return cls(name, FieldType.INT)

    @classmethod
    def long(cls, name: str) -> Field:
        """`int` of 64 bits, signed."""
        return cls(name, FieldType.LONG)

    @classmethod
    def float(cls, name: str) -> Field:
        """`float`, rounded to 32 bits when written."""
        return cls(name, FieldType.FLOAT)

    @classmethod
    def double(cls, name: str) -> Field:
        """`float` of 64 bits."""
        return cls(name, FieldType.DOUBLE)

    @classmethod
    def decimal(cls, name: str, precision: builtins.int, scale: builtins.int) -> Field:
        """`decimal.Decimal` or `int` that fits `precision` digits with `scale` of them after the point, exactly."""
        return cls(name, FieldType.DECIMAL, precision, scale)

    @classmethod
    def string(cls, name: str) -> Field:
        """`str` without NUL and lone surrogates; ordered by code point."""
        return cls(name, FieldType.STRING)

    @classmethod
    def bytes(cls, name: str) -> Field:
        """`bytes`; ordered bytewise."""
        return cls(name, FieldType.BYTES)

    @classmethod
    def date(cls, name: str) -> Field:
        """`datetime.date`."""
        return cls(name, FieldType.DATE)

    @classmethod
    def timestamp(cls, name: str) -> Field:
        """Aware `datetime.datetime`, kept in UTC with microseconds."""
        return cls(name, FieldType.TIMESTAMP)

    @classmethod
    def timestamp_ntz(cls, name: str) -> Field:
        """Naive `datetime.datetime` with microseconds."""
        return cls(name, FieldType.TIMESTAMP_NTZ)

    def __str__(self) -> str:
        """Return e.g. `cost decimal(10,2)`."""
        return f"{self.name} {self.type_text}"

    @property
    def type_text(self) -> str:
        """The type as specification files write it: `long`, `decimal(10,2)`."""
        if self.type is FieldType.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return str(self.type.value)


_TYPES: Final = {one.value: one for one in FieldType if one is not FieldType.DECIMAL}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)\Z")
_WIDENINGS = (
    (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG),
    (FieldType.FLOAT, FieldType.DOUBLE),
)


def field_of_type(name: str, kind: FieldType | str) -> Field:
    """Return a field of a type, or of a text such as `Field.type_text`, which a decimal needs.

    Raises
    ------
    InvalidSpecificationError
        If the text is not a type.
    """
    if isinstance(kind, FieldType) and kind is not FieldType.DECIMAL:
        return Field(name, kind)
    if isinstance(kind, str):
        text = kind.strip().lower()
        if match := _DECIMAL.match(text):
            return Field.decimal(name, int(match[1]), int(match[2]))
        if text in _TYPES:
            return Field(name, _TYPES[text])
    raise InvalidSpecificationError(
        f"field {shown(name)}: type {shown(kind)} is unknown; allowed: {', '.join(_TYPES)}, decimal(p,s)"
    )


def widens(narrow: Field, wide: Field) -> bool:
    """Return whether both are number types, and the second holds every value of the first."""
    return any(
        narrow.type in family and wide.type in family and family.index(narrow.type) < family.index(wide.type)
        for family in _WIDENINGS
    )
