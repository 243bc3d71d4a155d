"""LevelDB's manifest: a log of edits to the set of live files, see LevelDB's `version_edit.cc`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from structable.spi import DataCorruptionError

from .logs import read_number, read_text, records

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_POINTER = range(1, 6)
_DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG = 6, 7, 9
_SEQUENCE_BYTES = 8
"""The end of each key: its sequence number, and whether it is a deletion."""


class TableFile(NamedTuple):
    """A table file, by the keys at its ends; files of one level do not overlap, except in level 0."""

    level: int
    first: bytes
    last: bytes
    size: int


@dataclass(slots=True)
class ManifestState:
    """The newest state that a manifest describes."""

    tables: dict[int, TableFile] = field(default_factory=dict)  # by their numbers
    log: int = 0  # number of the oldest log whose rows are not in them
    sequence: int = 0  # number of the newest operation when it was written; the logs may have newer ones


def manifest_state(manifest: bytes) -> ManifestState:
    """Read a manifest; `ValueError` or `IndexError` if it cannot be read."""
    state = ManifestState()
    for _, _, edit in records(manifest):
        offset = 0
        while offset < len(edit):
            tag, offset = read_number(edit, offset)
            if tag == _COMPARATOR:
                _, offset = read_text(edit, offset)
            elif tag in (_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG):
                number, offset = read_number(edit, offset)
                if tag == _LOG_NUMBER:
                    state.log = number
                elif tag == _LAST_SEQUENCE:
                    state.sequence = number
            elif tag == _COMPACT_POINTER:
                _, offset = read_number(edit, offset)
                _, offset = read_text(edit, offset)
            elif tag == _DELETED_FILE:
                _, offset = read_number(edit, offset)
                file, offset = read_number(edit, offset)
                state.tables.pop(file, None)
            elif tag == _NEW_FILE:
                level, offset = read_number(edit, offset)
                file, offset = read_number(edit, offset)
                size, offset = read_number(edit, offset)
                first, offset = read_text(edit, offset)
                last, offset = read_text(edit, offset)
                state.tables[file] = TableFile(level, first[:-_SEQUENCE_BYTES], last[:-_SEQUENCE_BYTES], size)
            else:
                raise ValueError(f"unknown tag {tag}")
    return state


def read_manifest(folder: Path) -> ManifestState:
    """Read the manifest of a database, which may be open; raises `OSError`, and the errors of `parsed_manifest`."""
    path = folder / (folder / "CURRENT").read_text().strip()
    return parsed_manifest(path, path.read_bytes())


def parsed_manifest(path: Path, content: bytes) -> ManifestState:
    """Read the content of a manifest file; `DataCorruptionError` if it cannot be read."""
    try:
        return manifest_state(content)
    except (ValueError, IndexError) as error:
        raise DataCorruptionError(f"the manifest {path} is damaged: {error}") from error
