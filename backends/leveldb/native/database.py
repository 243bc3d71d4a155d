"""plyvel behind types: a LevelDB database that can be closed under its readers, with structable's errors."""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, thread_time
from typing import Protocol

import plyvel

from structable.backends.ordered.engine import Pair, RawRows, rows_of_pairs, rows_of_values
from structable.spi import DataCorruptionError, StorageUnavailableError, StructableError

from .disk import replace_durably
from .forked import can_compact, note_closed, note_opened
from .gaps import Gaps
from .native_guard import native_call, native_upkeep, wait_for_native_calls

KeyChanges = Mapping[bytes, bytes | None]

SLOW_SEEK = 20e-6
"""The seconds after which a seek is slow: one takes some 3 us, and 25 us more for each thousand deleted rows."""
_GAP_PAUSE = 1e-3
_MOST_SLOW_HEADS = 64

_FILE_BYTES = 8 << 20
"""The largest size of a table file.

With LevelDB's default of 2 MiB a read of a large table takes a ninth more, and LevelDB maps no more than 1,000 files
into memory. Larger files gain nothing more, and their compactions take longer.
"""

COMPRESSION = "compression"
"""The file that records how a database writes its table files; each block of a file records its own compression."""
DEFAULT_COMPRESSION = "none"
"""The compression of new databases."""
_COMPRESSION_BEFORE = "snappy"

FIRST_KEY = b"\x00\x00\x00\x00\x00"
LAST_KEY = b"\xff\xff\xff\xff\xff"
"""The two keys around everything that is scanned, which exist in every database.

plyvel takes an invalid iterator for one at its end, and does not check whether a damaged block made it so. With keys
around every interval, an iterator ends at a valid key, where plyvel does check.
"""


class DatabaseLockedError(StorageUnavailableError):
    """Another program holds LevelDB's own lock."""


class WriteFailedError(Exception):
    """LevelDB could not write: the record may be in its log or not."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RawSnapshot(Protocol):
    """plyvel's snapshot, freed with its last reference."""

    def get(self, key: bytes) -> bytes | None: ...

    def iterator(
        self, *, start: bytes, stop: bytes, reverse: bool, verify_checksums: bool, fill_cache: bool
    ) -> RawIterator:
        """Return an iterator over start <= key < stop."""


class RawIterator(Protocol):
    """plyvel's iterator."""

    def __iter__(self) -> Iterator[Pair]: ...
    def __next__(self) -> Pair: ...
    def close(self) -> None: ...


class Readers:
    """The readers of a database: whether they must leave, and their findings, which the writer uses."""

    __slots__ = ("parked", "shut", "slow_heads")

    def __init__(self) -> None:
        self.shut = False
        self.parked: list[RawSnapshot] = []
        """The snapshots closed while the database was being closed."""
        self.slow_heads: deque[tuple[bytes, bytes]] = deque(maxlen=_MOST_SLOW_HEADS)
        """The intervals whose first row took long to find."""


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """LevelDB's own options."""

    write_buffer: int = 16 << 20  # bytes of memory for new rows before they become a table file
    block_cache: int = 64 << 20  # bytes of memory for blocks of table files
    open_files: int = 1000  # table files, at most
    compression: str | None = None  # of new table files, "none" or "snappy"; None for the database's own choice


def recorded_compression(folder: Path) -> str:
    """Return a database's recorded choice; Snappy if it has none, as in databases from before the choice."""
    try:
        is_default = (folder / COMPRESSION).read_bytes() == DEFAULT_COMPRESSION.encode()
        return DEFAULT_COMPRESSION if is_default else _COMPRESSION_BEFORE
    except FileNotFoundError:
        return _COMPRESSION_BEFORE


def record_compression(folder: Path, compression: str) -> None:
    """Record the choice, durably."""
    replace_durably(folder / COMPRESSION, compression.encode())


class Database:
    """An open LevelDB database. Only one thread may write at a time; every thread may read.

    Raises `DatabaseLockedError` if another program has it open, and `DataCorruptionError` if it is damaged.
    """

    def __init__(self, path: Path, options: DatabaseOptions, *, create: bool) -> None:
        self.path = path
        self.readers = Readers()
        self.write_failed = False
        """Whether a write has failed: later writes would be lost with it."""
        self.compression = options.compression or recorded_compression(path)
        note_opened(path)
        try:
            self._database = plyvel.DB(
                str(path),
                create_if_missing=create,
                paranoid_checks=True,
                write_buffer_size=options.write_buffer,
                lru_cache_size=options.block_cache,
                max_open_files=options.open_files,
                bloom_filter_bits=10,
                max_file_size=_FILE_BYTES,
                compression=None if self.compression == "none" else self.compression,
            )
        except BaseException as error:
            note_closed(path)
            if isinstance(error, plyvel.Error):
                raise _open_error(path, error) from error
            raise
        self.gaps: Gaps | None = None
        """Intervals without rows in the newest state, if any; a write removes the intervals that it fills."""
        self._gap_sought = 0.0
        self.read: Callable[[bytes], bytes | None] = self._database.get
        self.take: Callable[[], RawSnapshot] = self._database.snapshot

    @native_call
    def get(self, key: bytes) -> bytes | None:
        if self.readers.shut:
            raise StorageUnavailableError(CLOSED)
        try:
            return self.read(key)
        except (plyvel.Error, RuntimeError) as error:
            raise translated(error) from error

    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        """Write one key; `WriteFailedError` if LevelDB could not."""
        if self.gaps is not None and self.gaps.holds(key):
            self.gaps = self.gaps.without(({key: value},)) or None
        try:
            self._database.put(key, value, sync=sync)
        except plyvel.Error as error:
            self.write_failed = True  # before any call, which could be interrupted
            raise WriteFailedError(str(error)) from error

    def write(self, parts: Iterable[KeyChanges], sync: bool) -> None:
        """Apply all changes atomically, later parts over earlier ones; `WriteFailedError` if LevelDB could not."""
        if self.gaps is not None:
            parts = list(parts)
            self.gaps = self.gaps.without(parts) or None
        batch = self._database.write_batch(sync=sync)
        put, delete = batch.put, batch.delete
        for part in parts:
            for key, value in part.items():
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        try:
            batch.write()
        except plyvel.Error as error:
            self.write_failed = True  # before any call, which could be interrupted
            raise WriteFailedError(str(error)) from error

    @native_call
    def find_gap(self) -> None:
        """Look again for the first row of an interval where that took long; only for the thread that may write.

        Reads must go to the newest state.
        """
        started = perf_counter()
        if started - self._gap_sought < _GAP_PAUSE or self.readers.shut:
            return
        self._gap_sought = started
        begin, end = self.readers.slow_heads.pop()
        gaps = self.gaps or Gaps()
        begin = gaps.skip(begin)
        if begin >= end:
            return
        first = end
        for _ in range(2):  # the first time may be spent on reading a block from its file
            # A reader's time may have passed while it waited for others, but not a thread's own.
            before = thread_time()
            try:
                with self._database.iterator(start=begin, stop=end, include_value=False) as keys:
                    first = next(keys, end)
            except PLYVEL_ERRORS:
                return  # reads report it
            if first == begin or thread_time() - before < SLOW_SEEK:
                return
        self.gaps = gaps.adding(begin, first)

    @native_call
    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False, fill_cache: bool = True) -> Iterator[Pair]:
        """Yield the pairs of the newest state with begin <= key < end."""
        if self.readers.shut:
            raise StorageUnavailableError(CLOSED)
        return scan_pairs(self.readers, self.take(), begin, end, reverse, fill_cache)

    @native_call
    def scan_rows(self, begin: bytes, end: bytes, *, keyed: bool) -> Iterator[RawRows]:
        """Yield the rows with begin <= key < end, many at once, of a database without writers; keys only if `keyed`."""
        if begin >= end:
            return
        if self.readers.shut:
            raise StorageUnavailableError(CLOSED)
        try:
            with self._database.iterator(
                start=begin, stop=end, include_key=keyed, verify_checksums=True, fill_cache=False
            ) as iterator:
                for rows in (rows_of_pairs if keyed else rows_of_values)(iterator):
                    yield rows
                    if self.readers.shut:
                        raise StorageUnavailableError(CLOSED)
        except PLYVEL_ERRORS as error:
            raise translated(error) from error

    @native_call
    def sizes(self, intervals: Sequence[tuple[bytes, bytes]]) -> list[int]:
        """Return the approximate size of each interval in the table files, in bytes."""
        if self.readers.shut:
            raise StorageUnavailableError(CLOSED)
        try:
            return [int(size) for size in self._database.approximate_sizes(*intervals)]
        except (plyvel.Error, RuntimeError) as error:
            raise translated(error) from error

    @native_upkeep
    def compact(self, first: bytes, last: bytes) -> None:
        """Merge the table files that overlap the keys from `first` to `last`, both included, down to one level.

        If LevelDB fails, this still returns, and the next write raises.
        """
        if self.readers.shut:
            raise StorageUnavailableError(CLOSED)
        try:
            self._database.compact_range(start=first, stop=last)
        except (plyvel.Error, RuntimeError) as error:
            raise translated(error) from error

    def close(self, seconds: float = 30.0) -> bool:
        """Close the database once the last reader has left it; its snapshots and iterators raise from then on.

        Returns false if a reader did not leave in time: the database stays open, and unusable.
        """
        self.readers.shut = True
        if not wait_for_native_calls(seconds):
            return False
        if can_compact():
            self._database.close()
            note_closed(self.path)
        else:
            self.abandon()
        self.readers.parked.clear()
        return True

    def abandon(self) -> None:
        """Leave the database unchanged in a forked process: closing it could wait for threads that do not exist."""
        self.readers.shut = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))


@native_call
def scan_pairs(
    readers: Readers, raw: RawSnapshot, begin: bytes, end: bytes, reverse: bool, fill_cache: bool
) -> Iterator[Pair]:
    """Yield the pairs of a snapshot with begin <= key < end, until the database is closed."""
    if begin >= end:
        return
    if readers.shut:
        raise StorageUnavailableError(CLOSED)
    started = perf_counter()
    try:
        iterator = raw.iterator(start=begin, stop=end, reverse=reverse, verify_checksums=True, fill_cache=fill_cache)
        try:
            first = next(iterator, None)
            if not reverse and perf_counter() - started >= SLOW_SEEK:
                readers.slow_heads.append((begin, end))
            if first is not None:
                yield first
                if readers.shut:
                    raise StorageUnavailableError(CLOSED)
                for pair in iterator:
                    yield pair
                    if readers.shut:
                        raise StorageUnavailableError(CLOSED)
            elif reverse:
                # plyvel 1.5.1 finds nothing backwards where the only key is the first of the interval.
                value = raw.get(begin)
                if value is not None:
                    yield begin, value
        finally:
            iterator.close()
    except (plyvel.Error, RuntimeError) as error:
        raise translated(error) from error


CLOSED = "the database was closed"
_DAMAGED_TABLE = re.compile(r"\.(ldb|sst): (No such file or directory|Invalid argument)")
"""A table file that is gone or too short: LevelDB maps it into memory, and was about to read past its end."""
PLYVEL_ERRORS = (plyvel.Error, RuntimeError)
"""The errors of plyvel; RuntimeError after `close`."""


def translated(error: Exception) -> StructableError:
    """Return structable's error for plyvel's."""
    if isinstance(error, plyvel.CorruptionError):
        return DataCorruptionError(f"the LevelDB database is damaged: {error}")
    if isinstance(error, StructableError):
        return error
    if isinstance(error, plyvel.IOError) and _DAMAGED_TABLE.search(str(error)):
        return DataCorruptionError(f"the LevelDB database has lost a table file, or part of one: {error}")
    return StorageUnavailableError(f"LevelDB: {error}")


def _open_error(path: Path, error: Exception) -> StructableError:
    text = str(error)
    if isinstance(error, plyvel.CorruptionError) or "does not exist (create_if_missing is false)" in text:
        return DataCorruptionError(f"the LevelDB database in {path} is damaged: {text}")
    if "lock" in text.lower() and ("temporarily unavailable" in text or "already held" in text):
        return DatabaseLockedError(f"another program has the LevelDB database in {path} open: {text}")
    if isinstance(error, plyvel.IOError) and (
        ("No such file" in text and "LOCK" not in text) or _DAMAGED_TABLE.search(text)
    ):
        return DataCorruptionError(f"the LevelDB database in {path} has lost a file: {text}")
    return StorageUnavailableError(f"cannot open the LevelDB database in {path}: {text}")
