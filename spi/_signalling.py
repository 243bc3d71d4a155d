"""`SignallingStorage`: signals of this process, for the storage of a backend that has none."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from weakref import WeakSet

from ._delegation import DelegatingStorage
from ._errors import StorageUnavailableError, TransactionClosedError, UnsupportedOperationError
from ._positions import FeedPosition
from ._rules.signals import check_channel, check_channels, feeds_of
from ._signals import Listener, LocalListener, LocalSignals
from ._storage import Storage
from ._table import StructuredTable
from ._transactions import Isolation, Transaction


class _SignallingTransaction(Transaction):
    """A transaction whose commit is followed by signals."""

    __slots__ = ("_channels", "_read_only", "_signals", "_transaction")

    def __init__(self, transaction: Transaction, signals: LocalSignals, read_only: bool) -> None:
        self._transaction = transaction
        self._read_only = read_only
        self._signals = signals
        self._channels: set[str] = set()

    def table(self, name: str) -> StructuredTable:
        return self._transaction.table(name)

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    def signal(self, channel: str) -> None:
        if self._transaction.closed:
            raise TransactionClosedError("the transaction has ended; begin a new one")
        if self._read_only:
            raise UnsupportedOperationError("the transaction is read-only; begin one with read_only=False to signal")
        self._channels.add(check_channel(channel))

    @property
    def closed(self) -> bool:
        return self._transaction.closed

    def commit(self) -> None:
        self._transaction.commit()
        self._signals.send(self._channels)

    def rollback(self) -> None:
        self._transaction.rollback()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = self._transaction.closed
        self._transaction.__exit__(kind, error, traceback)
        if error is None and not ended:
            self._signals.send(self._channels)


class SignallingStorage(DelegatingStorage):
    """A storage that passes all calls on to another one, and wakes listeners of this process after commits.

    Its own commits signal no `feed/TABLE`: a backend with change feeds does that itself.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._signals = LocalSignals.of(storage.url)
        self._listeners: WeakSet[LocalListener] = WeakSet()

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return _SignallingTransaction(self._storage.transaction(isolation, read_only), self._signals, read_only)

    def listen(self, channels: Iterable[str]) -> Listener:
        if self._storage.closed:
            raise StorageUnavailableError(f"the storage {self.url} was closed")
        names = check_channels(channels)
        for table in feeds_of(names):
            self.changes(table).earliest()  # there is one
        listener = self._signals.listen(names)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        self._storage.close()
