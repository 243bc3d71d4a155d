"""Signals of this process, for the storage of a backend that has none of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from structable.backends.memory.backend import MemoryBackend
from structable.spi import (
    FeedPosition,
    Field,
    Isolation,
    Storage,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    Transaction,
    UnsupportedOperationError,
    connect,
)
from structable.spi._signals import Signalling
from structable.spi.authors import DelegatingStorage, LocalSignals

LONGEST = 30.0


class _PlainTransaction(Transaction):
    """A transaction of a backend without signals."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def table(self, name: str) -> StructuredTable:
        return self._transaction.table(name)

    def position(self, table: str) -> FeedPosition:
        return self._transaction.position(table)

    def commit(self) -> None:
        self._transaction.commit()

    def rollback(self) -> None:
        self._transaction.rollback()

    @property
    def closed(self) -> bool:
        return self._transaction.closed


class Plain(DelegatingStorage):
    """The storage of a backend without signals."""

    listen = Signalling.listen

    def transaction(self, isolation: Isolation = Isolation.SNAPSHOT, read_only: bool = False) -> Transaction:
        return _PlainTransaction(self._storage.transaction(isolation, read_only))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memory stores have no signals of their own."""
    made = MemoryBackend.connect
    monkeypatch.setattr(MemoryBackend, "connect", lambda self, url, options: Plain(made(self, url, options)))


@pytest.fixture
def storage(plain: None) -> Iterator[Storage]:
    with connect("memory://plain-signals") as storage:
        yield storage


def test_connect_adds_signals_of_this_process(storage: Storage) -> None:
    with connect("memory://plain-signals") as other, other.listen(["a", "b"]) as listener:
        for commits in (True, False):
            transaction = storage.transaction()
            transaction.signal("a")
            assert not listener.wait(0)
            if commits:
                transaction.commit()
            else:
                transaction.rollback()
            assert listener.wait(0) is commits
        with storage.transaction() as transaction:
            transaction.signal("b")
        assert listener.wait(LONGEST)
        storage.run(lambda transaction: None)
        assert not listener.wait(0)
        other.close()
        assert not listener.wait(LONGEST)


def test_to_listen_to_a_feed_it_must_be_there(storage: Storage) -> None:
    with pytest.raises(TableNotFoundError):
        storage.listen(["a", "feed/t"])
    storage.admin.create(TableSpecification("t", [Field.int("k")], ["k"]))
    with pytest.raises(UnsupportedOperationError):
        storage.listen(["feed/t"])
    storage.admin.create_or_update(
        TableSpecification("t", [Field.int("k")], ["k"], options={"changelog-producer": "input"})
    )
    storage.listen(["feed/t"]).close()


def test_without_connect_nobody_is_woken() -> None:
    with connect("memory://") as inner:
        plain = Plain(inner)
        with plain.listen(["a"]) as listener, plain.transaction() as transaction:
            transaction.signal("a")
        assert not listener.wait(0)
        with plain.transaction() as transaction, pytest.raises(ValueError, match="the channel is ''"):
            transaction.signal("")


def test_forgotten_listeners_are_let_go() -> None:
    signals = LocalSignals()
    listeners = [signals.listen([f"{number}"]) for number in range(10)]
    listeners[0].close()
    assert signals.channels == {f"{number}" for number in range(1, 10)}
    del listeners[1:]
    signals.listen(["last"])
    assert signals.channels == frozenset()
    assert len(signals._listeners) == 1
