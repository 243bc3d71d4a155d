"""The records of a feed, and their packing into entries.

A record is one change: its kind, and the raw key, without its space, and the raw row of one image. Rows name their
layout, so that they can be read after any change of the table. An entry is

    number of records               4 bytes
    their kinds                     1 byte each
    the sizes of their keys         4 bytes each
    the sizes of their rows         4 bytes each
    key and row of each record
    the number of its first record  8 bytes

Only entries of a feed of the producer `input` have the last part; the highest bit of the first part is then set. The
first entry of a commit, whose records begin at 0, and entries of older software lack it. All numbers are little-endian.
Adjacent sizes let Arrow decoding find many records at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import DataCorruptionError, RowKind

KINDS = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
"""The kinds of records, by number."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_INSERT, _BEFORE, _AFTER, _DELETE = range(len(KINDS))
HAS_NUMBER = 1 << 31
"""A flag in the count of an entry: the entry ends with the number of its first record."""
_FIRST = struct.Struct("<Q")
NUMBER_BYTES = _FIRST.size
"""The size of the first record's number, in bytes."""
_COUNT = struct.Struct("<I")
_HEAD_OF_ONE = struct.Struct("<IBII")
_HEAD_OF_TWO = struct.Struct("<IBBIIII")
_RECORD_BYTES = 9
"""Bytes of a record before its keys and rows."""
PACKED_BYTES = 1 << 20
"""The approximate size of an entry with several records."""
_NUMBERED_BYTES = 32 << 10
"""The size for a feed of the producer `input`: a reader of some records of an entry reads the whole entry."""


EncodedChange: TypeAlias = tuple[RowKind, bytes, bytes]
"""One change of a row: its kind, raw key and raw row."""


def pack_records(records: Sequence[EncodedChange]) -> bytes:
    """Return records as one entry."""
    if len(records) == 1:
        [(kind, raw_key, raw)] = records
        return _pack_one(NUMBERS[kind], raw_key[SPACE_BYTES:], raw)
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


def _pack_one(kind: int, key: bytes, raw: bytes) -> bytes:
    return b"%b%b%b" % (_HEAD_OF_ONE.pack(1, kind, len(key), len(raw)), key, raw)


@lru_cache(maxsize=64)
def _head(count: int) -> struct.Struct:
    """Return the format of an entry's head, before the keys and rows of `count` records."""
    return struct.Struct(f"<I{count}B{2 * count}I")


def pack_change(raw_key: bytes, before: bytes | None, after: bytes | None) -> bytes:
    """Return the images of a change of one row as `pack_records` does; at most one of them is None."""
    key = raw_key[SPACE_BYTES:]
    size = len(key)
    if before is None or after is None:
        kind, only = (_INSERT, after) if before is None else (_DELETE, before)
        assert only is not None, "a row is there before a change or after it"
        return _pack_one(kind, key, only)
    head = _HEAD_OF_TWO.pack(2, _BEFORE, _AFTER, size, size, len(before), len(after))
    return b"%b%b%b%b%b" % (head, key, before, key, after)


def pack_whole(records: Sequence[EncodedChange], most: int = PACKED_BYTES) -> list[bytes]:
    """Return records as entries of about `most` bytes, or of one larger record."""
    if _RECORD_BYTES * len(records) + sum([len(raw_key) + len(raw) for _, raw_key, raw in records]) <= most:
        return [pack_records(records)] if records else []
    packed: list[bytes] = []
    some: list[EncodedChange] = []
    size = 0
    for record in records:
        grown = size + _RECORD_BYTES + len(record[1]) + len(record[2])
        if some and grown > most:
            packed.append(pack_records(some))
            some, grown = [], grown - size
        some.append(record)
        size = grown
    packed.append(pack_records(some))
    return packed


def pack_numbered(records: Sequence[EncodedChange], first: int | None = 0) -> list[bytes]:
    """Return records of a feed of the producer `input` as entries.

    `first` is the number of the first record in its commit; None if it is unknown because older software began the
    commit.
    """
    packed = pack_whole(records, _NUMBERED_BYTES)
    if first is None or (first == 0 and len(packed) == 1):
        return packed
    numbered: list[bytes] = []
    for entry in packed:
        count = count_records(entry)
        numbered.append(_with_number(entry, count, first) if first else entry)
        first += count
    return numbered


def _with_number(entry: bytes, count: int, first: int) -> bytes:
    return b"%b%b%b" % (_COUNT.pack(count | HAS_NUMBER), entry[_COUNT.size :], _FIRST.pack(first))


def count_records(entry: bytes) -> int:
    """Return the number of records in an entry."""
    number: int = _COUNT.unpack_from(entry)[0]
    return number & ~HAS_NUMBER


def first_number(entry: bytes) -> int | None:
    """Return the number of the first record of an entry in its commit, if the entry has it."""
    if not _COUNT.unpack_from(entry)[0] & HAS_NUMBER:
        return None
    number: int = _FIRST.unpack_from(entry, len(entry) - _FIRST.size)[0]
    return number


def begins_with_postimage(entry: bytes) -> bool:
    """Return whether the first record of an entry has a row after its change; its preimage is in the entry before."""
    return count_records(entry) > 0 and entry[_COUNT.size] == NUMBERS[RowKind.UPDATE_AFTER]


def unpack_records(space: bytes, entry: bytes, skipped: int = 0) -> list[EncodedChange]:
    """Return the records of an entry after the first `skipped`, with keys in the space of the table."""
    records: list[EncodedChange] = []
    try:
        word: int = _COUNT.unpack_from(entry)[0]
        count = word & ~HAS_NUMBER
        head = _head(count)
        _, *numbers = head.unpack_from(entry)
        kinds, key_sizes, row_sizes = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        position = head.size + sum(key_sizes[:skipped]) + sum(row_sizes[:skipped])
        for kind, key_size, row_size in zip(kinds[skipped:], key_sizes[skipped:], row_sizes[skipped:], strict=True):
            row_at = position + key_size
            end = row_at + row_size
            records.append((KINDS[kind], space + entry[position:row_at], entry[row_at:end]))
            position = end
        size = len(entry) - (NUMBER_BYTES if word & HAS_NUMBER else 0)
        if position != size:
            raise ValueError(f"it has {size} bytes instead of {position}")
    except (struct.error, IndexError, ValueError) as error:
        raise DataCorruptionError(f"an entry of a change feed cannot be decoded: {error}") from error
    return records
