"""Fences: rows that all parties to an invariant write, so that it holds under snapshot isolation."""

from __future__ import annotations

import random

from structable.datasets.tables.coordination import FENCE_SHARDS
from structable.spi import Transaction


def share(transaction: Transaction, table: str, scope: str) -> None:
    """Conflict with every transaction that excludes the scope; two that share it conflict in one of 16 cases."""
    transaction.table(table).upsert({"scope": scope, "shard": random.randrange(FENCE_SHARDS), "n": 0})


def exclude(transaction: Transaction, table: str, scope: str) -> None:
    """Conflict with every transaction that shares or excludes the scope."""
    transaction.table(table).upsert_many([{"scope": scope, "shard": shard, "n": 0} for shard in range(FENCE_SHARDS)])


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
