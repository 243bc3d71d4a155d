"""The log files of a LevelDB database, and durable changes of files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cut", "log_files", "sync_folder", "sync_logs"]


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


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut(path: Path, size: int) -> None:
    """Cut a file off at a size, durably."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
