"""The border at which errors of SQLite and of the file system become structable's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structable.spi import DataCorruptionError, StorageUnavailableError, StructableError

_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error without its extension; 0 for errors of Python's module."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise structable's errors in place of those of SQLite and of the system."""
    try:
        yield
    except StructableError:
        raise  # some of them are OSErrors, too
    except sqlite3.Error as error:
        if primary_code(error) in _UNREADABLE:
            raise DataCorruptionError(f"{path} is damaged or no SQLite database: {error}") from error
        # Locked for longer than the time-out, disk full, read-only, cannot be opened: SQLite's own message says which.
        raise StorageUnavailableError(f"{path}: {error}") from error
    except OSError as error:
        raise StorageUnavailableError(f"{path}: {error}") from error
