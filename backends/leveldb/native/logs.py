"""LevelDB's logs: the format of their records, making them durable, and cutting off a record whose write failed.

Manifests are written in the same format: records, in fragments, in blocks. LevelDB's `doc/log_format.md` describes it.
A record of a log is a write batch, see LevelDB's `write_batch.cc`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .disk import cut, sync_folder

_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_KINDS = (_FULL, _FIRST, _MIDDLE, _LAST)
_BATCH_HEADER = 12


def records(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and data of each record up to the first that is incomplete; checksums are ignored."""
    offset, start = 0, 0
    parts: list[bytes] = []
    while True:
        left = _BLOCK - offset % _BLOCK
        if left < _HEADER:
            offset += left
            continue
        if offset + _HEADER > len(content):
            return
        length = int.from_bytes(content[offset + 4 : offset + 6], "little")
        kind = content[offset + 6]
        end = offset + _HEADER + length
        if kind not in _KINDS or end > len(content) or _HEADER + length > left:
            return
        if (kind in (_FULL, _FIRST)) == bool(parts):
            return
        if not parts:
            start = offset
        parts.append(content[offset + _HEADER : end])
        if kind in (_FULL, _LAST):
            yield start, end, b"".join(parts)
            parts = []
        offset = end


def first_tear(content: bytes) -> int:
    """Return the offset of the first record that is incomplete, or fails its checksum; the length if there is none."""
    kept = 0
    for start, end, _ in records(content):
        if not _verifies(content, start, end):
            return start
        kept = end
    return kept if any(content[kept:]) else len(content)


def begins_intact_record(content: bytes, tear: int) -> bool:
    """Return whether a complete record with a valid checksum begins after a tear."""
    # Each block begins with a fragment, whatever is wrong in the one before. In the block of the tear the fragments are
    # followed as far as their headers can be believed.
    block = tear - tear % _BLOCK
    for begin in (tear, *range(block + _BLOCK, len(content), _BLOCK)):
        offset, limit = begin, min(begin - begin % _BLOCK + _BLOCK, len(content))
        while offset + _HEADER <= limit and content[offset + 6] in _KINDS:
            if offset > tear and content[offset + 6] in (_FULL, _FIRST):
                end = _end_of_record(content, offset)
                if end is not None and _verifies(content, offset, end):
                    return True
            offset += _HEADER + int.from_bytes(content[offset + 4 : offset + 6], "little")
    return False


def _end_of_record(content: bytes, offset: int) -> int | None:
    """Return the end of the record whose first fragment is at an offset; None if it is incomplete.

    No two records share a fragment, so calling this for every fragment of a log takes time linear in its size.
    """
    begun = False
    while offset + _HEADER <= len(content):
        left = _BLOCK - offset % _BLOCK
        if left < _HEADER:
            offset += left
            continue
        kind = content[offset + 6]
        end = offset + _HEADER + int.from_bytes(content[offset + 4 : offset + 6], "little")
        if kind not in _KINDS or end > len(content) or end - offset > left or (kind in (_FULL, _FIRST)) == begun:
            return None
        if kind in (_FULL, _LAST):
            return end
        begun, offset = True, end
    return None


def _verifies(content: bytes, start: int, end: int) -> bool:
    offset = start
    while offset < end:
        left = _BLOCK - offset % _BLOCK
        if left < _HEADER:
            offset += left
            continue
        length = int.from_bytes(content[offset + 4 : offset + 6], "little")
        following = offset + _HEADER + length
        crc = _crc32c(content[offset + 6 : following])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        if int.from_bytes(content[offset : offset + 4], "little") != masked:
            return False
        offset = following
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
    offset = _BATCH_HEADER
    while offset < len(record):
        put = record[offset] == 1
        key, offset = read_text(record, offset + 1)
        value: bytes | None = None
        if put:
            value, offset = read_text(record, offset)
        found.append((key, value))
    return found


def read_text(record: bytes, offset: int) -> tuple[bytes, int]:
    """Return the length-prefixed bytes at an offset, and the offset after them."""
    length, offset = read_number(record, offset)
    return record[offset : offset + length], offset + length


def read_number(record: bytes, offset: int) -> tuple[int, int]:
    """Return the variable-length number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = record[offset]
        offset += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, offset
        shift += 7


def log_files(folder: Path) -> list[Path]:
    """Return the log files of a LevelDB database, the newest last."""
    return sorted((path for path in folder.glob("*.log") if path.stem.isdigit()), key=lambda path: int(path.stem))


def sync_logs(folder: Path) -> None:
    """Make everything that was written to the logs durable; LevelDB's own sync covers the newest log only."""
    for path in log_files(folder):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its rows are in a table file by now, which LevelDB syncs
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)  # LevelDB does not sync the name of a log that it begins


def roll_back(folder: Path, batch: Iterable[Mapping[bytes, bytes | None]], *, is_state: bool) -> None:
    """Cut the newest log back to the records before a batch whose write failed; nothing may be written to it any more.

    After a failed write the record may be in the log, wholly or in part, and reappear when the database is opened.
    LevelDB appends nothing after the failure, so that the cut makes the outcome certain.

    With `is_state`, the database holds exactly these values already. A complete record of this content then stays: it
    may be an earlier commit's, and is harmless if it is not. Raises `OSError` or `ValueError` if the log cannot be cut;
    the outcome stays unknown.
    """
    files = log_files(folder)
    if not files:
        return
    newest = files[-1]
    content = newest.read_bytes()
    last_start = last_end = 0
    last = b""
    for start, end, record in records(content):
        last_start, last_end, last = start, end, record
    keep = last_end
    wanted = [(key, value) for part in batch for key, value in part.items()]
    if not is_state and last and operations(last) == wanted:
        keep = last_start
    if keep < len(content):
        cut(newest, keep)
