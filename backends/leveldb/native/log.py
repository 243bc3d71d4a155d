"""The log files of a LevelDB database: making them durable, and cutting off a record whose write failed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .disk import cut, sync_folder
from .log_format import operations, records

__all__ = ["log_files", "roll_back", "sync_logs"]


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
