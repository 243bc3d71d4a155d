"""A process is killed at each step of the protocol; others read a sound bank at once, and write on soon after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from structable.backends.hbase.failpoints import failpoints
from structable.spi import Storage, TransactionConflictError, connect

from .support.bank import OPENING, balances, open_bank, quick, require_sound, transfer
from .support.bank_killing import killed, stalled_commit, write_on
from .support.internals import collect_garbage, drained, engine_of, stall_beside_janitor

_ACCOUNTS = 12


@contextmanager
def bank(url: str, accounts: int = _ACCOUNTS) -> Iterator[Storage]:
    with connect(url) as storage:
        open_bank(storage, accounts)
        yield storage


@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_record", 1, False),
        ("after_intents", 1, False),
        ("after_timestamp", 1, False),
        ("after_readback", 1, False),
        ("before_commit", 1, False),
        ("after_commit", 1, True),
        ("before_finalise", 1, True),
        ("mid_finalise", 1, True),
        ("mid_finalise", 4, True),
        ("after_finalise", 1, True),
        ("after_finalised", 1, True),
    ],
)
def test_killed_in_a_commit(hbase_url: str, point: str, number: int, committed: bool) -> None:
    """From its process's death on a transfer is visible whole or not at all; its rows can be written soon after."""
    url = quick(hbase_url)
    with bank(url) as storage:
        killed("transfer", url, point, number)
        assert require_sound(storage, _ACCOUNTS) == ({"doomed"} if committed else set())
        with connect(url) as other:
            assert require_sound(other, _ACCOUNTS) == ({"doomed"} if committed else set())
        write_on(storage, _ACCOUNTS)


@pytest.mark.parametrize(("point", "number"), [("after_abort", 1), ("before_finalise", 1), ("mid_finalise", 2)])
def test_killed_in_an_abort(hbase_url: str, point: str, number: int) -> None:
    """An aborted transfer is never visible, however many of its intents are already removed."""
    url = quick(hbase_url)
    with bank(url) as storage:
        killed("conflict", url, point, number)
        assert require_sound(storage, _ACCOUNTS) == {"winner"}
        write_on(storage, _ACCOUNTS)
        assert "doomed" not in require_sound(storage, _ACCOUNTS)


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize(
    "point", ["after_record", "after_intents", "after_timestamp", "after_readback", "before_commit"]
)
def test_stalled_in_a_commit(hbase_url: str, point: str, cleaned: bool) -> None:
    """A transaction that stalls for longer than its lease is aborted by others, and gets an error."""
    url = quick(hbase_url)
    with bank(url) as storage, connect(quick(hbase_url, housekeeping=1000)) as other:
        transaction = other.transaction()
        transfer(transaction, "stalled", 0, 1, 3)
        with stalled_commit(transaction, point) as committing:
            storage.run(lambda another: transfer(another, "faster", 0, 1, 1), max_attempts=1_000)
            drained(storage)
            while cleaned and collect_garbage(storage).aborted:
                engine_of(other).transactions.session.heartbeat()
        with pytest.raises(TransactionConflictError):
            committing.result()
        assert require_sound(storage, _ACCOUNTS) == {"faster"}
        other.run(lambda another: transfer(another, "stalled", 0, 1, 3))
        assert require_sound(storage, _ACCOUNTS) == {"faster", "stalled"}
        assert len(engine_of(other).transactions.session.holders) <= 1


def test_stalled_in_a_commit_beside_its_own_janitor(hbase_url: str) -> None:
    """A process knows that its own transactions are alive, however long they take."""
    with bank(quick(hbase_url, lease=1)) as storage:
        transaction = storage.transaction()
        transfer(transaction, "stalled", 0, 1, 3)
        failpoints["after_timestamp"] = lambda: stall_beside_janitor(storage, "after_timestamp", 3)
        transaction.commit()
        assert "after_timestamp" not in failpoints
        assert require_sound(storage, _ACCOUNTS) == {"stalled"}


@pytest.mark.parametrize(("point", "number"), [("before_gc", 1), ("mid_gc", 1), ("mid_gc", 3), ("after_gc", 1)])
def test_killed_in_the_janitor(hbase_url: str, point: str, number: int) -> None:
    """Half-removed versions are never read."""
    # Neither this storage before the worker's death, nor the worker before its order, cleans up by itself.
    by_hand = quick(hbase_url, housekeeping=1000)
    with bank(by_hand) as storage, storage.transaction(read_only=True) as before:
        found = balances(before)
        killed("collect", by_hand, point, number)
        assert require_sound(storage, _ACCOUNTS) == {f"t{number}" for number in range(6)}
        assert balances(before) == found
        before.rollback()
        write_on(storage, _ACCOUNTS)


@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_listed", 1, False),
        ("bulk_locked", 1, False),
        ("bulk_prewritten", 1, False),
        ("before_commit", 1, False),
        ("after_commit", 1, True),
        ("bulk_committed", 1, True),
        ("mid_bulk_cleanup", 2, True),
    ],
)
def test_killed_in_a_write_job(hbase_url: str, point: str, number: int, committed: bool) -> None:
    """A job is visible whole or not at all, even while only a part of its rows is in place."""
    accounts = 1_200
    url = quick(hbase_url, lease=6)  # a job must send heartbeats meanwhile, even on a busy machine
    with bank(url, accounts) as storage:
        killed("job", url, point, number)
        expected = {account: OPENING + (1 if account % 2 else -1) * committed for account in range(accounts)}
        with storage.transaction(read_only=True) as transaction:
            assert balances(transaction) == expected
            banded = [
                int(str(row["id"]))
                for band in range(4)
                for row in transaction.table("accounts").scan_index("band", band)
            ]
            assert sorted(banded) == list(range(accounts))
        storage.run(
            lambda transaction: transfer(transaction, "next", 0, 1, 1),
            max_attempts=1_000,
        )
        while collect_garbage(storage).repaired:
            pass
        expected[0] -= 1
        expected[1] += 1
        with storage.transaction(read_only=True) as transaction:
            assert balances(transaction) == expected
