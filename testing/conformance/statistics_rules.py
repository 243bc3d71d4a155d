"""Rules of `Storage.statistics`."""

from __future__ import annotations

import pytest

from structable.spi import (
    InvalidFieldError,
    Range,
    Storage,
    TableNotFoundError,
    TableStatistics,
    UnsupportedOperationError,
    WriteMode,
)
from structable.spi.authors import COUNTED_ROWS

from .case import ConformanceCase
from .samples import GRID, ITEMS, NOTED, grid_rows, item
from .write_jobs import batch

_MANY = 20_000
_FACTOR = 3
"""The factor by which an estimate may be wrong."""


def _near(rows: int, wanted: int) -> bool:
    return wanted / _FACTOR <= rows <= wanted * _FACTOR


class StatisticsRules(ConformanceCase):
    """Few rows are counted, many are estimated, and a table with rows is never estimated as empty."""

    def test_statistics_without_the_capability(self, storage: Storage) -> None:
        """A store without statistics refuses `statistics` with `UnsupportedOperationError`."""
        if self.capabilities.statistics:
            pytest.skip("the store has statistics")
        storage.admin.create(ITEMS)
        with pytest.raises(UnsupportedOperationError):
            storage.statistics(ITEMS.name)

    def test_statistics_of_an_empty_table(self, storage: Storage) -> None:
        """An empty table has 0 rows and 0 bytes, exactly."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        assert storage.statistics(ITEMS.name) == TableStatistics(0, 0, exact=True)

    def test_statistics_of_few_rows(self, storage: Storage) -> None:
        """Few rows are counted exactly, also after deletions and changes, and their size in bytes is reported."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        table = storage.table(ITEMS.name)
        table.upsert_many([item(number, tag="a" * 100) for number in range(100)])
        table.delete_all(Range.below((50,)))
        table.upsert(item(60, n=1))
        found = storage.statistics(ITEMS.name)
        assert (found.rows, found.exact) == (50, True)
        assert found.bytes >= 50 * 8

    def test_statistics_of_ranges(self, storage: Storage) -> None:
        """A range selects the rows that `scan` returns: prefixes, open and closed bounds, one whole key, and none."""
        self.require("statistics")
        storage.admin.create(GRID)
        table = storage.table(GRID.name)
        table.upsert_many(grid_rows())
        middle = grid_rows()[len(grid_rows()) // 2]
        key = tuple(middle[name] for name in GRID.primary_key)
        for range_ in (
            Range.all(),
            Range.prefix(key[:1]),
            Range.prefix(key),
            Range.above(key),
            Range(key[:1], key[:2], begin_inclusive=False, end_inclusive=True),
            Range.at_most(key[:2]),
            Range(key, key[:1]),
        ):
            found = storage.statistics(GRID.name, range_)
            assert (found.rows, found.exact) == (table.count([range_]), True), range_
            assert (found.bytes > 0) == (found.rows > 0)

    def test_statistics_see_commits_only(self, storage: Storage) -> None:
        """Statistics ignore the rows of an open transaction."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        with storage.transaction() as transaction:
            transaction.table(ITEMS.name).upsert(item(1))
            assert storage.statistics(ITEMS.name).rows == 0
        assert storage.statistics(ITEMS.name).rows == 1

    @pytest.mark.parametrize("rows", ["even", "uneven"])
    def test_statistics_of_many_rows(self, storage: Storage, rows: str) -> None:
        """Many rows of a job, all or a tenth, are estimated within a factor of 3, and never wrongly called exact."""
        self.require("statistics")
        storage.admin.create(NOTED)
        # The first tenth of the uneven rows has nine tenths of the bytes; its keys are no longer so close together.
        large = _MANY // 10 if rows == "uneven" else 0
        noted = [
            {
                "id": f"key {number * (7 if number < large else 1):06}",
                "note": f"{number} " + "x" * (800 * (number < large)),
            }
            for number in range(_MANY)
        ]
        noted = list({row["id"]: row for row in noted}.values())
        job = storage.begin_write(NOTED.name, mode=WriteMode.INSERT, job_id=self.fresh_id())
        storage.commit_write(job, [storage.stage(job, 0, 0, [batch(noted, spec=NOTED)])])
        keys = sorted(str(row["id"]) for row in noted)
        tenth = Range((keys[len(keys) // 2],), (keys[len(keys) * 6 // 10],))
        inside = len(keys) * 6 // 10 - len(keys) // 2
        for range_, wanted in ((Range.all(), len(keys)), (tenth, inside)):
            found = storage.statistics(NOTED.name, range_)
            assert _near(found.rows, wanted), found
            assert found.rows == wanted or not found.exact
            assert found.rows * 8 <= found.bytes <= found.rows * 2_000

    def test_statistics_at_the_limit_of_counting(self, storage: Storage) -> None:
        """2,000 rows are exact; one more may be an estimate, of more than 2,000."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        table = storage.table(ITEMS.name)
        table.upsert_many([item(number) for number in range(COUNTED_ROWS)])
        found = storage.statistics(ITEMS.name)
        assert (found.rows, found.exact) == (COUNTED_ROWS, True)
        table.upsert(item(COUNTED_ROWS))
        found = storage.statistics(ITEMS.name)
        assert found.rows > COUNTED_ROWS
        assert found.rows == COUNTED_ROWS + 1 or not found.exact

    def test_statistics_hold_nothing(self, storage: Storage) -> None:
        """A table whose statistics were read can be dropped at once, and then has none."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        storage.table(ITEMS.name).upsert(item(1))
        storage.statistics(ITEMS.name)
        storage.admin.drop(ITEMS.name)
        with pytest.raises(TableNotFoundError):
            storage.statistics(ITEMS.name)

    def test_statistics_of_a_range_that_does_not_fit(self, storage: Storage) -> None:
        """A range that `scan` refuses is `InvalidFieldError`."""
        self.require("statistics")
        storage.admin.create(ITEMS)
        with pytest.raises(InvalidFieldError):
            storage.statistics(ITEMS.name, Range.prefix(("one",)))
