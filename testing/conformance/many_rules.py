"""Rules of `replace_many`, `delete_many`, `increment_many`, and `multi_scan` with a limit per range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from structable.spi import (
    FieldSizeLimitError,
    InvalidFieldError,
    Key,
    Range,
    Storage,
    StructuredTable,
    TransactionConflictError,
    col,
)

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, Record, grid_rows, item, keys, plain

ROWS = grid_rows()
OVERLAPPING = [Range.prefix((2,)), Range((0, 3), (1, 1)), Range.prefix((2, 1)), Range((3,), (1,)), Range.prefix((9,))]

REFUSED: dict[str, Callable[[StructuredTable], object]] = {
    "replace_many(1)": lambda table: table.replace_many(cast(Any, 1)),
    "insert_many(1)": lambda table: table.insert_many(cast(Any, 1)),
    "insert_many('ab')": lambda table: table.insert_many(cast(Any, "ab")),
    "a number as row": lambda table: table.insert_many(cast(Any, [{"id": 2}, 9])),
    "delete_many(1)": lambda table: table.delete_many(cast(Any, 1)),
    "delete_many('ab')": lambda table: table.delete_many(cast(Any, "ab")),
    "a bad key to delete": lambda table: table.delete_many([(1,), ("x",)]),
    "half a key to delete": lambda table: table.delete_many([{"id": 1}, {}]),
    "increment_many(1)": lambda table: table.increment_many(cast(Any, 1)),
    "a pair as increment": lambda table: table.increment_many(cast(Any, [((1,), "n", 1), ((1,), "n")])),
    "a text as increment": lambda table: table.increment_many(cast(Any, ["abc"])),
    "a bad key to increment": lambda table: table.increment_many([((1,), "n", 1), (("x",), "n", 1)]),
    "an unknown field": lambda table: table.increment_many([((1,), "n", 1), ((1,), "unknown", 1)]),
    "a text field": lambda table: table.increment_many([((1,), "n", 1), ((1,), "note", 1)]),
    "a key field": lambda table: table.increment_many([((1,), "n", 1), ((1,), "id", 1)]),
    "a bool as amount": lambda table: table.increment_many([((1,), "n", 1), ((1,), "n", True)]),
    "a float as amount": lambda table: table.increment_many(cast(Any, [((1,), "n", 1), ((1,), "n", 1.0)])),
    "limit_per_range=-1": lambda table: table.multi_scan([Range.all()], limit_per_range=-1),
    "limit_per_range=True": lambda table: table.multi_scan([Range.all()], limit_per_range=True),
    "limit_per_range=1.0": lambda table: table.multi_scan([], limit_per_range=cast(Any, 1.0)),
}


def firsts(ranges: list[list[Record]], limit: int) -> list[Record]:
    """Return the first rows of each list, each once, in the order of ROWS."""
    kept = [row for rows in ranges for row in rows[:limit]]
    return [row for row in ROWS if row in kept]


def inside(range_: Range) -> list[Record]:
    """Return the rows of one of OVERLAPPING."""
    found = {
        OVERLAPPING[0]: [row for row in ROWS if row["k1"] == 2],
        OVERLAPPING[1]: [row for row in ROWS if (0, 3) <= (row["k1"], row["k2"]) < (1, 1)],
        OVERLAPPING[2]: [row for row in ROWS if (row["k1"], row["k2"]) == (2, 1)],
    }
    return found.get(range_, [])


class ManyRules(ConformanceCase):
    """Operations on many keys or ranges do the same as those on one, all or nothing."""

    @pytest.mark.parametrize("name", REFUSED)
    def test_bulk_form_of_bad_arguments(self, open_table: OpenTable, name: str) -> None:
        """One argument that does not fit is `InvalidFieldError` when the method is called, and nothing is done."""
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 1})
        with pytest.raises(InvalidFieldError):
            REFUSED[name](table)
        assert plain(table.scan()) == [item(1, n=1)]

    def test_delete_many_of_an_oversized_key(self, open_table: OpenTable) -> None:
        """A key over the limit is `FieldSizeLimitError`, and no other row is deleted."""
        table = open_table(GRID)
        table.upsert(ROWS[0])
        with pytest.raises(FieldSizeLimitError):
            table.delete_many([(0, 0, "a"), (0, 0, "x" * 3000)])
        assert plain(table.scan()) == ROWS[:1]

    def test_increment_many(self, open_table: OpenTable) -> None:
        """`increment_many` adds each amount in turn; absent rows are made, and nulls count as 0."""
        table = open_table(ITEMS)
        table.upsert_many([item(1, n=5, tag="a", rank=1), item(2, tag="b")])
        wanted: list[tuple[Key, str, int]] = [
            ((1,), "n", 2),
            ({"id": 2}, "n", -1),
            ((3,), "rank", 7),
            ((1,), "rank", 3),
            ((1,), "n", 10),
        ]
        table.increment_many(iter(wanted))
        assert plain(table.scan()) == [item(1, n=17, tag="a", rank=4), item(2, n=-1, tag="b"), item(3, rank=7)]
        assert keys(table.scan_index("rank", 4)) == [(1,)]
        assert keys(table.scan_index("rank", 7)) == [(3,)]
        table.increment_many([])
        assert table.count() == 3

    def test_increment_many_that_overflows(self, storage: Storage) -> None:
        """Overflow is `InvalidFieldError`, from the call or from the commit, and none of the increments counts."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([item(1, n=1), item(2, n=(1 << 63) - 2)])
        with pytest.raises(InvalidFieldError), storage.transaction() as transaction:
            transaction.table("items").increment_many([((1,), "n", 1), ((2,), "n", 1), ((2,), "n", 1)])
        with pytest.raises(InvalidFieldError):
            storage.table("items").increment_many([((1,), "n", 1), ((2,), "n", 2)])
        assert plain(storage.table("items").scan()) == [item(1, n=1), item(2, n=(1 << 63) - 2)]

    def test_increment_many_that_overflows_own_writes(self, storage: Storage) -> None:
        """If the call raises for a row of the transaction's own, the transaction continues without any increment."""
        storage.admin.create(ITEMS)
        largest = (1 << 63) - 1
        transaction = storage.transaction()
        table = transaction.table("items")
        table.upsert_many([item(1, n=1), item(2, n=largest)])
        try:
            table.increment_many([((1,), "n", 1), ((2,), "n", 1)])
        except InvalidFieldError:
            transaction.commit()
            expected = [item(1, n=1), item(2, n=largest)]
        else:
            with pytest.raises(InvalidFieldError):
                transaction.commit()
            transaction.rollback()
            expected = []
        assert plain(storage.table("items").scan()) == expected

    def test_bulk_forms_see_own_writes(self, storage: Storage) -> None:
        """Within a transaction the bulk forms build on its writes, and its reads see them."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([item(number, n=number, tag="a") for number in range(6)])
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.increment((1,), "n", 10)
            table.upsert({"id": 2, "n": 50})
            table.delete((3,))
            table.increment_many([((1,), "n", 1), ((2,), "n", 1), ((3,), "n", 1), ((4,), "n", 1), ((7,), "n", 1)])
            expected = [
                item(0, n=0, tag="a"),
                item(1, n=12, tag="a"),
                item(2, n=51, tag="a"),
                item(3, n=1),
                item(4, n=5, tag="a"),
                item(5, n=5, tag="a"),
                item(7, n=1),
            ]
            assert plain(table.scan()) == expected
            table.delete_many([(1,), (3,), (5,), (7,), (8,)])
            table.upsert({"id": 5, "n": 5})
            expected = [expected[0], expected[2], expected[4], item(5, n=5)]
            assert plain(table.scan()) == expected
            assert keys(table.scan_index("tag", "a")) == [(0,), (2,), (4,)]
        assert plain(storage.table("items").scan()) == expected

    def test_bulk_forms_conflict(self, storage: Storage) -> None:
        """A row written by `delete_many`, or by `increment_many` against another write, conflicts like a single one."""
        storage.admin.create(ITEMS)
        items = storage.table("items")
        writes: dict[str, Callable[[StructuredTable], object]] = {
            "delete_many": lambda table: table.delete_many([(1,), (2,)]),
            "increment_many": lambda table: table.increment_many([((1,), "n", 1), ((2,), "n", 1)]),
        }
        for write in writes.values():
            items.upsert_many([item(1, n=1), item(2, n=2)])
            transaction = storage.transaction()
            table = transaction.table("items")
            assert table.read((1,)) is not None
            write(table)
            items.upsert({"id": 2, "n": 20})
            with pytest.raises(TransactionConflictError):
                transaction.commit()
            transaction.rollback()
            assert plain(items.scan()) == [item(1, n=1), item(2, n=20)]

    def test_bulk_forms_consume_their_argument_once(self, open_table: OpenTable) -> None:
        """Iterables are consumed once, before the first attempt; one that raises changes nothing."""
        table = open_table(ITEMS)
        table.upsert_many([item(number, n=0) for number in range(3)])

        def failing(one: Any) -> Iterator[Any]:  # noqa: ANN401 - a key or an increment
            yield one
            raise KeyError("the caller's own")

        with pytest.raises(KeyError, match="the caller's own"):
            table.delete_many(failing((1,)))
        with pytest.raises(KeyError, match="the caller's own"):
            table.increment_many(failing(((1,), "n", 1)))
        assert plain(table.scan()) == [item(number, n=0) for number in range(3)]

    def test_limit_per_range(self, open_table: OpenTable) -> None:
        """`limit_per_range` keeps the first rows of each range; a row of two counts in each, and is returned once."""
        table = open_table(GRID)
        table.upsert_many(ROWS)
        ranges = [inside(range_) for range_ in OVERLAPPING]
        for limit in (1, 2, 3, 5, 100):
            expected = firsts(ranges, limit)
            assert plain(table.multi_scan(iter(OVERLAPPING), limit_per_range=limit)) == expected
            assert plain(table.multi_scan(OVERLAPPING, limit_per_range=limit, limit=3)) == expected[:3]
            back = firsts([rows[::-1] for rows in ranges], limit)[::-1]
            assert plain(table.multi_scan(OVERLAPPING, limit_per_range=limit, reverse=True)) == back
        assert plain(table.multi_scan(OVERLAPPING, limit_per_range=0)) == []
        assert plain(table.multi_scan([], limit_per_range=1)) == []
        assert plain(table.multi_scan([Range.all(), Range.all()], limit_per_range=2)) == ROWS[:2]

    def test_limit_per_range_counts_matching_rows(self, open_table: OpenTable) -> None:
        """The limit of a range counts the rows for which `where` is true, in the requested order."""
        table = open_table(GRID)
        table.upsert_many(ROWS)
        ranges = [Range.prefix((number,)) for number in range(4)]
        groups = [[row for row in ROWS if row["k1"] == number] for number in range(4)]
        later = firsts([[row for row in rows if row["k3"] == "b"] for rows in groups], 2)
        assert plain(table.multi_scan(ranges, where=col("k3") == "b", limit_per_range=2)) == later
        red = firsts([[row for row in rows if row["color"] == "red"] for rows in groups], 2)
        assert plain(table.multi_scan(ranges, where=col("color") == "red", limit_per_range=2)) == red

        def rank(row: Record) -> tuple[Any, ...]:
            return row["v"] is not None, row["v"] or 0, row["k1"], row["k2"], row["k3"]

        for reverse in (False, True):
            first = [row for rows in groups for row in sorted(rows, key=rank, reverse=reverse)[:3]]
            ordered = sorted(first, key=rank, reverse=reverse)
            found = table.multi_scan(ranges, order_by="v", reverse=reverse, limit_per_range=3, limit=7)
            assert plain(found) == ordered[:7]
        some = list(table.multi_scan(ranges, columns=["color"], limit_per_range=1))
        assert [dict(row) for row in some] == [
            {name: rows[0][name] for name in ("k1", "k2", "k3", "color")} for rows in groups
        ]

    def test_limit_per_range_of_own_writes(self, storage: Storage) -> None:
        """A scan with a limit per range sees the snapshot and the transaction's own writes up to the call."""
        storage.admin.create(GRID)
        storage.table("grid").upsert_many(ROWS)
        with storage.transaction() as transaction:
            table = transaction.table("grid")
            table.delete_many([(0, 0, "a"), (1, 0, "a"), (1, 0, "b")])
            table.upsert({"k1": 1, "k2": -1, "k3": "new"})
            rows = table.multi_scan([Range.prefix((number,)) for number in (1, 0)], limit_per_range=2)
            table.delete_all(Range.all())
            assert keys(rows) == [(0, 0, "b"), (0, 1, "a"), (1, -1, "new"), (1, 1, "a")]
