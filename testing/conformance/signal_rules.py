"""Rules of signals: a commit wakes its listeners, a rollback wakes none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from structable.spi import (
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableNotFoundError,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
    connect,
)
from structable.spi.arrow import rows_to_batches

from .clients import StoreProcess
from .concurrency import at_once
from .feed_case import LONGEST, PRODUCERS, FeedCase, with_feed
from .processes import ForkCases
from .samples import ITEMS

_NAMES = ["", "x" * 201, "a\0b", "\ud800", None, 1, b"a"]
_ROUNDS = 20


def _signal(storage: Storage, channel: str) -> None:
    with storage.transaction() as transaction:
        transaction.signal(channel)


class SignalRules(ForkCases, FeedCase):
    """Signals of this process, and with the capability `wakes` the signals of other processes."""

    def test_commit_wakes_the_listeners_of_its_channels(self, storage: Storage, storage_url: str) -> None:
        """A commit wakes the listeners of its channels, in other storages too, and rarely others."""
        with connect(storage_url) as other, ExitStack() as stack:
            listeners = [stack.enter_context(one.listen(["b", "a", "a"])) for one in (storage, other)]
            others = [stack.enter_context(storage.listen([f"other {number}"])) for number in range(20)]
            storage.admin.create(ITEMS)
            with storage.transaction() as transaction:
                transaction.table("items").upsert({"id": 1})
                transaction.signal("a")
                assert not any(listener.wait(0) for listener in listeners)
            assert all(listener.wait(LONGEST) for listener in listeners)
            transaction = other.transaction()
            transaction.signal("b")
            transaction.signal("a")
            transaction.commit()
            assert all(listener.wait(LONGEST) for listener in listeners)
            assert sum(listener.wait(0) for listener in others) <= 4

    def test_no_commit_no_signal(self, storage: Storage) -> None:
        """A rollback, an exception and a conflict wake no listener."""
        storage.admin.create(ITEMS)

        def roll_back(transaction: Transaction) -> None:
            transaction.rollback()

        def fail(transaction: Transaction) -> None:
            with transaction:
                raise LookupError

        def conflict(transaction: Transaction) -> None:
            transaction.table("items").upsert({"id": 1})
            storage.table("items").upsert({"id": 1})
            transaction.commit()

        ends: list[tuple[Callable[[Transaction], None], type[Exception] | None]] = [
            (roll_back, None),
            (fail, LookupError),
        ]
        if self.capabilities.writes_never_wait:
            ends.append((conflict, TransactionConflictError))
        with storage.listen(["a"]) as listener:
            for end, error in ends:
                transaction = storage.transaction()
                transaction.signal("a")
                if error is None:
                    end(transaction)
                else:
                    with pytest.raises(error):
                        end(transaction)
            assert not listener.wait(0)

    def test_transactions_that_cannot_signal(self, storage: Storage, storage_url: str) -> None:
        """A read-only transaction, a read-only storage and a transaction that has ended refuse to signal."""
        with storage.transaction(read_only=True) as transaction, pytest.raises(UnsupportedOperationError):
            transaction.signal("a")
        with pytest.raises(TransactionClosedError):
            transaction.signal("a")
        with connect(storage_url, read_only=True) as reader, reader.listen(["a"]) as listener:
            with reader.transaction() as transaction, pytest.raises(UnsupportedOperationError):
                transaction.signal("a")
            assert not listener.wait(0)

    @pytest.mark.parametrize("name", _NAMES, ids=repr)
    def test_names_of_channels(self, storage: Storage, name: str) -> None:
        """A channel has 1 to 200 characters, no NULs and no lone surrogates; a listener has at least one channel."""
        with storage.transaction() as transaction, pytest.raises(ValueError, match=r"the channel is .*; it must"):
            transaction.signal(name)
        with pytest.raises(ValueError, match=r"the channel is .*; it must"):
            storage.listen([name])
        mistaken: list[Any] = ["a", 1, []]
        for channels in mistaken:
            with pytest.raises(ValueError, match="channels"):
                storage.listen(channels)
        longest = "ä" * 200
        with storage.listen([longest]) as listener:
            for seconds in (-1, float("nan"), "1", True, None):
                with pytest.raises(ValueError, match="timeout"):
                    listener.wait(seconds)  # type: ignore[arg-type]
            _signal(storage, longest)
            assert listener.wait(LONGEST)
            _signal(storage, longest)
            assert listener.wait(float("inf"))

    @pytest.mark.parametrize("producer", PRODUCERS)
    def test_commits_signal_the_feed_of_their_table(self, fed: Storage, producer: str) -> None:
        """Commits of transactions, of the auto-commit view and of jobs signal `feed/TABLE`, and reads do not."""
        fed.admin.create(with_feed(ITEMS, producer))
        table = fed.table("items")
        table.upsert({"id": 1})

        def in_transaction() -> None:
            with fed.transaction() as transaction:
                transaction.table("items").upsert({"id": 1, "n": 2})

        def in_job() -> None:
            job = fed.begin_write("items", mode="upsert", job_id=self.fresh_id())
            assert fed.commit_write(job, [fed.stage(job, 0, 0, rows_to_batches(ITEMS, [{"id": 2}], ["id"]))])

        with fed.listen(["feed/items"]) as listener:
            writes: list[Callable[[], object]] = [
                lambda: table.upsert({"id": 1, "n": 1}),
                lambda: table.upsert_many([{"id": 1, "n": 3}, {"id": 3}]),
                lambda: table.increment((1,), "n"),
                lambda: table.delete((3,)),
                in_transaction,
                in_job,
            ]
            for write in writes:
                write()
                assert listener.wait(LONGEST)
            with fed.transaction() as transaction:
                transaction.table("items").read((1,))
            table.read((1,))
            assert not listener.wait(0)

    def test_feeds_that_are_not_there(self, fed: Storage) -> None:
        """To listen to the feed of a table, the table must exist and have a feed."""
        with pytest.raises(TableNotFoundError):
            fed.listen(["a", "feed/items"])
        fed.admin.create(ITEMS)
        with pytest.raises(UnsupportedOperationError):
            fed.listen(["feed/items"])

    def test_close_wakes_a_waiter(self, storage: Storage, storage_url: str) -> None:
        """A waiter returns false once the listener or its storage is closed, and so do later calls."""
        storage.listen(["a"]).close()
        with connect(storage_url) as other:
            one, two = other.listen(["a"]), other.listen(["a", "b"])
            with ThreadPoolExecutor(2) as threads:
                waiting = [threads.submit(listener.wait, LONGEST) for listener in (one, two)]
                one.close()
                assert waiting[0].result() is False
                assert not waiting[1].done()
                other.close()
                assert waiting[1].result() is False
            assert [listener.wait(LONGEST) for listener in (one, two)] == [False, False]
            two.close()
            with pytest.raises(StorageUnavailableError):
                other.listen(["a"])

    def test_no_commit_is_slept_through(self, storage: Storage) -> None:
        """A loop that looks after each wait sees all commits of threads: no signal between look and wait is lost."""
        storage.admin.create(ITEMS)
        count = 4 * _ROUNDS
        ended = threading.Event()

        def commit(thread: int) -> None:
            for number in range(_ROUNDS):
                with storage.transaction() as transaction:
                    transaction.table("items").upsert({"id": thread * _ROUNDS + number})
                    transaction.signal("a")

        def follow() -> int:
            with storage.listen(["a"]) as listener:
                ended.set()
                while storage.table("items").count() < count:
                    assert listener.wait(LONGEST)
            return storage.table("items").count()

        with ThreadPoolExecutor(1) as threads:
            following = threads.submit(follow)
            ended.wait(LONGEST)
            at_once(4, commit)
            assert following.result() == count

    def test_other_processes_wake(self, peer: StoreProcess, fed: Storage) -> None:
        """Commits of other processes wake listeners, also of one that used the table before it had a listener."""
        self.require("wakes")
        assert fed.wakes
        fed.admin.create(with_feed(ITEMS))
        peer.ask("upsert", "items", {"id": 1})
        with fed.listen(["a", "feed/items"]) as listener:
            for number in range(3):
                peer.ask("upsert", "items", {"id": 1, "n": number})
                assert listener.wait(LONGEST)
                peer.ask("signal", "a")
                assert listener.wait(LONGEST)
        with fed.listen(["a"]) as listener:
            peer.ask("signal", "a")
            assert listener.wait(LONGEST)

    def test_inherited_listener_is_closed(self, storage: Storage, forkable: StructuredTable) -> None:
        """In a forked process an inherited listener is closed; the parent's continues."""
        with storage.listen(["a"]) as listener:
            assert self.in_a_fork(lambda: listener.wait(LONGEST)) is False
            assert self.in_a_fork(listener.close) is None
            assert self.in_a_fork(lambda: storage.listen(["b"])) == StorageUnavailableError.__name__
            _signal(storage, "a")
            assert listener.wait(LONGEST)
