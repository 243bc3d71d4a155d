"""Private copies of databases, for processes that only read a database folder.

    <temporary folder>/structable-<user id>/checkpoints/<name>/hold    locked with flock, as long as the copy is used
    <temporary folder>/structable-<user id>/checkpoints/<name>/state   the copy

A copy shares the immutable table files of its original if the file system can link them. The copies of killed processes
are removed when the next copy is made.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

from structable.spi import StorageUnavailableError

from .folder import DatabaseFolder
from .native.checkpoint import copy_checkpoint
from .splits import Release, hold_plan


def private_folder() -> DatabaseFolder:
    """Return the folder of this user's copies, closed to other users."""
    path = Path(tempfile.gettempdir(), f"structable-{os.getuid()}")
    try:
        if not _is_ours(path):
            path = _of_this_process()
        folder = DatabaseFolder(path)
        folder.checkpoints.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageUnavailableError(f"a private copy needs a temporary folder (TMPDIR): {error}") from error
    return folder


def _is_ours(path: Path) -> bool:
    """Make a folder if it is missing; false if it is another user's, or open to others."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return True


_lock = threading.Lock()
_made: dict[int, Path] = {}


def _of_this_process() -> Path:
    with _lock:
        process = os.getpid()
        path = _made.get(process)
        if path is None:
            path = _made[process] = Path(tempfile.mkdtemp(prefix="structable-"))
            atexit.register(_remove, path, process)
        return path


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


class PrivateCopy:
    """A copy of a database's files, removed by `remove`, when the process ends, or by the next process.

    The original may be open in another process.
    """

    _release: Release | None = None

    def __init__(self, database: Path) -> None:
        self.folder = private_folder()
        name, self._release = hold_plan(self.folder)
        self.path = self.folder.checkpoint(name)
        try:
            copy_checkpoint(database, self.path)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the copy; idempotent. A forked process leaves it to its parent."""
        if self._release is not None:
            self._release()

    __del__ = remove
