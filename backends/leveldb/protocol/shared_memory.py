"""Shared memory by which the owner of a database announces schema changes, commits and signals to every process."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from structable.backends.leveldb.permissions import open_private

_FIRST, _SLOTS = 2, 64
_BYTES = 8 * (_FIRST + _SLOTS)
_WRAP = 1 << 64


def open_shared(path: Path, *, writable: bool) -> memoryview[int]:
    """Map a file into memory as aligned cells, each read and written in one step; the memory is freed with them.

    The first is the schema epoch, the second the number of the newest commit, see `CommitNumbers`; the others count the
    signals of channels, see `cells_of`. The owner opens it as `writable`, which makes the file if it is missing.
    Raises `OSError` or `ValueError` if it cannot be mapped.
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
    """Return cells that no database shares."""
    return memoryview(bytes(_BYTES)).cast("Q")


def cells_of(channels: Iterable[str]) -> list[int]:
    """Return the cells that count the signals of channels; several channels may share a cell."""
    return sorted(set(map(_cell_of, channels)))


@lru_cache(maxsize=1_000)
def _cell_of(channel: str) -> int:
    return _FIRST + zlib.crc32(channel.encode()) % _SLOTS


def raise_cells(shared: memoryview[int], cells: Iterable[int]) -> None:
    """Count a signal in some cells; only the thread that may commit calls this."""
    for cell in cells:
        shared[cell] = (shared[cell] + 1) % _WRAP


def raise_every_cell(shared: memoryview[int]) -> None:
    """Count a signal in each cell: an owner that was killed may have made commits that it did not signal."""
    raise_cells(shared, range(_FIRST, _FIRST + _SLOTS))
