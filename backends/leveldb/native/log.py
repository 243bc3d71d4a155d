"""LevelDB's log files: making them durable, and taking back a record whose write failed.

After a failed write the record may be in the log, wholly or in part, and be there again when the database is opened.
LevelDB appends to nothing after the failure, so cutting the log back to the records before it makes the outcome
certain.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .log_format import operations, records

__all__ = ["log_files", "probe_space", "retract", "sync_logs"]

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
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # LevelDB does not sync the name of a log that it begins
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
    for start, end, record in records(content):
        last_start, last_end, last = start, end, record
    keep = last_end
    wanted = [(key, value) for part in batch for key, value in part.items()]
    if not is_state and last and operations(last) == wanted:
        keep = last_start
    if keep < len(content):
        descriptor = os.open(newest, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
