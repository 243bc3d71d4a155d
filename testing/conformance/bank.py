"""The bank that concurrency tests use, on threads and on processes: money moves, and its sum never changes."""

from __future__ import annotations

import random
from typing import cast

from structable.spi import Field, Storage, TableSpecification, Transaction

ACCOUNTS = 8
TOTAL = ACCOUNTS * 100

BANK = TableSpecification(
    "bank",
    [Field.int("account"), Field.long("balance"), Field.long("transfers"), Field.string("last")],
    ["account"],
    ["balance"],
)


def open_bank(storage: Storage) -> None:
    """Create the table with 100 on each account."""
    storage.admin.create(BANK)
    storage.table("bank").upsert_many(
        [{"account": account, "balance": 100, "transfers": 0} for account in range(ACCOUNTS)]
    )


def transfer(transaction: Transaction, seed: int) -> None:
    """Move some money between two accounts, both of which are read and written."""
    chance = random.Random(seed)
    giver, taker = chance.sample(range(ACCOUNTS), 2)
    table = transaction.table("bank")
    rows = {row["account"]: row for row in table.multi_read([(giver,), (taker,)])}
    amount = chance.randint(0, cast("int", rows[giver]["balance"]))
    for account, change in ((giver, -amount), (taker, amount)):
        balance, transfers = cast("int", rows[account]["balance"]), cast("int", rows[account]["transfers"])
        table.upsert({"account": account, "balance": balance + change, "transfers": transfers + 1})


def balances(transaction: Transaction) -> dict[int, int]:
    """Return all balances."""
    rows = transaction.table("bank").scan(columns=["balance"])
    return {cast("int", row["account"]): cast("int", row["balance"]) for row in rows}


def check_books(transaction: Transaction) -> int:
    """Check the sum and the index of one snapshot, and return how often accounts were touched."""
    table = transaction.table("bank")
    found = balances(transaction)
    if len(found) != ACCOUNTS or sum(found.values()) != TOTAL:
        raise AssertionError(f"the sum is {sum(found.values())} of {len(found)} accounts, not {TOTAL}: {found}")
    by_index = [(row["balance"], row["account"]) for row in table.scan(order_by="balance")]
    if by_index != sorted((balance, account) for account, balance in found.items()):
        raise AssertionError(f"the index holds {by_index}, the rows hold {found}")
    for balance in {*found.values(), -1}:
        accounts = [row["account"] for row in table.scan_index("balance", balance)]
        if accounts != [account for account, other in sorted(found.items()) if other == balance]:
            raise AssertionError(f"the index has {accounts} for the balance {balance}, the rows hold {found}")
    return sum(cast("int", row["transfers"]) for row in table.scan())
