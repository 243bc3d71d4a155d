"""LevelDB's manifest: a log of edits to the set of live files, see LevelDB's `version_edit.cc`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .log_format import read_number, read_text, records

__all__ = ["ManifestState", "manifest_state"]

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_POINTER = range(1, 6)
_DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG = 6, 7, 9


@dataclass(slots=True)
class ManifestState:
    """The newest state that a manifest describes."""

    tables: set[int] = field(default_factory=set)  # numbers of the table files
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
                state.tables.discard(file)
            elif tag == _NEW_FILE:
                _, offset = read_number(edit, offset)
                file, offset = read_number(edit, offset)
                _, offset = read_number(edit, offset)
                _, offset = read_text(edit, offset)
                _, offset = read_text(edit, offset)
                state.tables.add(file)
            else:
                raise ValueError(f"unknown tag {tag}")
    return state
