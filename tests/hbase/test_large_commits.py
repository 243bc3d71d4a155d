"""Commits that find conflicts by the lists of recent writes are atomic, and lose no update."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from structable.spi import Field, Storage, TableSpecification, Transaction, TransactionConflictError, Value, connect

from .support.bank import open_bank, payday, quick, require_sound, transfer
from .support.bank_killing import killed, stalled_commit, write_on
from .support.internals import drained

_ACCOUNTS = 60
_TIMEOUT = 120


@pytest.fixture
def url(hbase_url: str) -> str:
    return quick(hbase_url)


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with connect(url) as storage:
        open_bank(storage, _ACCOUNTS)
        drained(storage)
        yield storage


@pytest.mark.parametrize(
    ("point", "number", "committed"),
    [
        ("after_record", 1, False),
        ("after_intents", 1, False),
        ("after_timestamp", 1, False),
        ("after_readback", 1, False),
        ("after_commit", 1, True),
        ("mid_finalise", 2, True),
    ],
)
def test_killed_in_a_large_commit(storage: Storage, url: str, point: str, number: int, committed: bool) -> None:
    """At whichever point its process dies, all or nothing of it is visible, and its rows can be written soon after."""
    killed("payday", url, point, number)
    found = require_sound(storage, _ACCOUNTS)
    assert len(found) == (_ACCOUNTS // 2 if committed else 0)
    with connect(url) as other:
        assert require_sound(other, _ACCOUNTS) == found
    write_on(storage, _ACCOUNTS)


@pytest.mark.parametrize("account", [0, _ACCOUNTS - 2])
@pytest.mark.parametrize("point", ["after_record", "after_intents", "after_timestamp"])
def test_a_rival_of_a_large_commit(storage: Storage, url: str, point: str, account: int) -> None:
    """Another writer of one of its rows is noticed at every stage of either commit."""
    with connect(url) as other:
        large = other.transaction()
        payday(large, "large", _ACCOUNTS)
        with stalled_commit(large, point) as committing:
            # The older one wins, so the rival retries until the lease of the stalled one expires.
            storage.run(lambda rival: transfer(rival, "rival", account, account + 1, 1), max_attempts=1_000)
        with pytest.raises(TransactionConflictError):
            committing.result()
    assert require_sound(storage, _ACCOUNTS) == {"rival"}
    write_on(storage, _ACCOUNTS)


def test_large_commits_side_by_side(storage: Storage, url: str) -> None:
    """Large and small transactions of several clients on the same rows, beside readers: every snapshot is sound."""
    ended = threading.Event()

    def pay(name: str, rounds: int) -> set[str]:
        done: set[str] = set()
        with connect(url) as own:
            for number in range(rounds):
                done |= own.run(partial(payday, name=f"{name}{number}", accounts=_ACCOUNTS), max_attempts=1_000)
        return done

    def move(rounds: int) -> set[str]:
        with connect(url) as own:
            for number in range(rounds):
                small = partial(transfer, name=f"small{number}", source=number, target=number + 7, amount=2)
                own.run(small, max_attempts=1_000)
        return {f"small{number}" for number in range(rounds)}

    def watch() -> int:
        seen: set[str] = set()
        while not ended.is_set():
            found = require_sound(storage, _ACCOUNTS)
            assert seen <= found
            seen = found
        return len(seen)

    with ThreadPoolExecutor(4) as pool:
        watching = pool.submit(watch)
        try:
            working = [pool.submit(pay, "a", 6), pool.submit(pay, "b", 6), pool.submit(move, 20)]
            done = set().union(*(one.result(_TIMEOUT) for one in working))
        finally:
            ended.set()
        watching.result(_TIMEOUT)
    assert require_sound(storage, _ACCOUNTS) == done


def test_large_commits_beside_changes_of_a_schema(storage: Storage, url: str) -> None:
    """No row written by an old schema lacks its index entry afterwards."""
    before = TableSpecification("notes", [Field.int("id"), Field.long("kind")], ["id"])
    after = TableSpecification("notes", [Field.int("id"), Field.long("kind")], ["id"], ["kind"])
    storage.admin.create(before)
    ended = threading.Event()

    def upsert(transaction: Transaction, rows: list[dict[str, Value]]) -> None:
        transaction.table("notes").upsert_many(rows)

    def write(first: int) -> int:
        rounds = 0
        with connect(url) as own:
            while not ended.is_set() or not rounds:
                rows: list[dict[str, Value]] = [
                    {"id": first + number, "kind": (rounds + number) % 5} for number in range(_ACCOUNTS)
                ]
                own.run(partial(upsert, rows=rows), max_attempts=1_000)
                rounds += 1
        return rounds

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, 0), pool.submit(write, _ACCOUNTS // 2)]
        try:
            storage.admin.create_or_update(after)
            storage.admin.drop_index("notes", "kind")
            storage.admin.create_or_update(after)
        finally:
            ended.set()
        assert all(one.result(_TIMEOUT) for one in writing)
    with storage.transaction(read_only=True) as transaction:
        table = transaction.table("notes")
        rows = list(table.scan())
        assert len(rows) == _ACCOUNTS + _ACCOUNTS // 2
        for kind in range(5):
            expected = [row for row in rows if row["kind"] == kind]
            assert list(table.scan_index("kind", kind)) == expected
