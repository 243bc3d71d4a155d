"""`RowLayout`: the position of each field in a row's value.

    layout version          2 bytes
    null bits               one per field, from the lowest; padded so that this and the version take 4 bytes for up
    to 16 fields, else 8 for each 64 bits
    fixed-width fields      at constant offsets; 0 where null
    ends of other fields    4 bytes each, counted from the beginning of the value
    STRING, BYTES fields    UTF-8, or the bytes themselves

All numbers are little-endian. With constant offsets, Arrow decoding cuts a field out of many values at once.
"""

from __future__ import annotations

import struct
from collections.abc import Container

from structable.backends.base.field_types import FIELD_TYPES
from structable.spi import Field

from .source import Slot

_VERSION_BITS = 16


class RowLayout:
    """The field positions of one layout version, 0 to 65535; `fields` are all outside the key, in stored order."""

    def __init__(self, version: int, fields: tuple[Field, ...]) -> None:
        self.version = version
        self.fields = fields
        bits = _VERSION_BITS + len(fields)
        self.word_format = "I" if bits <= 32 else "Q"  # of the first word; all others are "Q"
        self.words = -(-bits // 64)  # words of version and null bits
        self.fixed = [position for position, field in enumerate(fields) if FIELD_TYPES[field.type].number]
        self.variable = [position for position, field in enumerate(fields) if not FIELD_TYPES[field.type].number]
        # By position: the offset of a fixed-width field, or of the end of a variable-length field.
        self.offsets: dict[int, int] = {}
        self.size = struct.calcsize(f"<{self.word_format}") + 8 * (self.words - 1)  # before variable-length fields
        for position in self.fixed:
            self.offsets[position] = self.size
            self.size += FIELD_TYPES[fields[position].type].width
        for position in self.variable:
            self.offsets[position] = self.size
            self.size += 4

    def null_bit(self, position: int) -> tuple[int, int]:
        """Return the word that holds the null bit of a field, and the bit's mask."""
        word, bit = divmod(_VERSION_BITS + position, 64)
        return word, 1 << bit

    def end_of(self, position: int) -> int:
        """Return the offset behind a fixed-width field."""
        return self.offsets[position] + FIELD_TYPES[self.fields[position].type].width

    def exact_parts(self) -> list[slice]:
        """Return the parts of a raw value without floats: their bytes differ if and only if values differ."""
        floats = [position for position in self.fixed if self.fields[position].type.floating]
        ends = [0, *map(self.end_of, floats)]
        begins = [*(self.offsets[position] for position in floats), None]
        return [slice(*part) for part in zip(ends, begins, strict=True) if part[0] != part[1]]

    def words_slots(self) -> list[Slot]:
        """Return the slots of version and null bits: the variables w0, w1 ..."""
        return [(self.word_format if word == 0 else "Q", f"w{word}") for word in range(self.words)]

    def fixed_slots(self, wanted: Container[int]) -> list[Slot]:
        """Return the slots of the fixed-width fields: the variables v0, v1 ... of the requested positions."""
        return [
            (FIELD_TYPES[self.fields[position].type].number, f"v{position}" if position in wanted else None)
            for position in self.fixed
        ]

    def end_slots(self, wanted: Container[int]) -> list[Slot]:
        """Return the slots of the ends of variable-length fields: the variables e0, e1 ... of requested positions."""
        return [("I", f"e{position}" if position in wanted else None) for position in self.variable]

    def edges(self, wanted: Container[int]) -> tuple[dict[int, str], set[int]]:
        """Return the source of the start of each requested variable-length field, and the fields whose ends it needs.

        The last end is always included, because it must equal the end of the value.
        """
        begins: dict[int, str] = {}
        ends: set[int] = set()
        begin = str(self.size)
        for before, position in zip([None, *self.variable], self.variable, strict=False):
            if position in wanted:
                begins[position] = begin
                ends |= {position, self.variable[-1]} | (set() if before is None else {before})
            begin = f"e{position}"
        return begins, ends
