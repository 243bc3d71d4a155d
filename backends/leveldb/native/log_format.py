"""LevelDB's log format, in which its logs and manifests are written: records, in fragments, in blocks.

The format is described in LevelDB's `doc/log_format.md`, the content of manifests in its `version_edit.cc`, and that of
logs, which are write batches, in its `write_batch.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["ManifestState", "begins_intact_record", "first_tear", "manifest_state", "operations", "records", "sequence"]

_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_KINDS = (_FULL, _FIRST, _MIDDLE, _LAST)
_BATCH_HEADER = 12
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_POINTER = range(1, 6)
_DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG = 6, 7, 9


def records(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and data of each complete record, up to the first place where none is; checksums are ignored."""
    place, start = 0, 0
    parts: list[bytes] = []
    while True:
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        if place + _HEADER > len(content):
            return
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        kind = content[place + 6]
        end = place + _HEADER + length
        if kind not in _KINDS or end > len(content) or _HEADER + length > left:
            return
        if (kind in (_FULL, _FIRST)) == bool(parts):
            return
        if not parts:
            start = place
        parts.append(content[place + _HEADER : end])
        if kind in (_FULL, _LAST):
            yield start, end, b"".join(parts)
            parts = []
        place = end


def first_tear(content: bytes, *, verify: bool) -> int:
    """Return where the first record begins that is not complete, or, if asked, does not verify; the length if none."""
    kept = 0
    for start, end, _ in records(content):
        if verify and not _verifies(content, start, end):
            return start
        kept = end
    return kept if any(content[kept:]) else len(content)


def begins_intact_record(content: bytes, tear: int) -> bool:
    """Tell whether a complete record that verifies begins after a tear."""
    # Each block begins with a fragment, whatever is wrong in the one before. In the block of the tear the fragments are
    # followed as far as their headers can be believed.
    block = tear - tear % _BLOCK
    for begin in (tear, *range(block + _BLOCK, len(content), _BLOCK)):
        place, limit = begin, min(begin - begin % _BLOCK + _BLOCK, len(content))
        while place + _HEADER <= limit and content[place + 6] in _KINDS:
            if place > tear and content[place + 6] in (_FULL, _FIRST):
                end = _end_of_record(content, place)
                if end is not None and _verifies(content, place, end):
                    return True
            place += _HEADER + int.from_bytes(content[place + 4 : place + 6], "little")
    return False


def _end_of_record(content: bytes, place: int) -> int | None:
    """Return where the record that begins with the fragment at a place ends; None if it is not complete.

    No two records share a fragment, so that asking this for every one of a log takes time in proportion to its size.
    """
    begun = False
    while place + _HEADER <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        kind = content[place + 6]
        end = place + _HEADER + int.from_bytes(content[place + 4 : place + 6], "little")
        if kind not in _KINDS or end > len(content) or end - place > left or (kind in (_FULL, _FIRST)) == begun:
            return None
        if kind in (_FULL, _LAST):
            return end
        begun, place = True, end
    return None


def _verifies(content: bytes, start: int, end: int) -> bool:
    place = start
    while place < end:
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        following = place + _HEADER + length
        crc = _crc32c(content[place + 6 : following])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        if int.from_bytes(content[place : place + 4], "little") != masked:
            return False
        place = following
    return True


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _crc32c(content: bytes) -> int:
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in content:
        crc = table[crc & 255 ^ byte] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def sequence(record: bytes) -> tuple[int, int]:
    """Return the number of a log record's first operation, and the number that the next record begins with."""
    first = int.from_bytes(record[:8], "little")
    return first, first + int.from_bytes(record[8:_BATCH_HEADER], "little")


def operations(record: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of a log record; None is a deletion."""
    found: list[tuple[bytes, bytes | None]] = []
    place = _BATCH_HEADER
    while place < len(record):
        put = record[place] == 1
        key, place = _text(record, place + 1)
        value: bytes | None = None
        if put:
            value, place = _text(record, place)
        found.append((key, value))
    return found


@dataclass(slots=True)
class ManifestState:
    """The newest state that a manifest describes.

    Parameters
    ----------
    tables : set of int
        The numbers of the table files.
    log : int
        The number of the oldest log whose rows are not in them.
    sequence : int
        The number of the newest operation when it was written; there may be newer ones in the logs.
    """

    tables: set[int] = field(default_factory=set)
    log: int = 0
    sequence: int = 0


def manifest_state(manifest: bytes) -> ManifestState:
    """Read a manifest.

    Raises
    ------
    ValueError, IndexError
        If it cannot be read.
    """
    state = ManifestState()
    for _, _, edit in records(manifest):
        place = 0
        while place < len(edit):
            tag, place = _number(edit, place)
            if tag == _COMPARATOR:
                _, place = _text(edit, place)
            elif tag in (_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG):
                number, place = _number(edit, place)
                if tag == _LOG_NUMBER:
                    state.log = number
                elif tag == _LAST_SEQUENCE:
                    state.sequence = number
            elif tag == _COMPACT_POINTER:
                _, place = _number(edit, place)
                _, place = _text(edit, place)
            elif tag == _DELETED_FILE:
                _, place = _number(edit, place)
                file, place = _number(edit, place)
                state.tables.discard(file)
            elif tag == _NEW_FILE:
                _, place = _number(edit, place)
                file, place = _number(edit, place)
                _, place = _number(edit, place)
                _, place = _text(edit, place)
                _, place = _text(edit, place)
                state.tables.add(file)
            else:
                raise ValueError(f"unknown tag {tag}")
    return state


def _text(record: bytes, place: int) -> tuple[bytes, int]:
    length, place = _number(record, place)
    return record[place : place + length], place + length


def _number(record: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = record[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
