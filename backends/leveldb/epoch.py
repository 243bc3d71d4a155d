"""The schema epoch in shared memory: the owner of a database writes it, and no process has to ask for it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

__all__ = ["no_epoch", "open_epoch"]

_BYTES = 8


def open_epoch(path: Path, *, writable: bool) -> memoryview[int]:
    """Map eight bytes of a file into memory. They are read and written in one step, for they are aligned.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    writable : bool
        Whether this process is the owner; then the file is made where it is missing.

    Returns
    -------
    memoryview
        One cell, the epoch. The memory is freed with it.

    Raises
    ------
    OSError, ValueError
        If it cannot be mapped.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY, 0o600)
    try:
        if writable and os.fstat(descriptor).st_size < _BYTES:
            os.pwrite(descriptor, bytes(_BYTES), 0)  # not by truncate: a full disk must show here, not as SIGBUS
        memory = mmap.mmap(descriptor, _BYTES, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    return memoryview(memory).cast("Q")


def no_epoch() -> memoryview[int]:
    """Return a cell that belongs to no database."""
    return memoryview(bytes(_BYTES)).cast("Q")
