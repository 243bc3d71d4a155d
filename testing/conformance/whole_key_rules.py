"""Rules of scans, counts and changes whose ranges, or whose filter, fix whole keys."""

from __future__ import annotations

from typing import Any

from structable.spi import Filter, Range, Storage, StructuredTable, col

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, Record, grid_rows, item, keys, plain

ROWS = grid_rows()
Key = tuple[Any, ...]

PRESENT: list[Key] = [(2, 3, "b"), (0, 0, "a"), (3, 1, "a"), (2, 3, "a"), (1, 2, "b")]
"""Keys of rows, not in key order; two of them are neighbours."""
ABSENT: list[Key] = [(2, 3, "aa"), (9, 0, "a"), (1, 2, "")]
RANGES = [
    *map(Range.prefix, PRESENT),
    Range.prefix(PRESENT[0]),
    Range.prefix({"k3": "a", "k2": 0, "k1": 0}),
    Range((3, 1, "a"), {"k1": 3, "k2": 1, "k3": "a"}, True, True),
    *map(Range.prefix, ABSENT),
]
"""Each is one whole key; several are repeated, and several are absent."""


def at(*wanted: Key) -> list[Record]:
    """Return the rows of keys, in key order."""
    return [row for row in ROWS if (row["k1"], row["k2"], row["k3"]) in wanted]


def filled(open_table: OpenTable) -> StructuredTable:
    """Return the grid with all its rows."""
    table = open_table(GRID)
    table.upsert_many(ROWS)
    return table


class WholeKeyRules(ConformanceCase):
    """A range that is one whole key holds one row at most; lists of them are like any others."""

    def test_scan_of_whole_keys(self, open_table: OpenTable) -> None:
        """The union of whole keys has each of their rows once: in order, in reverse, up to limits, with its columns."""
        table = filled(open_table)
        expected = at(*PRESENT)
        assert plain(table.multi_scan(RANGES)) == expected
        assert plain(table.multi_scan(RANGES, reverse=True)) == expected[::-1]
        for limit in range(7):
            assert plain(table.multi_scan(iter(RANGES), limit=limit)) == expected[:limit]
            assert plain(table.multi_scan(RANGES, limit=limit, reverse=True)) == expected[::-1][:limit]
            some = table.multi_scan(RANGES, limit_per_range=limit, limit=3)
            assert plain(some) == (expected[:3] if limit else [])
        colors = table.multi_scan(RANGES, columns=["color"])
        assert [row["color"] for row in colors] == [row["color"] for row in expected]
        for key in (*PRESENT, *ABSENT):
            assert plain(table.scan(Range.prefix(key))) == at(key)
            assert plain(table.scan(Range.prefix(key), limit=0)) == []
            assert plain(table.scan(Range(key, key))) == []

    def test_filtered_scan_of_whole_keys(self, open_table: OpenTable) -> None:
        """A filter and an order apply to whole keys as to any range, on key fields, indexed and other fields."""
        table = filled(open_table)
        filters: list[tuple[Filter, Any]] = [
            (col("color") == "red", lambda row: row["color"] == "red"),
            (col("color").is_null(), lambda row: row["color"] is None),
            (col("v") == 1, lambda row: row["v"] == 1),
            (col("k1") >= 2, lambda row: row["k1"] >= 2),
            (col("k3") == "a", lambda row: row["k3"] == "a"),
            ((col("k1") == 2) & (col("color") == "green"), lambda row: row["k1"] == 2 and row["color"] == "green"),
            (col("k1").isin([0, 2, 7]), lambda row: row["k1"] in (0, 2)),
        ]

        def rank(row: Record) -> Key:
            return row["v"], row["k1"], row["k2"], row["k3"]

        for where, matches in filters:
            expected = list(filter(matches, at(*PRESENT)))
            assert plain(table.multi_scan(RANGES, where=where)) == expected, where
            assert plain(table.multi_scan(RANGES, where=where, limit=1, limit_per_range=2)) == expected[:1], where
            for reverse in (False, True):
                found = table.multi_scan(RANGES, where=where, order_by="v", reverse=reverse, limit=2)
                assert plain(found) == sorted(expected, key=rank, reverse=reverse)[:2], where
            assert table.count(RANGES, where) == len(expected), where

    def test_whole_keys_among_prefixes(self, open_table: OpenTable) -> None:
        """Whole keys and shorter prefixes may be mixed; the result is their union."""
        table = filled(open_table)
        ranges = [*RANGES, Range.prefix((2, 3)), Range((0, 3), (1, 1))]
        expected = [
            row
            for row in ROWS
            if row in at(*PRESENT) or (row["k1"], row["k2"]) == (2, 3) or (0, 3) <= (row["k1"], row["k2"]) < (1, 1)
        ]
        assert plain(table.multi_scan(ranges)) == expected
        assert plain(table.multi_scan(ranges, reverse=True, limit=4)) == expected[::-1][:4]
        assert table.count(ranges) == len(expected)
        assert table.count(ranges, col("k3") == "a") == sum(row["k3"] == "a" for row in expected)
        firsts = at(*PRESENT, (0, 3, "a"))  # the first of (2, 3) is one of the keys
        assert plain(table.multi_scan(ranges, limit_per_range=1)) == firsts
        assert plain(table.multi_scan(ranges, limit_per_range=1, limit=2)) == firsts[:2]

    def test_count_of_whole_keys(self, open_table: OpenTable) -> None:
        """`count` counts each existing row of whole keys once."""
        table = filled(open_table)
        assert table.count(RANGES) == len(PRESENT)
        assert table.count(map(Range.prefix, ABSENT)) == 0
        assert table.count([Range.prefix(PRESENT[0])]) == 1
        assert table.count(RANGES, col("color").isin([])) == 0

    def test_filter_that_fixes_whole_keys(self, open_table: OpenTable) -> None:
        """Conditions that enumerate all key fields find what a list of the keys finds, within the range."""
        table = filled(open_table)
        where = (col("k1") == 2) & col("k2").isin([3, 1, 9]) & col("k3").isin(["b", "a", "c"])
        expected = at((2, 1, "a"), (2, 1, "b"), (2, 3, "a"), (2, 3, "b"))
        assert plain(table.scan(where=where)) == expected
        assert plain(table.scan(where=where, reverse=True, limit=3)) == expected[::-1][:3]
        assert plain(table.scan(Range.prefix((2, 3)), where=where)) == expected[2:]
        assert plain(table.scan(Range.below((2, 3)), where=where)) == expected[:2]
        assert plain(table.multi_scan([Range.prefix((2, 1, "b")), Range.prefix((2, 2, "b"))], where=where)) == [
            expected[1]
        ]
        assert plain(table.multi_scan([], where=where)) == []
        assert plain(table.scan(where=where & (col("color") == "red"))) == [
            row for row in expected if row["color"] == "red"
        ]
        assert table.count(where=where) == 4
        assert table.count([Range.prefix((2, 1))], where) == 2
        assert table.count(where=where & (col("k2") > 1)) == 2
        assert table.update_all(Range.prefix((2,)), {"color": "blue"}, where & (col("k3") != "a")) == 2
        assert [row["color"] for row in table.scan(where=where)] == ["red", "blue", None, "blue"]
        assert table.delete_all(Range.above((2, 1, "a")), where) == 3
        assert keys(table.scan(where=where)) == [(2, 1, "a")]

    def test_changes_of_a_whole_key(self, open_table: OpenTable) -> None:
        """`update_all` and `delete_all` of one whole key change at most its row, if the filter is true of it."""
        table = filled(open_table)
        assert table.update_all(Range.prefix((2, 3, "b")), {"v": 7}, col("color") == "red") == 0
        assert table.update_all(Range.prefix((2, 3, "b")), {"v": 7}, col("color") == "blue") == 0
        assert table.update_all(Range.prefix((2, 3, "b")), {"v": 7}, col("k3") == "b") == 1
        assert table.update_all(Range.prefix((2, 3, "aa")), {"v": 7}) == 0
        assert keys(table.scan_index("v", 7)) == [(2, 3, "b")]
        assert table.delete_all(Range.prefix((2, 3, "b")), col("v") == 8) == 0
        assert table.delete_all(Range.prefix((2, 3, "b")), col("v") == 7) == 1
        assert table.delete_all(Range.prefix((2, 3, "b"))) == 0
        assert plain(table.scan()) == [row for row in ROWS if row not in at((2, 3, "b"))]
        assert keys(table.scan_index("v", 7)) == []

    def test_whole_keys_see_own_writes(self, storage: Storage) -> None:
        """Whole keys show the snapshot under the transaction's own writes, up to the call."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([item(number, n=number, tag="a") for number in range(8)])
        wanted = [Range.prefix((number,)) for number in (9, 6, 5, 4, 3, 2, 1, 1, 30)]
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.upsert({"id": 1, "n": 10})
            table.delete((2,))
            table.increment((3,), "n", 10)
            table.upsert({"id": 9, "n": 9})
            table.increment((30,), "n", 3)
            expected = [
                item(1, n=10, tag="a"),
                item(3, n=13, tag="a"),
                item(4, n=4, tag="a"),
                item(5, n=5, tag="a"),
                item(6, n=6, tag="a"),
                item(9, n=9),
                item(30, n=3),
            ]
            assert plain(table.multi_scan(wanted)) == expected
            assert plain(table.multi_scan(wanted, reverse=True, limit=3)) == expected[::-1][:3]
            assert table.count(wanted, col("n") > 5) == 4
            assert table.count(wanted, col("tag").is_null()) == 2
            assert table.count(where=col("id").isin([1, 2, 3, 9]) & (col("n") >= 10)) == 2
            rows = table.multi_scan(wanted)
            assert table.update_all(Range.prefix((3,)), {"n": 0}, col("n") == 13) == 1
            assert table.delete_all(Range.prefix((9,)), col("n") == 9) == 1
            assert table.delete_all(Range.prefix((2,))) == 0
            assert table.update_all(Range.prefix((2,)), {"n": 0}) == 0
            table.upsert({"id": 2, "n": 2})
            assert plain(rows) == expected
            assert keys(table.multi_scan(wanted)) == [(1,), (2,), (3,), (4,), (5,), (6,), (30,)]
        assert [row["n"] for row in storage.table("items").multi_scan(wanted)] == [10, 2, 0, 4, 5, 6, 3]

    def test_many_whole_keys(self, open_table: OpenTable) -> None:
        """One call takes thousands of whole keys, half of them absent."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number, "n": number} for number in range(0, 6000, 2)])
        wanted = [Range.prefix((number,)) for number in range(5000, -1, -1)]
        assert table.count(wanted) == 2501
        assert table.count(wanted, col("n") < 1000) == 500
        assert keys(table.multi_scan(wanted)) == [(number,) for number in range(0, 5001, 2)]
        assert keys(table.multi_scan(wanted, reverse=True, limit=1300)) == [
            (number,) for number in range(5000, 2400, -2)
        ]
        with table.multi_scan(wanted) as rows:
            assert next(rows).key == (0,)
        assert keys(table.multi_scan(wanted, where=col("n") == 4000, limit=1)) == [(4000,)]

    def test_whole_key_too_long_for_a_row(self, open_table: OpenTable) -> None:
        """A range may be a key that no row can have: it is empty."""
        table = filled(open_table)
        for size in (3_000, 40_000):
            ranges = [Range.prefix((2, 3, "b" * size)), Range.prefix((2, 3, "b"))]
            assert plain(table.multi_scan(ranges)) == at((2, 3, "b"))
            assert table.count(ranges) == 1
            assert table.delete_all(ranges[0]) == 0
