"""The messages between the owner of a database and its clients, and the encoding of their bodies.

The owner answers each request with one frame, in order; during a long request, `KEEP_ALIVE` frames may precede the
answer. `RELEASE` and `SCAN_END` are not answered. An owner that closes finishes the requests that it has begun, and
answers all others with `ENDING`: they were not begun.

A reference to a snapshot is `REFERENCE`: the client's number for it, flags, the client's schema epoch, and the number
of the newest commit when its transaction began. The owner takes the snapshot with the first request that refers to it,
which has the flag `BEGIN`; `PINNED` says that the transaction wrote before it read, so that its snapshot is pinned to
that commit.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from structable.backends.ordered.engine import SPACE_BYTES, BlindStep, Increment, Operand, ReadSet, WriteSet

VERSION = 9

# Requests
HELLO, GET, READ, READ_MANY, SCAN, SCAN_MORE, SCAN_END, RELEASE = range(1, 9)
COMMIT, LOOK_UP, DELEGATE, CHECKPOINT, GOODBYE, COMPACT = range(9, 15)
# Answers
VALUE, ABSENT, VALUES, PAIRS, LAST_PAIRS, DONE, EPOCH, ERROR, LOST, KEEP_ALIVE, ENDING = range(65, 76)

UNANSWERED = frozenset({RELEASE, SCAN_END})
"""Requests without an answer."""

BEGIN, READ_ONLY, SYNC, UNCHECKED, REVERSE, PINNED = 1, 2, 4, 8, 16, 32
"""Flags of references to snapshots, of commits and of scans."""

REFERENCE = struct.Struct("<IBQQ")
LIMITS = struct.Struct("<qq")
"""The limits of a scan, after the reference: pairs of all intervals together, and of each; negative for no limit. The
bounds of the intervals follow."""
COMMIT_HEAD = struct.Struct("<IBQQQ")
HELLO_BODY = struct.Struct("<H16sI")
LOOK_UP_BODY = struct.Struct("<16sIQ")

_LENGTH = struct.Struct("<I")


def pack_texts(texts: Sequence[bytes | None]) -> bytes:
    """Return a list of texts, some of them missing, in its encoded form."""
    lengths = array("i", [-1 if text is None else len(text) for text in texts])
    return b"".join((_LENGTH.pack(len(texts)), lengths.tobytes(), *(text for text in texts if text)))


def unpack_texts(body: bytes, offset: int) -> tuple[list[bytes | None], int]:
    """Return the list of texts at an offset of a body, and the offset after it."""
    count = int.from_bytes(body[offset : offset + 4], "little")
    start = offset + 4 + 4 * count
    lengths = array("i")
    lengths.frombytes(body[offset + 4 : start])
    texts: list[bytes | None] = []
    for length in lengths:
        if length < 0:
            texts.append(None)
        else:
            texts.append(body[start : start + length])
            start += length
    return texts, start


def unpack_present(body: bytes, offset: int) -> tuple[list[bytes], int]:
    """Return the list of texts at an offset of a body, where no text may be missing, and the offset after it."""
    texts, offset = unpack_texts(body, offset)
    present = [text for text in texts if text is not None]
    if len(present) != len(texts):
        raise ValueError("a text is missing")
    return present, offset


_ONE = struct.Struct("<Iii")


def pack_map(changes: Mapping[bytes, bytes | None]) -> bytes:
    """Return keys and values in their encoded form."""
    if len(changes) == 1:
        [(key, value)] = changes.items()
        return b"%b%b%b" % (_ONE.pack(1, len(key), -1 if value is None else len(value)), key, value or b"")
    return pack_pairs(list(changes), list(changes.values()))


def pack_pairs(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return keys and their values in encoded form."""
    lengths = array("i", map(len, keys))
    lengths.extend([-1 if value is None else len(value) for value in values])
    return b"".join((_LENGTH.pack(len(keys)), lengths.tobytes(), *keys, *filter(None, values)))


def unpack_map(body: bytes, offset: int) -> tuple[dict[bytes, bytes | None], int]:
    """Return the keys and values at an offset of a body, and the offset after them."""
    count = int.from_bytes(body[offset : offset + 4], "little")
    if count == 1:
        _, key_length, length = _ONE.unpack_from(body, offset)
        middle = offset + 12 + key_length
        if length < 0:
            return {body[offset + 12 : middle]: None}, middle
        return {body[offset + 12 : middle]: body[middle : middle + length]}, middle + length
    start = offset + 4 + 8 * count
    lengths = array("i")
    lengths.frombytes(body[offset + 4 : start])
    keys: list[bytes] = []
    for length in lengths[:count]:
        keys.append(body[start : start + length])
        start += length
    changes: dict[bytes, bytes | None] = {}
    for key, length in zip(keys, lengths[count:], strict=True):
        if length < 0:
            changes[key] = None
        else:
            changes[key] = body[start : start + length]
            start += length
    return changes, start


_WRITES, _DERIVED, _INCREMENTS, _READS, _SPACES, _CHANGED = 1, 2, 4, 8, 16, 32
_ROWS_OF_ONE_TABLE = 64
_OPERANDS = 128
_APPENDS = 256
_SIGNALS = 512
_FLAGS_BYTES = 2

_ONE_ROW = struct.Struct(f"<B{SPACE_BYTES}sIii")
_ROWS_OFFSET = 1 + SPACE_BYTES


def pack_changes(changes: WriteSet) -> bytes:
    """Return a write set in its encoded form."""
    if len(changes.spaces) == 1 and not (
        changes.derived
        or changes.increments
        or changes.changed_spaces
        or changes.reads
        or changes.appends
        or changes.signals
    ):
        # The most common write set has a special form, which is decoded in a third of the time.
        [space], writes = changes.spaces, changes.writes
        if len(writes) == 1:
            [(key, value)] = writes.items()
            head = _ONE_ROW.pack(_ROWS_OF_ONE_TABLE, space, 1, len(key), -1 if value is None else len(value))
            return b"%b%b%b" % (head, key, value or b"")
        return b"%c%b%b" % (_ROWS_OF_ONE_TABLE, space, pack_map(writes))
    flags = 0
    parts: list[bytes] = [b""]
    if changes.writes:
        flags |= _WRITES
        parts.append(pack_map(changes.writes))
    if changes.derived:
        flags |= _DERIVED
        parts.append(pack_map(changes.derived))
    if changes.increments:
        increments, operands = _by_kind(changes.increments)
        if increments:
            flags |= _INCREMENTS
            parts.append(_pack_increments(increments))
        if operands:
            flags |= _OPERANDS
            parts += _pack_operands(operands)
    if changes.reads is not None:
        flags |= _READS
        parts.append(pack_texts(list(changes.reads.keys)))
        parts.append(pack_texts([bound for interval in changes.reads.intervals for bound in interval]))
    if changes.spaces:
        flags |= _SPACES
        parts.append(pack_texts(list(changes.spaces)))
    if changes.changed_spaces:
        flags |= _CHANGED
        parts.append(pack_texts(list(changes.changed_spaces)))
    if changes.appends:
        flags |= _APPENDS
        # An entry is never empty: an empty entry stands for an empty list.
        pairs = ((space, one) for space, some in changes.appends.items() for one in some or (b"",))
        parts.append(pack_texts(list(chain.from_iterable(pairs))))
    if changes.signals:
        flags |= _SIGNALS
        parts.append(pack_texts([channel.encode() for channel in changes.signals]))
    parts[0] = flags.to_bytes(_FLAGS_BYTES, "little")
    return b"".join(parts)


def unpack_changes(body: bytes, offset: int) -> WriteSet:
    """Return the write set at an offset of a body; `ValueError`, `IndexError` or `struct.error` if there is none."""
    if body[offset] == _ROWS_OF_ONE_TABLE:
        writes, end = unpack_map(body, offset + _ROWS_OFFSET)
        _require_end(body, end)
        space = body[offset + 1 : offset + _ROWS_OFFSET]
        return WriteSet(writes, {}, {}, None, {space}, set(), {})  # the defaults take longer
    flags = int.from_bytes(body[offset : offset + _FLAGS_BYTES], "little")
    offset += _FLAGS_BYTES
    changes = WriteSet()
    if flags & _WRITES:
        changes.writes, offset = unpack_map(body, offset)
    if flags & _DERIVED:
        changes.derived, offset = unpack_map(body, offset)
    if flags & _INCREMENTS:
        offset = _unpack_increments(body, offset, changes.increments)
    if flags & _OPERANDS:
        offset = _unpack_operands(body, offset, changes.increments)
    if flags & _READS:
        keys, offset = unpack_present(body, offset)
        bounds, offset = unpack_present(body, offset)
        changes.reads = ReadSet(set(keys), list(zip(bounds[::2], bounds[1::2], strict=True)))
    if flags & _SPACES:
        spaces, offset = unpack_present(body, offset)
        changes.spaces = set(spaces)
    if flags & _CHANGED:
        spaces, offset = unpack_present(body, offset)
        changes.changed_spaces = set(spaces)
    if flags & _APPENDS:
        flat, offset = unpack_present(body, offset)
        for space, payload in zip(flat[::2], flat[1::2], strict=True):
            changes.appends.setdefault(space, []).extend([payload] if payload else [])
    if flags & _SIGNALS:
        channels, offset = unpack_present(body, offset)
        changes.signals = frozenset(channel.decode() for channel in channels)
    _require_end(body, offset)
    return changes


def _require_end(body: bytes, offset: int) -> None:
    if offset != len(body):
        raise ValueError(f"{len(body) - offset} bytes after a write set")


def _by_kind(
    steps: Mapping[bytes, tuple[BlindStep, ...]],
) -> tuple[list[tuple[bytes, Increment]], list[tuple[bytes, Operand]]]:
    increments: list[tuple[bytes, Increment]] = []
    operands: list[tuple[bytes, Operand]] = []
    for key, some in steps.items():
        for step in some:
            if isinstance(step, Operand):
                operands.append((key, step))
            else:
                increments.append((key, step))
    return increments, operands


def _pack_increments(increments: Iterable[tuple[bytes, Increment]]) -> bytes:
    flat: list[bytes] = []
    for key, step in increments:
        flat += (key, step.schema, step.field.encode(), b"%d" % step.amount)
    return pack_texts(flat)


def _unpack_increments(body: bytes, offset: int, steps: dict[bytes, tuple[BlindStep, ...]]) -> int:
    flat, offset = unpack_present(body, offset)
    found: dict[bytes, list[Increment]] = {}
    for start in range(0, len(flat), 4):
        key, schema, field, amount = flat[start : start + 4]
        found.setdefault(key, []).append(Increment(schema, field.decode(), int(amount)))
    steps.update((key, tuple(some)) for key, some in found.items())
    return offset


def _pack_operands(operands: Sequence[tuple[bytes, Operand]]) -> tuple[bytes, bytes]:
    """Return the schemas, and the keys and rows with the position of their schema."""
    positions: dict[bytes, int] = {}
    flat: list[bytes] = []
    for key, operand in operands:
        position = positions.setdefault(operand.schema, len(positions))
        flat += (key, operand.row, b"%d" % position)
    return pack_texts(list(positions)), pack_texts(flat)


def _unpack_operands(body: bytes, offset: int, steps: dict[bytes, tuple[BlindStep, ...]]) -> int:
    schemas, offset = unpack_present(body, offset)
    flat, offset = unpack_present(body, offset)
    found: dict[bytes, list[Operand]] = {}
    for start in range(0, len(flat), 3):
        key, row, position = flat[start : start + 3]
        found.setdefault(key, []).append(Operand(schemas[int(position)], row))
    steps.update((key, tuple(some)) for key, some in found.items())
    return offset
