"""Runs: the staged rows of write jobs, in files that any process of this machine writes and reads.

    staging/<hash of the job's id>/job         the id
    staging/<hash of the job's id>/<uuid>.run  frames of pairs, each with its checksum, and an end

A frame is the length of its content, its CRC-32, and pairs as length-prefixed keys and values; a frame of length zero
ends the file. A run gets its name once it is complete and durable.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from structable.backends.ordered.engine import Pair, RunLostError
from structable.spi.errors import DataCorruptionError, StorageUnavailableError

from .native.disk import sync_folder

__all__ = ["Runs"]

_FRAME = struct.Struct("<II")
_PAIR = struct.Struct("<II")
_FRAME_BYTES = 1 << 18
_NAME = "job"
_log = logging.getLogger("structable.leveldb")


class Runs:
    """The staging folder of a database, which must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        """Write a run, durably, and return its path below the folder; after an error nothing is left behind."""
        name = f"{_hashed(job_id)}/{uuid.uuid4().hex}.run"
        path = self._folder / name
        new = path.with_suffix(".new")
        try:
            self._make_job(path.parent, job_id)
            with open(new, "xb") as file:
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
            sync_folder(path.parent)
        except OSError as error:
            if isinstance(error, StorageUnavailableError):
                raise
            raise StorageUnavailableError(f"a run cannot be written to {path.parent}: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
        return name.encode()

    def _make_job(self, folder: Path, job_id: str) -> None:
        name = folder / _NAME
        if name.exists():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        new = folder / f"{_NAME}.{uuid.uuid4().hex}"
        new.write_text(job_id, encoding="utf-8")
        os.rename(new, name)
        sync_folder(self._folder)

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

    def drop(self, job_id: str) -> None:
        """Remove all runs of a job; idempotent."""
        folder = self._folder / _hashed(job_id)
        try:
            shutil.rmtree(folder)
            _log.info("removed the staged runs of job %s", job_id)
        except FileNotFoundError:
            if folder.exists():  # another process removes it too, or still writes
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise StorageUnavailableError(f"the staged runs in {folder} cannot be removed: {error}") from error

    def jobs(self) -> dict[str, float]:
        """Return the ids of jobs that have files here, with the time of the youngest in seconds since the epoch."""
        found: dict[str, float] = {}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            try:
                job_id = (folder / _NAME).read_text(encoding="utf-8")
                found[job_id] = max(entry.stat().st_mtime for entry in os.scandir(folder))
            except (OSError, ValueError):
                continue  # it is being made or removed
        return found


def _hashed(job_id: str) -> str:
    return hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


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
