"""LevelDB's log files: taking back a record whose write failed, and what a manifest, a log too, says.

After a failed write the record may be in the log, wholly or in part, and be there again when the database is opened.
LevelDB appends to nothing after the failure, so cutting the log back to the records before it makes the outcome
certain. The format is described in LevelDB's `doc/log_format.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["cut_torn_tail", "live_tables", "log_files", "probe_space", "retract", "sync_logs"]

_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH_HEADER = 12
# Tags of a manifest's edits, from LevelDB's version_edit.cc.
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_POINTER = range(1, 6)
_DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG = 6, 7, 9
_PROBE = 256 << 10


def log_files(folder: Path) -> list[Path]:
    """Return the log files of a LevelDB database, the newest last."""
    return sorted((path for path in folder.glob("*.log") if path.stem.isdigit()), key=lambda path: int(path.stem))


def sync_logs(folder: Path) -> None:
    """Make everything that was written to the logs durable; LevelDB's own sync covers the newest log only.

    Raises
    ------
    OSError
        If a file cannot be synced.
    """
    for path in log_files(folder):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its rows are in a table file by now, which LevelDB syncs
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def probe_space(folder: Path) -> None:
    """Check that there is room to reopen a database: its logs become table files.

    Raises
    ------
    OSError
        If there is not.
    """
    wanted = _PROBE + sum(path.stat().st_size for path in log_files(folder))
    probes: list[Path] = []
    try:
        while wanted > 0:
            probe = folder / f"probe-{len(probes)}"
            probes.append(probe)
            with open(probe, "wb") as file:
                file.write(bytes(_PROBE))
                file.flush()
                os.fsync(file.fileno())
            wanted -= _PROBE
    finally:
        for probe in probes:
            probe.unlink(missing_ok=True)


def retract(folder: Path, batch: Iterable[Mapping[bytes, bytes | None]], *, is_state: bool) -> None:
    """Cut the newest log back to what was written before a batch whose write failed.

    Parameters
    ----------
    folder : pathlib.Path
        The database, in which nothing is written any more.
    batch : iterable of mappings
        What was to be written, in its order.
    is_state : bool
        Whether the database holds exactly these values already. Then a complete record of the same content may be the
        one before, and is harmless if it is not: it stays.

    Raises
    ------
    OSError, ValueError
        If that is not possible: the outcome stays unknown.
    """
    files = log_files(folder)
    if not files:
        return
    newest = files[-1]
    content = newest.read_bytes()
    last_start = last_end = 0
    last = b""
    for start, end, record in _records(content):
        last_start, last_end, last = start, end, record
    keep = last_end
    wanted = [(key, value) for part in batch for key, value in part.items()]
    if not is_state and last and _operations(last) == wanted:
        keep = last_start
    if keep < len(content):
        descriptor = os.open(newest, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cut_torn_tail(folder: Path) -> bool:
    """Cut a record off the newest log that a crash of the machine has left with a hole of zeros, if it is the last one.

    A file system may have written the end of a record and not its middle. LevelDB, told to be paranoid, refuses such a
    log. Nobody was told that this record was written, for its sync had not come back.

    Returns
    -------
    bool
        Whether that was the case.

    Raises
    ------
    OSError
        If the log cannot be read or cut.
    """
    files = log_files(folder)
    content = files[-1].read_bytes() if files else b""
    keep = max((end for _, end, _ in _records(content)), default=0)
    hole = keep
    while hole < len(content) and any(content[hole : hole + _HEADER]):
        hole = hole - hole % _BLOCK + _BLOCK  # a part of the torn record that arrived
    if hole >= len(content):
        return False
    for block in range(hole - hole % _BLOCK + _BLOCK, len(content), _BLOCK):
        if _begins_record(content[block : block + _BLOCK]):
            return False
    os.truncate(files[-1], keep)
    return True


def live_tables(manifest: bytes) -> set[int]:
    """Return the numbers of the table files that a manifest's newest state consists of.

    Raises
    ------
    ValueError, IndexError
        If the manifest cannot be read.
    """
    live: set[int] = set()
    for _, _, edit in _records(manifest):
        place = 0
        while place < len(edit):
            tag, place = _number(edit, place)
            if tag == _COMPARATOR:
                _, place = _text(edit, place)
            elif tag in (_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG):
                _, place = _number(edit, place)
            elif tag == _COMPACT_POINTER:
                _, place = _number(edit, place)
                _, place = _text(edit, place)
            elif tag == _DELETED_FILE:
                _, place = _number(edit, place)
                file, place = _number(edit, place)
                live.discard(file)
            elif tag == _NEW_FILE:
                _, place = _number(edit, place)
                file, place = _number(edit, place)
                _, place = _number(edit, place)
                _, place = _text(edit, place)
                _, place = _text(edit, place)
                live.add(file)
            else:
                raise ValueError(f"unknown tag {tag}")
    return live


def _records(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and data of each complete record."""
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
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or end > len(content):
            return
        if kind in (_FULL, _FIRST):
            start, parts = place, []
        parts.append(content[place + _HEADER : end])
        if kind in (_FULL, _LAST):
            yield start, end, b"".join(parts)
        place = end


def _begins_record(block: bytes) -> bool:
    place = 0
    while place + _HEADER <= len(block) and block[place + 6] in (_MIDDLE, _LAST):
        place += _HEADER + int.from_bytes(block[place + 4 : place + 6], "little")
    return place + _HEADER <= len(block) and block[place + 6] in (_FULL, _FIRST)


def _operations(record: bytes) -> list[tuple[bytes, bytes | None]]:
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
