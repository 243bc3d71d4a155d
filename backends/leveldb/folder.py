"""The folder of a database: what lies where, who may make it, and what is refused.

    database/      LevelDB's files
    lock           held with flock by the owning process
    owner          where the owner listens, JSON
    epoch          the schema epoch, eight bytes that every process maps into memory
    socket         where the owner listens, if the path is short enough for a socket
    clean          the sizes of LevelDB's files, while the database is closed in good order
    staging/       runs of write jobs
    checkpoints/   hard-link copies for distributed scans

All of it is open to the user who made it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from pathlib import Path

from structable.spi.errors import DataCorruptionError, StorageUnavailableError

__all__ = ["Folder"]

_OURS = {"database", "lock", "owner", "epoch", "socket", "clean", "staging", "checkpoints"}
_HARMLESS = {"lost+found"}
_BEFORE_CURRENT = re.compile(r"LOG(\.old)?|LOCK|MANIFEST-000001|\d+\.dbtmp|probe-\d+")
_CHECKED = re.compile(r".*\.(ldb|sst|log)|MANIFEST-\d+|CURRENT")


class Folder:
    """A database folder.

    Parameters
    ----------
    path : str or os.PathLike
        The folder, absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self.database = self.path / "database"
        self.owner = self.path / "owner"
        self.epoch = self.path / "epoch"
        self.socket = self.path / "socket"
        self.staging = self.path / "staging"
        self.checkpoints = self.path / "checkpoints"
        self._lock_path = self.path / "lock"
        self._clean = self.path / "clean"
        self._lock: int | None = None

    def prepare(self) -> None:
        """Make the folder where it is missing, open to its owner alone.

        Raises
        ------
        DataCorruptionError
            If it holds other files and no database; nothing was written.
        StorageUnavailableError
            If it cannot be made, read or written.
        """
        try:
            _make(self.path)
            found = set(os.listdir(self.path))
            foreign = sorted(found - _OURS - _HARMLESS)
            if foreign and "database" not in found:
                shown = ", ".join(foreign[:5]) + (" and more" if len(foreign) > 5 else "")
                what = "a LevelDB database that is not structable's" if "CURRENT" in foreign else "other files"
                raise DataCorruptionError(f"{self.path} holds {what} ({shown}); structable needs a folder of its own")
            for part in (self.database, self.staging, self.checkpoints):
                _make(part)
        except OSError as error:
            raise StorageUnavailableError(f"the folder {self.path} cannot be used: {error}") from error

    def checkpoint(self, plan: str) -> Path:
        """Return where the checkpoint of a plan lies.

        Raises
        ------
        ValueError
            If that is no plan's name.
        """
        if not re.fullmatch(r"[0-9a-f]{32}", plan):
            raise ValueError(f"{plan!r} is not the name of a plan")
        return self.checkpoints / plan / "state"

    # Ownership

    def try_own(self) -> bool:
        """Become the owner, unless another process is.

        Raises
        ------
        StorageUnavailableError
            If the lock file cannot be made.
        """
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageUnavailableError(f"the folder {self.path} cannot be used: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise StorageUnavailableError(f"{self._lock_path} cannot be locked: {error}") from error
        self._lock = descriptor
        return True

    def disown(self) -> None:
        """Let another process become the owner. In a forked process it only forgets the lock, which is its parent's."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def read_owner(self) -> tuple[str, int] | None:
        """Return the socket's path and the process id of the newest owner, dead or alive."""
        try:
            document = json.loads(self.owner.read_text())
            return str(document["socket"]), int(document["process"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # there is none yet, or it is just being written

    def write_owner(self, socket: str) -> None:
        """Publish where this process listens.

        Raises
        ------
        OSError
            If that cannot be written.
        """
        _replace(self.owner, json.dumps({"socket": socket, "process": os.getpid()}).encode())

    # What LevelDB itself would not notice

    def may_create(self) -> bool:
        """Tell whether there is no database yet: nothing but the remains of a creation that was cut short.

        Raises
        ------
        DataCorruptionError
            If there was a database, and the file that LevelDB begins with is gone.
        """
        names = os.listdir(self.database)
        if "CURRENT" in names:
            return False
        lost = sorted(name for name in names if not _BEFORE_CURRENT.fullmatch(name))
        if lost:
            raise DataCorruptionError(f"{self.database} has lost its file CURRENT, but holds {', '.join(lost[:5])}")
        return True

    def record_clean(self) -> None:
        """Note the files' sizes after an orderly and durable close."""
        with contextlib.suppress(OSError):  # it only means that the next opening cannot compare
            sizes = {
                entry.name: entry.stat().st_size
                for entry in os.scandir(self.database)
                if _CHECKED.fullmatch(entry.name)
            }
            note = {"current": (self.database / "CURRENT").read_text(), "sizes": sizes}
            _replace(self._clean, json.dumps(note).encode())

    def check_clean(self) -> None:
        """Compare the files with their sizes at the last orderly close, and drop the note.

        LevelDB takes a shortened log for one whose last write was cut off by a crash, and goes on without it.

        Raises
        ------
        DataCorruptionError
            If a file is gone or shorter.
        """
        try:
            note = json.loads(self._clean.read_text())
            # Each opening has its own manifest: if it is another one, other software has been here, and may have been.
            sizes = note["sizes"] if (self.database / "CURRENT").read_text() == note["current"] else {}
        except (OSError, ValueError, KeyError):
            return
        for name, size in sizes.items():
            try:
                found = os.stat(self.database / name).st_size
            except FileNotFoundError:
                raise DataCorruptionError(f"the LevelDB database in {self.database} has lost its file {name}") from None
            if found < size:
                raise DataCorruptionError(
                    f"the file {self.database / name} was cut off: it has {found:,} bytes, and had {size:,} when the "
                    "database was closed"
                )
        self._clean.unlink(missing_ok=True)
        _sync_folder(self.path)  # an old note must not come back after a crash


def _make(path: Path) -> None:
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process makes it, too; what it is shows at its use
            os.mkdir(folder, 0o700)
        _sync_folder(folder.parent)
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder")


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
