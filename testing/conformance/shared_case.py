"""`SharedCase`: the base of the rules of shared snapshots, two tables of equal rows."""

from __future__ import annotations

from typing import Any

import pytest

from structable.spi import SharedSnapshot, Storage

from .bulk_scans import rows_of
from .case import ConformanceCase
from .samples import ITEMS, Record, item

OTHER = ITEMS.evolve(name="other")
ROWS = 60


def plan_rows(storage: Storage, shared: SharedSnapshot, table: str, **arguments: Any) -> list[Record]:  # noqa: ANN401
    """Plan a scan, read it, and close the plan."""
    with shared.plan_scan(table, **arguments) as plan:
        return rows_of(storage, plan.splits)


class SharedCase(ConformanceCase):
    """Two tables of equal rows."""

    @pytest.fixture
    def pair(self, storage: Storage) -> Storage:
        """Return the storage with two tables of equal rows; skip if its plans cannot share a snapshot."""
        self.require("shared_snapshots")
        for spec in (ITEMS, OTHER):
            storage.admin.create(spec)
            storage.table(spec.name).upsert_many(item(number, n=0, tag=f"t{number % 5}") for number in range(ROWS))
        return storage
