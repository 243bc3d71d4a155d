"""A copy on another store, from a snapshot and the feed, while eight writers run: equal at the end.

`STRUCTABLE_TEST_COPY_SECONDS` (default 2) is how long the writers run.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from structable.spi import Change, FeedPosition, Field, Row, RowKind, Storage, TableSpecification, Transaction

SECONDS = float(os.environ.get("STRUCTABLE_TEST_COPY_SECONDS", "2"))
WRITERS = 8
KEYS = 40
ACCOUNTS = TableSpecification(
    "accounts",
    [Field.long("id"), Field.long("balance"), Field.string("owner")],
    primary_key=["id"],
    indexes=["owner"],
    options={"changelog-producer": "lookup"},
)
COPY = ACCOUNTS.evolve(options={})
ROUTES = [*pairwise(["memory", "leveldb", "postgresql", "hbase"]), ("hbase", "memory")]


@pytest.mark.parametrize(("source", "target"), ROUTES)
def test_copy_while_eight_writers_run(stores: dict[str, Storage], source: str, target: str) -> None:
    storage, copies = stores[source], stores[target]
    storage.admin.create(ACCOUNTS)
    copies.admin.create(COPY.evolve(name="copy"))
    storage.table("accounts").upsert_many({"id": number, "balance": 100, "owner": "first"} for number in range(KEYS))
    end = time.monotonic() + SECONDS

    def write(seed: int) -> int:
        chance, commits = random.Random(seed), 0
        while time.monotonic() < end:
            storage.run(lambda tx: _change(tx, chance))
            commits += 1
        return commits

    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write, seed) for seed in range(WRITERS)]
        with storage.transaction(read_only=True) as tx:
            position = tx.position("accounts")
            rows = list(tx.table("accounts").scan())
        copies.table("copy").upsert_many(rows)
        changes: list[Change] = []
        feed = storage.changes("accounts")
        while not all(writer.done() for writer in writers) or position < feed.latest():
            until = feed.advance(position, 500)
            part = list(feed.read(position, until))
            copies.table("copy").apply_changes(part)
            changes += part
            position = until
    assert sum(writer.result() for writer in writers) >= WRITERS
    assert list(copies.table("copy").scan()) == list(storage.table("accounts").scan())
    _check(changes, rows, position)


def _change(tx: Transaction, chance: random.Random) -> None:
    """Move money between two accounts, or add or remove one that has none."""
    table = tx.table("accounts")
    one, other = chance.sample(range(KEYS), 2)
    if chance.random() < 0.2:
        key = (KEYS + chance.randrange(10),)
        if table.read(key) is None:
            table.insert({"id": key[0], "balance": 0, "owner": f"owner {chance.random()}"})
        else:
            table.delete(key)
        return
    payer, payee = table.read((one,)), table.read((other,))
    assert payer is not None
    assert payee is not None
    table.upsert({"id": one, "balance": payer.balance - 1})
    table.update({"id": other, "balance": payee.balance + 1})


def _check(changes: list[Change], rows: list[Row], position: FeedPosition) -> None:
    """Check the changes of all versions: in their order, each preimage the row before, and no money lost."""
    state = {row.id: dict(row) for row in rows}
    sums: Counter[int | None] = Counter()
    versions = [change.version or 0 for change in changes]
    assert versions == sorted(versions)
    assert not versions or versions[-1] <= position.version
    for change in changes:
        row, taken = dict(change.row), change.kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
        amount = change.row["balance"]
        assert isinstance(amount, int)
        sums[change.version] += -amount if taken else amount
        if taken:
            assert state.pop(row["id"]) == row
        else:
            assert row["id"] not in state
            state[row["id"]] = row
    assert set(sums.values()) <= {0}
