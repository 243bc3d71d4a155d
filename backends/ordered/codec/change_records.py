"""The records of a feed, and their packing into entries.

A record is one change: its kind, and the raw key, without its space, and the raw row of one image. Rows name their
layout, so that they can be read whatever the table became since. An entry is

    number of records               4 bytes
    their kinds                     1 byte each
    the sizes of their keys         4 bytes each
    the sizes of their rows         4 bytes each
    key and row of each record

All numbers are little-endian. Sizes that stand together let Arrow decoding find many records at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import DataCorruptionError, RowKind

__all__ = [
    "KINDS",
    "NUMBERS",
    "PACKED_BYTES",
    "NewRecord",
    "Record",
    "begins_with_postimage",
    "count_records",
    "pack_change",
    "pack_records",
    "pack_whole",
    "unpack_records",
]

KINDS = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
"""The kinds of records, by number."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_INSERT, _BEFORE, _AFTER, _DELETE = range(len(KINDS))
_COUNT = struct.Struct("<I")
_HEAD_OF_ONE = struct.Struct("<IBII")
_HEAD_OF_TWO = struct.Struct("<IBBIIII")
_RECORD_BYTES = 9
"""What a record takes before the keys and rows."""
PACKED_BYTES = 1 << 20
"""The size of an entry with several records, about."""


class Record(NamedTuple):
    """One change of a row."""

    kind: RowKind
    raw_key: bytes
    raw: bytes


NewRecord: TypeAlias = tuple[RowKind, bytes, bytes]
"""A record to be packed; a plain tuple takes less time to make."""


def pack_records(records: Sequence[NewRecord]) -> bytes:
    """Return records as one entry."""
    numbers: list[int] = []
    key_sizes: list[int] = []
    row_sizes: list[int] = []
    parts = [b""]
    for kind, raw_key, raw in records:
        numbers.append(NUMBERS[kind])
        key_sizes.append(len(raw_key) - SPACE_BYTES)
        row_sizes.append(len(raw))
        parts += (raw_key[SPACE_BYTES:], raw)
    parts[0] = _head(len(numbers)).pack(len(numbers), *numbers, *key_sizes, *row_sizes)
    return b"".join(parts)


@lru_cache(maxsize=64)
def _head(count: int) -> struct.Struct:
    """Return what stands before the keys and rows of that many records."""
    return struct.Struct(f"<I{count}B{2 * count}I")


def pack_change(raw_key: bytes, before: bytes | None, after: bytes | None) -> bytes:
    """Return the images of a change of one row as `pack_records` does; at most one of them is None."""
    key = raw_key[SPACE_BYTES:]
    size = len(key)
    if before is None or after is None:
        kind, only = (_INSERT, after) if before is None else (_DELETE, before)
        assert only is not None, "a row is there before a change or after it"
        return b"%b%b%b" % (_HEAD_OF_ONE.pack(1, kind, size, len(only)), key, only)
    head = _HEAD_OF_TWO.pack(2, _BEFORE, _AFTER, size, size, len(before), len(after))
    return b"%b%b%b%b%b" % (head, key, before, key, after)


def pack_whole(records: Sequence[NewRecord]) -> list[bytes]:
    """Return records as entries of about a mebibyte, or of one larger record."""
    if _RECORD_BYTES * len(records) + sum([len(raw_key) + len(raw) for _, raw_key, raw in records]) <= PACKED_BYTES:
        return [pack_records(records)] if records else []
    packed: list[bytes] = []
    some: list[NewRecord] = []
    size = 0
    for record in records:
        grown = size + _RECORD_BYTES + len(record[1]) + len(record[2])
        if some and grown > PACKED_BYTES:
            packed.append(pack_records(some))
            some, grown = [], grown - size
        some.append(record)
        size = grown
    packed.append(pack_records(some))
    return packed


def count_records(entry: bytes) -> int:
    """Return the number of records in an entry."""
    number: int = _COUNT.unpack_from(entry)[0]
    return number


def begins_with_postimage(entry: bytes) -> bool:
    """Tell whether the first record of an entry has a row after its change; its preimage is in the entry before."""
    return count_records(entry) > 0 and entry[_COUNT.size] == NUMBERS[RowKind.UPDATE_AFTER]


def unpack_records(space: bytes, entry: bytes) -> Iterator[Record]:
    """Yield the records of an entry, their keys in the space of the table."""
    try:
        count = count_records(entry)
        head = _head(count)
        numbers = head.unpack_from(entry)[1:]
        position = head.size
        sizes = zip(numbers[:count], numbers[count : 2 * count], numbers[2 * count :], strict=True)
        for kind, key_size, row_size in sizes:
            row_at = position + key_size
            end = row_at + row_size
            yield Record(KINDS[kind], space + entry[position:row_at], entry[row_at:end])
            position = end
        if position != len(entry):
            raise ValueError(f"it has {len(entry)} bytes instead of {position}")
    except (struct.error, IndexError, ValueError) as error:
        raise DataCorruptionError(f"an entry of a change feed cannot be decoded: {error}") from error
