"""`Database`: the file with its tables, created and checked, and a pool of connections to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from structable.backends.base.slots import Slot, Slots
from structable.spi import DataCorruptionError, OptionValue, StorageUnavailableError, StoreNotFoundError
from structable.spi.authors import may_create

from .errors import translated

_APPLICATION = 0x53545242
_FORMAT = 1
_READERS = 64

# `changed` is the number of the commit that last changed a pair, `written` of the last one that did more than increment
# it. They precede the value, so that reading them does not read the value.
_TABLES = f"""
    PRAGMA synchronous = OFF;
    PRAGMA journal_mode = WAL;
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {_FORMAT};
    CREATE TABLE pairs (key BLOB PRIMARY KEY, changed INTEGER, written INTEGER, value BLOB) WITHOUT ROWID;
    CREATE TABLE spaces (space BLOB PRIMARY KEY, changed INTEGER) WITHOUT ROWID;
    CREATE TABLE state (number INTEGER, epoch INTEGER);
    INSERT INTO state VALUES (0, 0);
"""

_inherited: list[sqlite3.Connection] = []
"""SQLite forbids a forked process even to close a connection of its parent."""


class Reader:
    """A connection for reading, and its slot in the pool, which is free again once this is collected."""

    __slots__ = ("connection", "slot")

    def __init__(self, connection: sqlite3.Connection, slot: Slot) -> None:
        self.connection = connection
        self.slot = slot


class Database:
    """A file, up to 64 connections that read it, and one that writes it; safe to share between threads."""

    def __init__(self, path: Path, options: Mapping[str, OptionValue]) -> None:
        self.path = path
        self._options = options
        self._process = os.getpid()
        self._closed = False
        # The garbage collector may end a snapshot at any moment in any thread, which therefore takes no lock.
        self._idle: list[sqlite3.Connection] = []
        self._slots = Slots(_READERS)
        with translated(path):
            if not path.exists():
                if not may_create(options):
                    raise StoreNotFoundError(
                        f"no file {path}; connect without create=False or read_only=True to make it"
                    )
                self._create()
            self.writer = self._open()
            try:
                self._check_format()
            except BaseException:
                self.writer.close()
                raise

    def _create(self) -> None:
        """Create the file under another name and link it into place: no process sees a partial file, and one wins."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{self.path.name}.", dir=self.path.parent) as folder:
            new = Path(folder, "new")
            with closing(sqlite3.connect(new)) as connection:
                connection.executescript(_TABLES)
            with new.open("rb") as file:
                os.fsync(file.fileno())  # once, instead of SQLite's sync after each statement
            with suppress(FileExistsError):
                os.link(new, self.path)

    def _check_format(self) -> None:
        (application,) = self.writer.execute("PRAGMA application_id").fetchone()
        (version,) = self.writer.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise DataCorruptionError(f"{self.path} is an SQLite database of another application, not structable's")
        if version != _FORMAT:
            raise DataCorruptionError(f"{self.path} has format {version}, and this version reads {_FORMAT}")

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={'ro' if self._options['read_only'] else 'rw'}",
            uri=True,
            timeout=float(self._options["lock_timeout"]),
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._options['durability'] == 'machine' else 'NORMAL'}")
        return connection

    def take(self) -> Reader:
        """Return a connection for reading, to be returned to the pool."""
        self.require_open()
        timeout = float(self._options["pool_timeout"])
        slot = self._slots.wait(self._slots.take, timeout)
        if slot is None:
            busy = f"{_READERS} snapshots are open, and none was closed in {timeout:g} s (pool_timeout)"
            raise StorageUnavailableError(busy)
        with suppress(IndexError):
            return Reader(self._idle.pop(), slot)
        with translated(self.path):
            return Reader(self._open(), slot)

    def give(self, reader: Reader) -> None:
        """Take a connection back, and end its transaction."""
        connection = reader.connection
        if os.getpid() != self._process:
            _inherited.append(connection)
            return
        connection.rollback()
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        del reader.slot
        self._slots.wake()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Take a connection for the `with` block."""
        reader = self.take()
        try:
            with translated(self.path):
                yield reader.connection
        finally:
            self.give(reader)

    @property
    def closed(self) -> bool:
        """Whether the database was closed, or inherited through a fork."""
        return self._closed or os.getpid() != self._process

    def require_open(self) -> None:
        """Raise `StorageUnavailableError` if it is closed."""
        if self.closed:
            raise StorageUnavailableError(f"{self.path} was closed here, or opened by the process that forked this one")

    def close(self) -> None:
        """Close all connections; connections in use are closed on their return."""
        self._closed = True
        self.writer.close()
        while self._idle:
            self._idle.pop().close()
