"""Shared memory by which the owner of a database announces schema changes and commits to every process."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from structable.backends.leveldb.permissions import open_private

__all__ = ["no_shared", "open_shared"]

_BYTES = 16


def open_shared(path: Path, *, writable: bool) -> memoryview[int]:
    """Map a file into memory as two aligned cells, each read and written in one step; the memory is freed with them.

    The first is the schema epoch, the second the number of the newest commit, see `CommitNumbers`. The owner opens it
    as `writable`, which makes the file if it is missing. Raises `OSError` or `ValueError` if it cannot be mapped.
    """
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        while writable and size < _BYTES:
            # Not truncate: a full disk must fail here, not as SIGBUS.
            size += os.pwrite(descriptor, bytes(_BYTES - size), size)
        memory = mmap.mmap(descriptor, _BYTES, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    return memoryview(memory).cast("Q")


def no_shared() -> memoryview[int]:
    """Return cells that belong to no database."""
    return memoryview(bytes(_BYTES)).cast("Q")
