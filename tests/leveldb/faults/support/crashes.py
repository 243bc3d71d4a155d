"""States that a crash of the machine can leave, made from a record of a process's file operations.

Unsynced data may be there in part: each page of a write is separately whole, torn, or a hole. Names are kept by a
journal, as in ext4, XFS and Btrfs: a crash undoes the last operations on names, and syncing a folder, or a file that
was made or renamed, keeps all operations before.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

CREATE, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, LINK, ACKNOWLEDGE = range(1, 10)
_ENTRY = struct.Struct("<IIIIQ")
_PAGE = 4096


class Event(NamedTuple):
    """A file operation, as recorded by `fault_io.c`."""

    kind: int
    path: str
    other: str
    offset: int
    data: bytes


def read_record(path: Path) -> list[Event]:
    """Read a record of the library."""
    content, place, events = path.read_bytes(), 0, []
    while place < len(content):
        kind, path_size, other_size, size, offset = _ENTRY.unpack_from(content, place)
        begin = place + _ENTRY.size
        middle, end = begin + path_size, begin + path_size + other_size
        name, other = content[begin:middle].decode(), content[middle:end].decode()
        events.append(Event(kind, name, other, offset, content[end : end + size]))
        place = end + size
    return events


@dataclass
class _File:
    synced: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)
    named: int = 0


def crash(events: list[Event], root: str, target: Path, choose: random.Random) -> None:
    """Make the folder `target` as a crash after the events could leave `root`; `choose` picks surviving writes."""
    names: list[Event] = []
    files: dict[str, _File] = {}
    opened: list[_File] = []
    kept = 0
    for event in events:
        if event.kind in (CREATE, RENAME, UNLINK, MKDIR, LINK):
            names.append(event)
        match event.kind:
            case 1:
                files[event.path] = file = _File(named=len(names))
                opened.append(file)
            case 5 if event.path in files:
                files[event.other] = file = files.pop(event.path)
                file.named = len(names)
            case 6:
                files.pop(event.path, None)
            case 8 if event.path in files:
                files[event.other] = files[event.path]
            case 2 | 3 if event.path in files:
                files[event.path].pending.append(event)
            case 4:
                if event.path in files:
                    file = files[event.path]
                    _apply(file.synced, file.pending)
                    file.pending = []
                    kept = max(kept, file.named)
                else:
                    kept = len(names)  # a folder
    contents = {id(file): _torn(file, choose) for file in opened}
    there: dict[str, _File] = {}
    folders: list[str] = [root]
    creations = iter(opened)
    for event in names[: choose.choice((kept, len(names), choose.randint(kept, len(names))))]:
        match event.kind:
            case 1:
                there[event.path] = next(creations)
            case 5 if event.path in there:
                there[event.other] = there.pop(event.path)
            case 6:
                there.pop(event.path, None)
                if event.path in folders:
                    folders.remove(event.path)
            case 7:
                folders.append(event.path)
            case 8 if event.path in there:
                there[event.other] = there[event.path]
    if root not in folders:
        return
    for folder in folders:
        (target / folder[len(root) :].lstrip("/")).mkdir(parents=True, exist_ok=True, mode=0o700)
    for path, file in there.items():
        (target / path[len(root) :].lstrip("/")).write_bytes(contents[id(file)])


def _apply(content: bytearray, events: list[Event]) -> None:
    for event in events:
        if event.kind == TRUNCATE:
            del content[event.offset :]
            content.extend(bytes(event.offset - len(content)))
        else:
            content.extend(bytes(max(0, event.offset - len(content))))
            content[event.offset : event.offset + len(event.data)] = event.data


def _torn(file: _File, choose: random.Random) -> bytes:
    content = bytearray(file.synced)
    share = choose.choice((0.0, 0.3, 0.7, 0.95, 1.0))
    whole = bytearray(content)
    _apply(whole, file.pending)
    kept: list[Event] = []
    for event in file.pending:
        if event.kind == TRUNCATE:
            if choose.random() < share:
                kept.append(event)
            continue
        place = event.offset
        end = place + len(event.data)
        while place < end:
            following = min(end, place - place % _PAGE + _PAGE)
            piece = event.data[place - event.offset : following - event.offset]
            if choose.random() < share:
                if choose.random() < 0.1:
                    piece = piece[: choose.randint(0, len(piece))]
                kept.append(event._replace(offset=place, data=piece))
            place = following
    _apply(content, kept)
    if len(content) < len(whole) and choose.random() < 0.3:
        content.extend(bytes(len(whole) - len(content)))  # the size has arrived, the rest of the data has not
    return bytes(content)
