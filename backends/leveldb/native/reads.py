"""`ReadSwitch`: what reads of the newest state go through; it can be turned to another state while it is used."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi.errors import StorageUnavailableError

from .database import CLOSED, PLYVEL_ERRORS, Database, RawSnapshot, translated
from .native_guard import native_call, wait_for_native_calls

__all__ = ["READERS_LEAVE", "ReadSwitch"]

READERS_LEAVE = 30.0
"""Seconds to wait for threads to return from LevelDB."""


class ReadSwitch:
    """Sends reads to the newest state of a database, or to a frozen one, or makes them wait.

    Parameters
    ----------
    wait : callable
        Waits until the database may be read, and returns it.
    """

    def __init__(self, wait: Callable[[], Database]) -> None:
        # A reader that waits is not inside a native call: the database may be frozen, or closed, before it goes on.

        def get_when_open(key: bytes) -> bytes | None:
            database, target = wait(), read
            return database.get(key) if target is get_when_open else target(key)

        def take_when_open() -> RawSnapshot:
            database, target = wait(), self.take
            if target is not take_when_open:
                return target()
            if database.gate.shut:
                raise StorageUnavailableError(CLOSED)
            return database.take()

        read: Callable[[bytes], bytes | None] = get_when_open

        @native_call
        def get(key: bytes) -> bytes | None:
            try:
                return read(key)
            except PLYVEL_ERRORS as error:
                raise translated(error) from error

        def turn(target: Callable[[bytes], bytes | None]) -> None:
            nonlocal read
            read = target

        self.get: Callable[[bytes], bytes | None] = get
        """Returns the newest value of a key. It stays the same function, so callers may keep it."""
        self.take: Callable[[], RawSnapshot] = take_when_open
        """Returns a snapshot of the newest state; to be called by guarded functions, and not to be kept."""
        self._turn = turn
        self._when_open = get_when_open, take_when_open

    def serve(self, database: Database) -> None:
        """Send reads to the newest state."""
        self._turn(database.read)
        self.take = database.take

    def freeze(self, raw: RawSnapshot) -> None:
        """Send reads to one state, and wait until no thread reads a newer one.

        Raises
        ------
        StorageUnavailableError
            If a reader does not return in time.
        """
        self._turn(raw.get)
        self.take = lambda: raw
        if not wait_for_native_calls(READERS_LEAVE, generators=False):
            raise StorageUnavailableError("a reader did not return from LevelDB")

    def withhold(self) -> None:
        """Make reads wait."""
        get, self.take = self._when_open
        self._turn(get)
