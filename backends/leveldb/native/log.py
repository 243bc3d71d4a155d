"""The log files of a LevelDB database, and making them durable."""

from __future__ import annotations

import os
from pathlib import Path

from .disk import sync_folder

__all__ = ["log_files", "sync_logs"]


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
