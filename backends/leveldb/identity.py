"""`DatabaseIdentity`: checks whether a folder still holds the database that was opened there.

LevelDB itself goes on writing to deleted files, and a client would take another database in the same place for its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from structable.spi.errors import StorageUnavailableError

__all__ = ["DatabaseIdentity", "lost_database"]


class DatabaseIdentity:
    """A descriptor of the folder of LevelDB's files: while it is open, no other folder gets the same inode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._remembered = False

    def remember(self) -> None:
        """Take the folder that is at the path now; a second call does nothing."""
        if not self._remembered:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            self._remembered = True

    def is_there(self) -> bool:
        """Return whether the remembered folder is at its path: false after `close`, true if it cannot be found out."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path))
        except OSError as error:
            return not _says_missing(error)

    def holds_database(self) -> bool:
        """Return whether the folder is at its path, with the file that LevelDB begins with."""
        if not self.is_there():
            return False
        try:
            os.lstat(self._path / "CURRENT")
        except OSError as error:
            return not _says_missing(error)
        return True

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lost_database(path: Path) -> StorageUnavailableError:
    """Return the error of a storage whose folder is gone."""
    error = StorageUnavailableError(f"the database in {path} was removed or replaced while it was open; connect again")
    error.lasting = True
    return error


def _says_missing(error: OSError) -> bool:
    return isinstance(error, (FileNotFoundError, NotADirectoryError))
