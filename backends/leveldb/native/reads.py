"""`Access`: what reads of the newest state go through. It can be turned to another state while it is used."""

from __future__ import annotations

from collections.abc import Callable

from structable.spi.errors import StorageUnavailableError

from .database import CLOSED, PLYVEL_ERRORS, Database, RawSnapshot, translated
from .native_guard import border, wait_until_outside

__all__ = ["READERS_LEAVE", "Access"]

READERS_LEAVE = 30.0
"""Seconds that threads have to come back from LevelDB, where that is waited for."""


class Access:
    """Serves the newest state of a database, or a frozen one, or makes readers wait.

    Parameters
    ----------
    wait : callable
        Waits until the database may be read, and returns it.
    """

    def __init__(self, wait: Callable[[], Database]) -> None:
        # While they wait they do not count as inside: the database may be frozen, or closed, before they go on.

        def get_later(key: bytes) -> bytes | None:
            database, target = wait(), read
            return database.get(key) if target is get_later else target(key)

        def take_later() -> RawSnapshot:
            database, target = wait(), self.take
            if target is not take_later:
                return target()
            if database.gate.shut:
                raise StorageUnavailableError(CLOSED)
            return database.take()

        read: Callable[[bytes], bytes | None] = get_later

        @border
        def get(key: bytes) -> bytes | None:
            try:
                return read(key)
            except PLYVEL_ERRORS as error:
                raise translated(error) from error

        def turn(target: Callable[[bytes], bytes | None]) -> None:
            nonlocal read
            read = target

        self.get: Callable[[bytes], bytes | None] = get
        """Returns the newest value of a key. It stays the same function, so that callers may keep it."""
        self.take: Callable[[], RawSnapshot] = take_later
        """Returns a snapshot of the newest state; to be called by `border` functions, and not to be kept."""
        self._turn = turn
        self._later = get_later, take_later

    def serve(self, database: Database) -> None:
        """Let everybody read the newest state."""
        self._turn(database.read)
        self.take = database.take

    def freeze(self, raw: RawSnapshot) -> None:
        """Let everybody read one state, and wait until nobody is at reading a newer one.

        Raises
        ------
        StorageUnavailableError
            If a reader does not come back.
        """
        self._turn(raw.get)
        self.take = lambda: raw
        if not wait_until_outside(READERS_LEAVE, generators=False):
            raise StorageUnavailableError("a reader did not come back from LevelDB")

    def withhold(self) -> None:
        """Let readers wait."""
        get, self.take = self._later
        self._turn(get)
