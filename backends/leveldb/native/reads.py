"""`ReadSwitch`: directs reads of the newest state, and can redirect them while threads are reading."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi import StorageUnavailableError

from .database import CLOSED, PLYVEL_ERRORS, Database, RawSnapshot, translated
from .native_guard import native_call, wait_for_native_calls

READERS_LEAVE = 30.0
"""Seconds to wait for threads to return from LevelDB."""


class ReadSwitch:
    """Sends reads to the newest state of a database or to a frozen one, or blocks them.

    `wait` waits until the database may be read, and returns it.
    """

    def __init__(self, wait: Callable[[], Database]) -> None:
        self._wait = wait
        self._read: Callable[[bytes], bytes | None] = self._get_when_open
        self.take: Callable[[], RawSnapshot] = self._take_when_open
        """Returns a snapshot of the newest state; for guarded functions only, which must not keep it."""

    @native_call
    def get(self, key: bytes) -> bytes | None:
        try:
            return self._read(key)
        except PLYVEL_ERRORS as error:
            raise translated(error) from error

    # A waiting reader is not inside a native call: the database may be frozen or closed before it continues.

    def _get_when_open(self, key: bytes) -> bytes | None:
        database, read = self._wait(), self._read
        return database.get(key) if read == self._get_when_open else read(key)

    def _take_when_open(self) -> RawSnapshot:
        database, take = self._wait(), self.take
        if take != self._take_when_open:
            return take()
        if database.readers.shut:
            raise StorageUnavailableError(CLOSED)
        return database.take()

    def serve(self, database: Database) -> None:
        self._read = database.read
        self.take = database.take

    def freeze(self, raw: RawSnapshot) -> None:
        """Send reads to one state, and wait until no thread reads a newer one."""
        self._read = raw.get
        self.take = lambda: raw
        if not wait_for_native_calls(READERS_LEAVE, newest_state=True):
            raise StorageUnavailableError("a reader did not return from LevelDB")

    def withhold(self) -> None:
        self._read, self.take = self._get_when_open, self._take_when_open
