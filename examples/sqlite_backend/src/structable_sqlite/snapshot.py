"""`SQLiteSnapshot`: a read transaction on a separate connection. In WAL mode commits do not disturb it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from structable.backends.ordered import EngineSnapshot, Pair
from structable.spi import TransactionClosedError

from .database import Database, Reader
from .errors import translated


class SQLiteSnapshot(EngineSnapshot):
    """The newest state at the time of construction. `number` is the number of commits in it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reader: list[Reader] = []
        self._cursors: set[sqlite3.Cursor] = set()
        self._reader.append(database.take())
        try:
            self.renew()
        except BaseException:
            self.close()
            raise

    def renew(self) -> None:
        """Become the newest state."""
        with translated(self._database.path):
            self.connection.rollback()
            self.connection.execute("BEGIN")  # SQLite takes the snapshot with the first read:
            self.number, self.epoch = self.connection.execute("SELECT number, epoch FROM state").fetchone()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, while the snapshot is open."""
        self._database.require_open()
        try:
            return self._reader[0].connection
        except IndexError:
            raise TransactionClosedError("the snapshot was closed") from None

    def get(self, key: bytes) -> bytes | None:
        with translated(self._database.path):
            row = self.connection.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        order = "DESC" if reverse else "ASC"
        query = f"SELECT key, value FROM pairs WHERE key >= ? AND key < ? ORDER BY key {order}"
        with translated(self._database.path):
            cursor = self.connection.execute(query, (begin, end))
            self._cursors.add(cursor)
            try:
                for pair in cursor:  # noqa: UP028 - `yield from` would close the cursor, perhaps too late
                    yield pair
            finally:
                if cursor in self._cursors:
                    self._cursors.discard(cursor)
                    cursor.close()

    def close(self) -> None:
        try:
            reader = self._reader.pop()  # atomic: any thread may close, even two at once
        except IndexError:
            return
        cursors, self._cursors = self._cursors, set()
        for cursor in cursors:
            cursor.close()  # an open one would keep the read transaction for the next user of the connection
        self._database.give(reader)

    def __del__(self) -> None:
        self.close()
