"""Runs: the staged rows of write jobs, in files that any process of this machine writes and reads.

    staging/<owner>/<uuid>.new  being written, locked with flock
    staging/<owner>/<uuid>.run  whole: frames of pairs, each with its checksum, and an end

A frame is the length of its content, its CRC-32, and pairs as length-prefixed keys and values; a frame of length zero
ends the file. A run gets its name once it is complete and durable. Folders of older software have longer names, and a
file `job`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from structable.backends.ordered.engine import Pair, RunLostError, StagedRun
from structable.spi import DataCorruptionError, StorageUnavailableError

from .native.disk import sync_folder

_FRAME = struct.Struct("<II")
_PAIR = struct.Struct("<II")
_FRAME_BYTES = 1 << 18
_OWNER_DIGITS = 32


class StagingFolder:
    """The staging folder of a database, which must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        """Write a run, durably, and return its path below the folder; after an error nothing is left behind."""
        name = f"{owner}/{uuid.uuid4().hex}.run"
        path = self._folder / name
        new = path.with_suffix(".new")
        try:
            with _locked(new) as file:
                parts: list[bytes] = []
                size = 0
                for key, value in pairs:
                    parts += (_PAIR.pack(len(key), len(value)), key, value)
                    size += len(key) + len(value)
                    if size >= _FRAME_BYTES:
                        file.write(_frame(parts))
                        parts, size = [], 0
                if parts:
                    file.write(_frame(parts))
                file.write(_FRAME.pack(0, 0))
                file.flush()
                os.fsync(file.fileno())
                os.rename(new, path)
            sync_folder(self._folder)
            with contextlib.suppress(FileNotFoundError):  # the job has ended, and the run was dropped
                sync_folder(path.parent)
        except OSError as error:
            if isinstance(error, StorageUnavailableError):
                raise
            raise StorageUnavailableError(f"a run cannot be written to {path.parent}: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
        return name.encode()

    def read(self, state: bytes) -> Iterator[Pair]:
        """Yield the pairs of a run, in the order written.

        Raises `RunLostError` if it is not there, and `DataCorruptionError` if it is damaged.
        """
        for content in self._frames(state):
            yield from _pairs(content)

    def check(self, state: bytes) -> None:
        """Raise as `read` does, without decoding pairs."""
        for _ in self._frames(state):
            continue

    def _frames(self, state: bytes) -> Iterator[bytes]:
        path = self._folder / state.decode()
        try:
            with open(path, "rb") as file:
                while True:
                    head = file.read(_FRAME.size)
                    if len(head) < _FRAME.size:
                        raise DataCorruptionError(f"the run {path} was cut off")
                    length, checksum = _FRAME.unpack(head)
                    if not length:
                        if checksum:
                            raise DataCorruptionError(f"the run {path} is damaged: its end has a checksum")
                        return
                    content = file.read(length)
                    if len(content) < length or zlib.crc32(content) != checksum:
                        raise DataCorruptionError(f"the run {path} is damaged: a checksum does not match")
                    yield content
        except (FileNotFoundError, NotADirectoryError):
            raise RunLostError(f"the run {path} is missing: its job has ended, or its files were lost") from None
        except IsADirectoryError as error:
            raise DataCorruptionError(f"the run {path} is a folder") from error
        except OSError as error:
            if isinstance(error, StorageUnavailableError):
                raise
            raise StorageUnavailableError(f"the run {path} cannot be read: {error}") from error

    def find(self, owner: str) -> list[StagedRun]:
        """Return the runs of an owner, or all runs if the owner is empty; each folder comes after its files."""
        found: list[StagedRun] = []
        try:
            for folder in self._folder.glob(f"{owner}*"):
                for path in (*folder.glob("*"), folder):
                    with contextlib.suppress(FileNotFoundError):  # dropped or renamed since
                        state, time = str(path.relative_to(self._folder)).encode(), path.stat().st_mtime
                        found.append(StagedRun(folder.name[:_OWNER_DIGITS], state, time, path.suffix != ".new"))
        except OSError as error:
            raise StorageUnavailableError(f"the folder {self._folder} cannot be read: {error}") from error
        return found

    def drop(self, runs: Iterable[StagedRun]) -> None:
        """Remove runs, except for runs that a living process writes, and then the folders that are empty."""
        for run in runs:
            path = self._folder / run.state.decode()
            try:
                if path.parent == self._folder:
                    path.rmdir()
                elif run.whole:
                    path.unlink()
                else:
                    _unlink_abandoned(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise StorageUnavailableError(f"the staged run {path} cannot be removed: {error}") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Make a file; while it is open, `StagingFolder.drop` keeps it and its folder."""
    while True:
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)  # with exist_ok it fails if the folder is removed just then
        try:
            file = open(path, "xb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            continue  # the folder was removed in between
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                yield file
                return


def _unlink_abandoned(path: Path) -> None:
    with open(path, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        path.unlink()


def _frame(parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    return _FRAME.pack(len(content), zlib.crc32(content)) + content


def _pairs(content: bytes) -> Iterator[Pair]:
    offset = 0
    while offset < len(content):
        key_length, value_length = _PAIR.unpack_from(content, offset)
        middle = offset + _PAIR.size + key_length
        offset = middle + value_length
        yield content[middle - key_length : middle], content[middle:offset]
