"""The rows of all datasets in one snapshot, as invariants see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar, cast

from structable.datasets import Record, RecordTable, SystemData
from structable.datasets.tables import ALL_TABLES
from structable.spi import Transaction

from .ledger import LEDGER, Entry

R = TypeVar("R", bound=Record)


class Rows:
    """The records of every table, read in one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._read: dict[str, list[Record]] = {}
        for table in ALL_TABLES:
            with table.named(f"sys_{table.name}")(tx).scan() as found:
                self._read[table.name] = list(found)
        with LEDGER(tx).scan() as entries:
            self._entries = list(entries)

    def of(self, table: RecordTable[R]) -> list[R]:
        """Return all records of a table of the datasets."""
        return cast(list[R], self._read[table.name])

    def noted(self, kind: str) -> dict[str, list[dict[str, object]]]:
        """Return the facts that workloads noted, by their subjects."""
        found: dict[str, list[dict[str, object]]] = {}
        for one in self.entries(kind):
            found.setdefault(one.subject, []).append(one.facts)
        return found

    def entries(self, kind: str) -> list[Entry]:
        """Return the entries of a kind."""
        return [one for one in self._entries if one.kind == kind]


def rows_of(system: SystemData) -> Rows:
    """Return the rows as they are now."""
    with system.transaction(read_only=True) as s:
        return Rows(s.tx)


def path_problems(steps: Iterable[tuple[object, object]], end: object) -> list[str]:
    """Return why steps are no path from None to `end`: every other state is left as often as it is entered."""
    balance: Counter[object] = Counter({end: 1, None: -1})
    for before, after in steps:
        if before != after:
            balance[before] += 1
            balance[after] -= 1
    return [f"{state} is left {count:+d} times more often than entered" for state, count in balance.items() if count]
