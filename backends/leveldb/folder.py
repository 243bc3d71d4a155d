"""The folder of a database: its files, its lock, its identity, and the checks that reject foreign or damaged ones.

    database/      LevelDB's files
    lock           held with flock by the owning process
    owner          the owner's socket and process id, JSON
    epoch          schema epoch, newest commit and counts of signals, which every process maps into memory
    socket         the owner's socket, if the path is short enough for one
    clean          sizes and checksums of LevelDB's files, while the database is closed in good order
    creating       present while the database is first made; an interrupted creation starts over
    staging/       runs of write jobs
    checkpoints/   hard-link copies for distributed scans

Only the user who made the folder can open it: other users lose the right to write in it, and a part that is a link or
belongs to another user is rejected.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from structable.spi import DataCorruptionError, StorageUnavailableError, StoreNotFoundError

from .native.disk import sync_folder
from .permissions import check_entries, check_kinds, close_to_others, open_private

_FORKING = threading.RLock()
"""The lock held while a descriptor is opened that no forked process may inherit."""

_OURS = {"database", "lock", "owner", "epoch", "socket", "clean", "creating", "staging", "checkpoints"}
_HARMLESS = {"lost+found"}
_BEFORE_CURRENT = re.compile(r"LOG(\.old)?|LOCK|MANIFEST-000001|\d+\.dbtmp|probe-\d+")
_RECORDS = re.compile(r"\d+\.log|MANIFEST-\d+")
_CHECKED = re.compile(r".*\.(ldb|sst|log)|MANIFEST-\d+|CURRENT")
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class DatabaseFolder:
    """A database folder."""

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
        self._creating = self.path / "creating"
        self._lock: int | None = None

    @contextlib.contextmanager
    def usable(self) -> Iterator[None]:
        """Raise `StorageUnavailableError` for each `OSError` of the `with` block."""
        try:
            yield
        except OSError as error:
            raise StorageUnavailableError(f"the folder {self.path} cannot be used: {error}") from error

    def prepare(self) -> None:
        """Make the folder if it is missing, open to its user alone.

        Raises `DataCorruptionError`, with nothing written, if the folder holds other files and no database;
        `StorageUnavailableError` if it belongs to another user, or one of its parts is a link.
        """
        with self.usable():
            _make(self.path)
            found = set(os.listdir(self.path))
            foreign = sorted(found - _OURS - _HARMLESS)
            if foreign and "database" not in found:
                shown = ", ".join(foreign[:5]) + (" and more" if len(foreign) > 5 else "")
                what = "a LevelDB database that is not structable's" if "CURRENT" in foreign else "other files"
                raise DataCorruptionError(f"{self.path} holds {what} ({shown}); structable needs a folder of its own")
            was_open = close_to_others(self.path)
            for part in (self.database, self.staging, self.checkpoints):
                _make(part)
                check_entries(part, owners=close_to_others(part) or was_open)

    def require_database(self) -> None:
        """Check that there is a database, and create nothing.

        Raises `StoreNotFoundError` if there is none, or only the remains of an interrupted creation;
        `DataCorruptionError` if there was one, and LevelDB's file CURRENT is gone; `StorageUnavailableError`
        if the folder cannot be read, or holds pipes or devices among LevelDB's files.
        """
        with self.usable():
            if self.path.exists() and not self.path.is_dir():
                raise NotADirectoryError(f"{self.path} is not a folder")
            missing = not self.database.is_dir() or self.may_create()
            if not missing:
                check_kinds(self.database)
        if missing:
            what = "holds no database of structable's" if self.path.is_dir() else "does not exist"
            raise StoreNotFoundError(
                f"the folder {self.path} {what}; connect without create=False or read_only=True to make it"
            )

    def checkpoint(self, plan: str) -> Path:
        """Return the path of the checkpoint of a plan; `ValueError` if it is not the name of a plan."""
        if not re.fullmatch(r"[0-9a-f]{32}", plan):
            raise ValueError(f"{plan!r} is not the name of a plan")
        return self.checkpoints / plan / "state"

    def try_own(self) -> bool:
        """Become the owner, unless another process is the owner; true if this process already is."""
        with _FORKING:  # a child that shares the descriptor would keep the lock after this process
            if self._lock is not None:
                return True
            with self.usable():
                descriptor = open_private(self._lock_path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock = descriptor
            except BlockingIOError:
                return False
            except OSError as error:
                raise StorageUnavailableError(f"{self._lock_path} cannot be locked: {error}") from error
            finally:
                if self._lock is None:
                    os.close(descriptor)
            return True

    @property
    def holds_lock(self) -> bool:
        """Whether this process holds the lock that other processes would try."""
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock), os.lstat(self._lock_path))
        except OSError:
            return False  # it was removed: another process may hold the next one

    def disown(self) -> None:
        """Let another process become the owner. A forked process only forgets the lock, which is its parent's."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def read_owner(self) -> tuple[str, int] | None:
        """Return the socket's path and the process id of the newest owner, dead or alive."""
        try:
            document = json.loads(_read(self.owner))
            return str(document["socket"]), int(document["process"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # missing, or not written by an owner

    def write_owner(self, socket: str) -> None:
        _replace(self.owner, json.dumps({"socket": socket, "process": os.getpid()}).encode())

    def may_create(self) -> bool:
        """Return whether there is no database yet, or only the remains of an interrupted creation.

        Raises `DataCorruptionError` if there was one, and LevelDB's file CURRENT is gone.
        """
        if _is_note(self._creating):
            return True
        names = os.listdir(self.database)
        if "CURRENT" in names:
            return False
        lost = sorted(name for name in names if not _BEFORE_CURRENT.fullmatch(name))
        if _is_note(self._clean):
            raise DataCorruptionError(f"{self.database} has lost its file CURRENT since the database was closed")
        if lost:
            raise DataCorruptionError(f"{self.database} has lost its file CURRENT, but holds {', '.join(lost[:5])}")
        return True

    def begin_creation(self) -> None:
        """Remove the remains of an interrupted creation, and record that another one begins."""
        os.close(open_private(self._creating, os.O_WRONLY | os.O_CREAT))
        sync_folder(self.path)
        for entry in os.scandir(self.database):
            if entry.is_file(follow_symlinks=False) and entry.name != "LOCK":
                os.unlink(entry.path)
        self._clean.unlink(missing_ok=True)
        sync_folder(self.database)

    def end_creation(self) -> None:
        """Record that the database is made; nothing was acknowledged before."""
        with self.usable():
            sync_folder(self.database)
            self._creating.unlink(missing_ok=True)
            sync_folder(self.path)

    def record_clean(self) -> None:
        """Record sizes and checksums of the files after an orderly and durable close."""
        with contextlib.suppress(OSError):  # then the next opening has nothing to compare
            sizes = {
                entry.name: entry.stat().st_size
                for entry in os.scandir(self.database)
                if _CHECKED.fullmatch(entry.name)
            }
            checksums = {
                name: zlib.crc32((self.database / name).read_bytes()) for name in sizes if _RECORDS.fullmatch(name)
            }
            note = {"current": (self.database / "CURRENT").read_text(), "sizes": sizes, "checksums": checksums}
            _replace(self._clean, json.dumps(note).encode())

    def is_owned(self) -> bool:
        """Return whether a living process owns the database, or may own it, without writing anything."""
        with _FORKING:
            try:
                descriptor = open_private(self._lock_path, os.O_RDONLY)
            except OSError as error:
                return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # unknown: ask again
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(descriptor)
        return False

    def check_clean(self, *, keep: bool = False) -> bool:
        """Compare the files with the record of the last orderly close, and remove the record unless `keep`.

        LevelDB takes a shortened log for one whose last write was cut off by a crash, and continues without the rest.
        Raises `DataCorruptionError` if a file is gone or shorter. Returns whether the logs are as they were at the last
        orderly close; false if that is unknown.
        """
        try:
            note = json.loads(_read(self._clean))
            # Each opening has its own manifest: with another one, other software has opened the database since.
            same = (self.database / "CURRENT").read_text() == note["current"]
            sizes: dict[str, int] = dict(note["sizes"]) if same else {}
            checksums: dict[str, int] = dict(note.get("checksums", {})) if same else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False  # the record is incomplete, or is none
        for name, size in sizes.items():
            path = self.database / name
            try:
                found = path.stat().st_size
                differs = name in checksums and zlib.crc32(path.read_bytes()) != checksums[name]
            except FileNotFoundError:
                raise DataCorruptionError(f"the LevelDB database in {self.database} has lost its file {name}") from None
            if found < size:
                raise DataCorruptionError(
                    f"the file {path} was cut off: it has {found:,} bytes, and had {size:,} when the "
                    "database was closed"
                )
            if differs:
                raise DataCorruptionError(
                    f"the file {path} is damaged: its content has changed since the database was closed"
                )
        if not keep:
            self._clean.unlink(missing_ok=True)
            sync_folder(self.path)  # an old note must not come back after a crash
        return bool(checksums)


def _is_note(path: Path) -> bool:
    """Return whether a path is a regular file, as this module writes."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _make(path: Path) -> None:
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process makes it too; its kind is checked below
            os.mkdir(folder, 0o700)
        sync_folder(folder.parent)
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder")


def _read(path: Path) -> bytes:
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.unlink(missing_ok=True)
        with open(open_private(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


class DatabaseIdentity:
    """Checks whether a folder still holds the database that was opened there.

    LevelDB itself continues to write to deleted files, and a client would take another database in the same place for
    its own. While the descriptor of the folder is open, no other folder gets the same inode.
    """

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
        """Return whether the remembered folder is at its path: false after `close`, true if that is unknown."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path))
        except OSError as error:
            return not _says_missing(error)

    def holds_database(self) -> bool:
        """Return whether the folder is at its path, and has LevelDB's file CURRENT."""
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


class Pauses:
    """Pauses of growing length, in seconds, between the attempts of a caller that waits for another process.

    The first finds a process that is nearly ready.
    """

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def pause(self) -> None:
        time.sleep(self._next)
        self._next = min(self._next * 1.5, _LONGEST_PAUSE)


os.register_at_fork(before=_FORKING.acquire, after_in_parent=_FORKING.release, after_in_child=_FORKING.release)
