"""A bank: transfers between accounts, which an index finds by a digit of the balance, each noted in a ledger.

However often its clients die, its total stays what it was, its index says what its rows say, and a transfer is in the
ledger if and only if it is in the balances.
"""

from __future__ import annotations

from collections import Counter

from structable.spi import Field, Row, RowKind, Storage, TableSpecification, Transaction, Value

OPENING = 100
_QUICK: dict[str, float] = {"lease": 1, "session_timeout": 2, "late_writes": 0, "housekeeping": 0.3}
_BANDS = 4  # each transfer, of a small amount, changes an account's band
_ACCOUNTS = TableSpecification(
    "accounts", [Field.int("id"), Field.long("balance"), Field.long("band")], ["id"], ["band"]
)
_LEDGER = TableSpecification(
    "ledger", [Field.string("transfer"), Field.int("source"), Field.int("target"), Field.long("amount")], ["transfer"]
)


def quick(url: str, **options: float) -> str:
    """Return a URL whose clients are declared dead, and cleaned up after, at once; with other options where given."""
    text = "&".join(f"{name}={value:g}" for name, value in {**_QUICK, **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{text}"


def open_bank(storage: Storage, accounts: int, *, feeds: bool = False) -> None:
    """Make the tables, with change feeds if wanted, and the accounts."""
    options = {"changelog-producer": "lookup"} if feeds else None
    storage.admin.create(_ACCOUNTS.evolve(options=options))
    storage.admin.create(_LEDGER.evolve(options=options))
    storage.table("accounts").upsert_many(account(number, OPENING) for number in range(accounts))


def account(number: int, balance: int) -> dict[str, Value]:
    return {"id": number, "balance": balance, "band": balance % _BANDS}


def transfer(transaction: Transaction, name: str, source: int, target: int, amount: int) -> None:
    """Move an amount, within a transaction."""
    accounts = transaction.table("accounts")
    for number, change in ((source, -amount), (target, amount)):
        row = accounts.read((number,))
        assert row is not None
        accounts.upsert(account(number, int(str(row["balance"])) + change))
    transaction.table("ledger").insert({"transfer": name, "source": source, "target": target, "amount": amount})


def payday(transaction: Transaction, name: str, accounts: int) -> set[str]:
    """Move an amount from every other account to the next, within a transaction; return the names of the transfers."""
    names = {f"{name}-{number}": number for number in range(0, accounts - 1, 2)}
    for one, number in names.items():
        transfer(transaction, one, number, number + 1, 1)
    return set(names)


def balances(transaction: Transaction) -> dict[int, int]:
    """Return the balances at a snapshot."""
    return {int(str(row["id"])): int(str(row["balance"])) for row in transaction.table("accounts").scan()}


def require_fed(storage: Storage) -> None:
    """Check one snapshot of the bank against its change feeds, from their beginning: each transfer is in them whole."""
    with storage.transaction(read_only=True) as transaction:
        positions = {name: transaction.position(name) for name in ("accounts", "ledger")}
        states = {name: {row.key: dict(row) for row in transaction.table(name).scan()} for name in positions}
    sums: Counter[int] = Counter()
    transfers: Counter[int] = Counter()
    for name, position in positions.items():
        copy: dict[tuple[Value, ...], dict[str, Value]] = {}
        with storage.changes(name).read(until=position) as changes:
            for change in changes:
                assert change.version is not None
                assert isinstance(change.row, Row)
                row = dict(change.row)
                if change.kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                    assert copy.pop(change.row.key) == row
                else:
                    assert change.row.key not in copy
                    copy[change.row.key] = row
                if name == "accounts" and change.kind is not RowKind.INSERT:
                    sign = -1 if change.kind is RowKind.UPDATE_BEFORE else 1
                    sums[change.version] += sign * int(str(row["balance"]))
                    transfers[change.version] += sign == 1
                elif name == "ledger":
                    transfers[change.version] -= 2
        assert copy == states[name]
    # Of each commit, the accounts are in one feed, their transfer in the other, and nothing is lost between accounts.
    assert not any(sums.values())
    assert not any(transfers.values())


def require_sound(storage: Storage, accounts: int) -> set[str]:
    """Check one snapshot of the bank, and return the transfers in it."""
    with storage.transaction(read_only=True) as transaction:
        found = balances(transaction)
        indexed = {
            band: [(row["id"], row["balance"]) for row in transaction.table("accounts").scan_index("band", band)]
            for band in range(_BANDS)
        }
        ledger = list(transaction.table("ledger").scan())
    assert sum(found.values()) == accounts * OPENING
    assert len(found) == accounts
    by_band = {band: [item for item in sorted(found.items()) if item[1] % _BANDS == band] for band in range(_BANDS)}
    assert indexed == by_band
    expected = Counter(dict.fromkeys(found, OPENING))
    for row in ledger:
        amount = int(str(row["amount"]))
        expected[int(str(row["source"]))] -= amount
        expected[int(str(row["target"]))] += amount
    assert dict(expected) == found
    return {str(row["transfer"]) for row in ledger}
