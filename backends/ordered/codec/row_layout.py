"""`RowLayout`: where the fields of a row's value are.

    layout version          2 bytes
    null bits               one per field, from the lowest; filled up so that this and the version take 4 bytes for up
                            to 16 fields, else 8 for each 64 bits
    fixed-width fields      at constant offsets; 0 where null
    ends of the others      4 bytes each, counted from the beginning of the value
    STRING, BYTES fields    UTF-8, or as they are

All numbers are little-endian. Constant offsets are what lets Arrow batches be cut out of many values at once.
"""

from __future__ import annotations

import struct

from structable.spi import Field, FieldType

__all__ = ["FORMATS", "RowLayout"]

FORMATS = {
    FieldType.BOOLEAN: "?",
    FieldType.BYTE: "b",
    FieldType.SHORT: "h",
    FieldType.INT: "i",
    FieldType.LONG: "q",
    FieldType.FLOAT: "f",
    FieldType.DOUBLE: "d",
    FieldType.DECIMAL: "16s",
    FieldType.DATE: "i",
    FieldType.TIMESTAMP: "q",
    FieldType.TIMESTAMP_NTZ: "q",
}
"""The `struct` formats of the fixed-width types."""

_VERSION_BITS = 16


class RowLayout:
    """The places of one version's fields.

    Parameters
    ----------
    version : int
        0 to 65535.
    fields : tuple of Field
        The fields outside the key, in stored order.

    Attributes
    ----------
    words : int
        How many words hold version and null bits; the first is `word_format`, all others are "Q".
    fixed, variable : list of int
        The positions in `fields` of the fields of fixed width, and of the others.
    offsets : dict of int to int
        Position of a fixed-width field to its offset in the value; of another field to the offset of its end.
    size : int
        The bytes before the first field of variable length.
    """

    def __init__(self, version: int, fields: tuple[Field, ...]) -> None:
        self.version = version
        self.fields = fields
        bits = _VERSION_BITS + len(fields)
        self.word_format = "I" if bits <= 32 else "Q"
        self.words = -(-bits // 64)
        self.fixed = [position for position, field in enumerate(fields) if field.type in FORMATS]
        self.variable = [position for position, field in enumerate(fields) if field.type not in FORMATS]
        self.offsets: dict[int, int] = {}
        self.size = struct.calcsize(f"<{self.word_format}") + 8 * (self.words - 1)
        for position in self.fixed:
            self.offsets[position] = self.size
            self.size += struct.calcsize(f"<{FORMATS[fields[position].type]}")
        for position in self.variable:
            self.offsets[position] = self.size
            self.size += 4

    def null_bit(self, position: int) -> tuple[int, int]:
        """Return the word that holds the null bit of a field, and the bit's mask."""
        word, bit = divmod(_VERSION_BITS + position, 64)
        return word, 1 << bit
