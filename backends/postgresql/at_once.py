"""`AtOnce`: the auto-commit views of a storage, for bodies with a single write."""

from __future__ import annotations

from structable.spi import FeedPosition, Storage, StructuredTable, Transaction, UnsupportedOperationError
from structable.spi.authors import check_channel

from .driver.signals import ServerSignals


class AtOnce(Transaction):
    """Commits each write at its call, which spares the objects of a transaction. Threads may share it."""

    __slots__ = ("_signals", "_storage")

    def __init__(self, storage: Storage, signals: ServerSignals) -> None:
        self._storage = storage
        self._signals = signals

    def table(self, name: str) -> StructuredTable:
        return self._storage.table(name)

    def position(self, table: str) -> FeedPosition:
        raise UnsupportedOperationError(f"position({table!r}) of a single write: begin a transaction")

    def signal(self, channel: str) -> None:
        self._signals.send((check_channel(channel),))

    @property
    def closed(self) -> bool:
        return False

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass
