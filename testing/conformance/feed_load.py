"""A load on a table with a change feed, on threads and on processes: money moves, and every version balances."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import cast

from structable.spi import Change, Field, Storage, TableSpecification, Transaction

ACCOUNTS = 40
CASH = TableSpecification(
    "cash",
    [Field.int("account"), Field.long("balance"), Field.string("last")],
    ["account"],
)


def open_cash(storage: Storage, spec: TableSpecification) -> None:
    """Create the table, CASH with a feed, with 100 on each account."""
    storage.admin.create(spec)
    storage.table("cash").upsert_many([{"account": account, "balance": 100} for account in range(ACCOUNTS)])


def move(transaction: Transaction, seed: int) -> None:
    """Move money by increments, or by reading and writing; sometimes an account is deleted or added."""
    chance = random.Random(seed)
    giver, taker = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randint(1, 9)
    table = transaction.table("cash")
    kind = chance.random()
    if kind < 0.4:
        table.increment((giver,), "balance", -amount)
        table.increment((taker,), "balance", amount)
        return
    rows = {row["account"]: cast("int", row["balance"]) for row in table.multi_read([(giver,), (taker,)])}
    given = rows.get(giver, 0)
    if kind < 0.5:
        amount = given
        table.delete((giver,))
    else:
        table.upsert({"account": giver, "balance": given - amount, "last": "x" * (seed % 7)})
    table.upsert({"account": taker, "balance": rows.get(taker, 0) + amount})


def move_often(storage: Storage, first_seed: int, rounds: int) -> None:
    """Make the given number of transfers, however contended."""
    for number in range(rounds):
        storage.run(partial(move, seed=first_seed + number), max_attempts=10_000, deadline=120.0)


def check_versions(changes: Iterable[Change]) -> int:
    """Check that the balances of every version add up to nothing; return the number of versions."""
    sums: dict[int | None, int] = defaultdict(int)
    for change in changes:
        balance = cast("int", change.row["balance"])
        sums[change.version] += -balance if change.kind.retracts else balance
    wrong = {version: total for version, total in sums.items() if total}
    if wrong:
        raise AssertionError(f"versions that do not balance: {wrong}")
    return len(sums)
