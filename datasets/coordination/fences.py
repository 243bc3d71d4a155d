"""Fences: rows that all parties to an invariant write, so that it holds under snapshot isolation."""

from __future__ import annotations

import random
from typing import Annotated

from structable.datasets.records import Int, Record, RecordTable
from structable.spi import Transaction

SHARDS = 16


class Fence(Record):
    """A row of a fence; its write causes the conflict, and its values mean nothing."""

    scope: str
    shard: Annotated[int, Int]
    n: Annotated[int, Int] = 0


FENCES = RecordTable(Fence, "fences", key=("scope", "shard"))


def share(transaction: Transaction, table: str, scope: str) -> None:
    """Conflict with every transaction that excludes the scope; two that share it conflict in one of 16 cases."""
    transaction.table(table).upsert({"scope": scope, "shard": random.randrange(SHARDS), "n": 0})


def exclude(transaction: Transaction, table: str, scope: str) -> None:
    """Conflict with every transaction that shares or excludes the scope."""
    transaction.table(table).upsert_many([{"scope": scope, "shard": shard, "n": 0} for shard in range(SHARDS)])


class Fences:
    """The fences of a store: `system.fences`."""

    def __init__(self, table: str) -> None:
        self._table = table

    def share(self, tx: Transaction, scope: str) -> None:
        """Conflict with every transaction that excludes the scope; two that share it conflict in one of 16 cases."""
        share(tx, self._table, scope)

    def exclude(self, tx: Transaction, scope: str) -> None:
        """Conflict with every transaction that shares or excludes the scope."""
        exclude(tx, self._table, scope)
