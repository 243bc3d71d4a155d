"""Rules of `scan`, `multi_scan`, `count` and `explain`, over rows that are committed, uncommitted, and mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from structable.spi import (
    InvalidFieldError,
    Range,
    Row,
    ScanExplanation,
    Storage,
    StructuredTable,
    TransactionClosedError,
    Value,
    col,
)

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, Record, grid_rows, keys, plain

ROWS = grid_rows()
KEYS = [(row["k1"], row["k2"], row["k3"]) for row in ROWS]


def by_key(row: Record) -> tuple[Any, ...]:
    """Return a row's key."""
    return row["k1"], row["k2"], row["k3"]


def nulls_first(field: str) -> Callable[[Record], tuple[Any, ...]]:
    """Return a sort key: null before every value, ties by primary key."""
    return lambda row: (row[field] is not None, row[field] if row[field] is not None else 0, by_key(row))


class ScanRules(ConformanceCase):
    """One snapshot, one order, one limit."""

    @pytest.fixture(params=["committed", "own writes", "both", "own changes"])
    def grid(self, request: pytest.FixtureRequest, storage: Storage) -> Iterator[StructuredTable]:
        """Return GRID with its rows: committed, own writes, half and half, or committed otherwise and then changed."""
        storage.admin.create(GRID)
        outside = storage.table("grid")
        match request.param:
            case "committed":
                outside.upsert_many(ROWS)
            case "both":
                outside.upsert_many(ROWS[::2])
            case "own changes":
                outside.upsert_many([{**row, "v": 77, "color": "blue"} for row in ROWS])
                outside.upsert_many([{**row, "k3": f"c{row['k3']}"} for row in ROWS])
        with ExitStack() as stack:
            if request.param == "committed":
                yield outside
                return
            inside = stack.enter_context(storage.transaction()).table("grid")
            if request.param == "own changes":
                assert inside.delete_all(Range.all(), where=col("k3") >= "c") == len(ROWS)
                inside.upsert_many(ROWS)
            else:
                inside.upsert_many(ROWS if request.param == "own writes" else ROWS[1::2])
            yield inside

    def test_scan_gives_rows_in_key_order(self, grid: StructuredTable) -> None:
        """`scan` returns whole rows in key order, each once, including own writes."""
        assert plain(grid.scan()) == ROWS

    def test_scan_is_an_iterator_and_a_context_manager(self, grid: StructuredTable) -> None:
        """A scan is an iterator, which can be continued, and a context manager; leaving it ends it."""
        with grid.scan() as rows:
            first = next(rows)
            assert isinstance(first, Row)
            for second in rows:
                assert (first.key, second.key) == (KEYS[0], KEYS[1])
                break
            assert next(rows).key == KEYS[2]
        with pytest.raises(TransactionClosedError):
            next(rows)
        rows.close()

    def test_exhausted_scan_stays_exhausted(self, grid: StructuredTable) -> None:
        """An exhausted iterator stays exhausted."""
        rows = grid.scan(Range.prefix((1, 1)))
        assert keys(rows) == [(1, 1, "a"), (1, 1, "b")]
        assert next(rows, None) is None

    def test_columns_of_a_scan(self, grid: StructuredTable) -> None:
        """`columns` restricts a scan's rows; key fields are always in them, filtered and ordered fields need not be."""
        wanted = [
            {"k1": row["k1"], "k2": row["k2"], "k3": row["k3"], "color": row["color"]} for row in ROWS if row["v"] == 2
        ]
        assert plain(grid.scan(where=col("v") == 2, columns=["color"])) == wanted
        names = {"k1", "k2", "k3"}
        assert all(set(row) == names for row in grid.scan(columns=["k2"], order_by="v"))

    def test_reverse(self, grid: StructuredTable) -> None:
        """`reverse` is the exact reverse."""
        assert plain(grid.scan(reverse=True)) == ROWS[::-1]
        assert keys(grid.scan(Range((1, 2), (2, 1)), reverse=True, limit=3)) == [(2, 0, "b"), (2, 0, "a"), (1, 3, "b")]

    @pytest.mark.parametrize("field", ["v", "k1", "k2", "k3"])
    def test_order_by(self, grid: StructuredTable, field: str) -> None:
        """`order_by` a key or indexed field: ascending, ties by primary key; `reverse` is its exact reverse."""
        expected = sorted(ROWS, key=nulls_first(field))
        assert plain(grid.scan(order_by=field)) == expected
        assert plain(grid.scan(order_by=field, reverse=True)) == expected[::-1]
        assert plain(grid.scan(order_by=field, limit=5)) == expected[:5]
        assert plain(grid.scan(order_by=field, limit=5, reverse=True)) == expected[::-1][:5]
        part = [row for row in expected if row["k1"] in (1, 2) and row["color"] == "red"]
        assert plain(grid.scan(Range((1,), (3,)), where=col("color") == "red", order_by=field)) == part

    def test_order_by_puts_nulls_first(self, open_table: OpenTable) -> None:
        """`order_by` ascending puts nulls first; `reverse` puts them last, ties included."""
        table = open_table(ITEMS)
        ranks: list[Value] = [3, None, -1, 3, None, 0]
        table.upsert_many([{"id": number, "rank": rank} for number, rank in enumerate(ranks)])
        assert keys(table.scan(order_by="rank")) == [(1,), (4,), (2,), (5,), (0,), (3,)]
        assert keys(table.scan(order_by="rank", reverse=True)) == [(3,), (0,), (5,), (2,), (4,), (1,)]

    @pytest.mark.parametrize("field", ["color", "unknown", "V", ""])
    def test_order_by_needs_an_index_or_the_key(self, open_table: OpenTable, field: str) -> None:
        """`order_by` another field is `InvalidFieldError`, when the method is called."""
        table = open_table(GRID)
        refusals: list[Callable[[], object]] = [
            lambda: table.scan(order_by=field),
            lambda: table.multi_scan([Range.all()], order_by=field),
            lambda: table.scan_index("v", 1, order_by=field),
        ]
        for refused in refusals:
            with pytest.raises(InvalidFieldError):
                refused()

    def test_limit(self, grid: StructuredTable) -> None:
        """`limit` is the maximum number of rows; 0 is empty, and a larger limit than the result returns all."""
        assert plain(grid.scan(limit=0)) == []
        assert plain(grid.scan(limit=7)) == ROWS[:7]
        for large in (1000, 1 << 63, 10**30):
            assert plain(grid.scan(limit=large)) == ROWS
            assert plain(grid.scan(Range.prefix((2,)), limit=large)) == [row for row in ROWS if row["k1"] == 2]
            assert plain(grid.multi_scan([Range.all()], limit_per_range=large)) == ROWS
        assert (
            plain(grid.scan(where=col("color") == "green", limit=3))
            == [row for row in ROWS if row["color"] == "green"][:3]
        )
        assert plain(grid.multi_scan([Range.prefix((2,)), Range.prefix((0,))], limit=0)) == []
        assert plain(grid.scan_index("v", 0, limit=0)) == []

    @pytest.mark.parametrize("limit", [-1, 1.0, "1", True], ids=repr)
    def test_limit_is_a_number_of_rows(self, open_table: OpenTable, limit: int) -> None:
        """A negative limit is `InvalidFieldError`, and so is one that is not an int."""
        table = open_table(GRID)
        refusals: list[Callable[[], object]] = [
            lambda: table.scan(limit=limit),
            lambda: table.multi_scan([], limit=limit),
            lambda: table.scan_index("v", 1, limit=limit),
        ]
        for refused in refusals:
            with pytest.raises(InvalidFieldError):
                refused()

    def test_where(self, grid: StructuredTable) -> None:
        """`where` keeps the rows for which it is true, on key fields, indexed fields and others, pushed down or not."""
        cases = [
            (col("k1") == 2, [row for row in ROWS if row["k1"] == 2]),
            ((col("k1") == 2) & (col("k2") >= 2), [row for row in ROWS if row["k1"] == 2 and by_key(row)[1] in (2, 3)]),
            (col("k2") == 1, [row for row in ROWS if row["k2"] == 1]),
            (col("k3") == "b", [row for row in ROWS if row["k3"] == "b"]),
            (col("v") == 3, [row for row in ROWS if row["v"] == 3]),
            (col("v").between(2, 3), [row for row in ROWS if row["v"] in (2, 3)]),
            (col("v").isin([0, 4]), [row for row in ROWS if row["v"] in (0, 4)]),
            ((col("v") == 2) | (col("k1") == 3), [row for row in ROWS if row["v"] == 2 or row["k1"] == 3]),
            (
                (col("v") == 1) & (col("color") == "red"),
                [row for row in ROWS if row["v"] == 1 and row["color"] == "red"],
            ),
            (col("color").is_null(), [row for row in ROWS if row["color"] is None]),
            ((col("k1") > 2) & (col("k1") < 2), []),
            ((col("k1") == 1) & (col("k1") == 2), []),
        ]
        for where, expected in cases:
            assert plain(grid.scan(where=where)) == expected, str(where)
            assert plain(grid.scan(where=where, reverse=True)) == expected[::-1], str(where)
            assert grid.count(where=where) == len(expected), str(where)

    def test_where_and_range_together(self, grid: StructuredTable) -> None:
        """A range and a filter both hold, whichever of them the backend uses first."""
        expected = [row for row in ROWS if row["k1"] in (1, 2) and row["v"] in (0, 2) and row["k2"] != 0]
        where = col("v").isin([0, 2]) & (col("k2") != 0)
        assert plain(grid.scan(Range((1,), (3,)), where=where)) == expected

    def test_multi_scan(self, grid: StructuredTable) -> None:
        """`multi_scan` is the union of the ranges: each row once, in one order, with one limit."""
        ranges = [
            Range.prefix((2,)),
            Range((0, 3), (1, 1)),
            Range.prefix((2, 1)),
            Range((3,), (1,)),
            Range.prefix((0, 3, "b")),
        ]
        union = [row for row in ROWS if row["k1"] == 2 or (0, 3) <= (row["k1"], row["k2"]) < (1, 1)]
        assert plain(grid.multi_scan(ranges)) == union
        assert plain(grid.multi_scan(ranges, reverse=True)) == union[::-1]
        assert plain(grid.multi_scan(ranges, limit=6)) == union[:6]
        assert plain(grid.multi_scan(iter(ranges), where=col("k3") == "a")) == [
            row for row in union if row["k3"] == "a"
        ]
        ordered = sorted(union, key=nulls_first("v"))
        assert plain(grid.multi_scan(ranges, order_by="v", columns=["v", "color"], limit=9)) == ordered[:9]
        assert plain(grid.multi_scan([])) == []
        assert plain(grid.multi_scan([Range.all(), Range.all()])) == ROWS

    def test_count(self, grid: StructuredTable) -> None:
        """`count` is the number of distinct rows of the union; no ranges given: all; an empty list: 0."""
        assert grid.count() == len(ROWS)
        assert grid.count([]) == 0
        assert grid.count([Range.prefix((1,)), Range.prefix((1, 2)), Range((1, 3), (2, 1))]) == 10
        assert grid.count(iter([Range.all(), Range.all()])) == len(ROWS)
        assert grid.count(where=col("v") == 0) == len([row for row in ROWS if row["v"] == 0])
        assert grid.count([Range.prefix((0,))], where=col("color") == "red") == 4
        assert grid.count([Range.prefix((9,))]) == 0

    def test_scan_sees_own_writes_up_to_the_call(self, storage: Storage) -> None:
        """A scan is of the snapshot and the transaction's own writes up to the call."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([{"id": number, "tag": "a"} for number in range(10)])
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.delete((3,))
            table.upsert({"id": 4, "tag": "b"})
            rows, tagged = table.scan(), table.scan_index("tag", "a")
            assert next(rows)["id"] == 0
            table.upsert({"id": 5, "note": "later"})
            table.upsert({"id": 100, "tag": "a"})
            table.delete((6,))
            table.delete_all(Range.at_least((8,)))
            assert keys(rows) == [(number,) for number in (1, 2, 4, 5, 6, 7, 8, 9)]
            assert keys(tagged) == [(number,) for number in (0, 1, 2, 5, 6, 7, 8, 9)]
            assert keys(table.scan()) == [(number,) for number in (0, 1, 2, 4, 5, 7)]

    def test_scans_interleave(self, grid: StructuredTable) -> None:
        """Several scans of one transaction or view are read alternately; reads in between do not disturb them."""
        forth, back, some = grid.scan(), grid.scan(reverse=True), grid.scan_index("v", 2)
        pairs = []
        for row in forth:
            assert grid.read(row.key) == row
            pairs.append((row.key, next(back).key))
        assert pairs == list(zip(KEYS, KEYS[::-1], strict=True))
        assert plain(some) == [row for row in ROWS if row["v"] == 2]

    def test_long_scan(self, open_table: OpenTable) -> None:
        """A scan of thousands of rows returns each once, in order, forwards and backwards, by key and by index."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number, "rank": number % 3, "note": "x" * 50} for number in range(4000)])
        expected = [(number,) for number in range(4000)]
        assert keys(table.scan()) == expected
        assert keys(table.scan(reverse=True)) == expected[::-1]
        assert keys(table.scan_index("rank", 1)) == [key for key in expected if key[0] % 3 == 1]
        assert (
            keys(table.scan(order_by="rank", limit=2000)) == sorted(expected, key=lambda key: (key[0] % 3, key))[:2000]
        )

    def test_explain(self, grid: StructuredTable) -> None:
        """`explain` accepts scan's arguments and returns a `ScanExplanation` whose `str` names the path."""
        for explanation in (
            grid.explain(),
            grid.explain(Range.prefix((1, 2, "a"))),
            grid.explain(Range.prefix((1,)), where=col("color") == "red", columns=["v"], limit=3),
            grid.explain(where=col("v") == 2, order_by="v", reverse=True),
        ):
            assert isinstance(explanation, ScanExplanation)
            assert explanation.table == "grid"
            assert explanation.path
            assert explanation.path in str(explanation)

    def test_explain_checks_its_arguments(self, open_table: OpenTable) -> None:
        """`explain` rejects whatever `scan` rejects."""
        table = open_table(GRID)
        refusals: list[Callable[[], object]] = [
            lambda: table.explain(Range.prefix(("x",))),
            lambda: table.explain(where=col("unknown") == 1),
            lambda: table.explain(columns=[]),
            lambda: table.explain(order_by="color"),
            lambda: table.explain(limit=-1),
        ]
        for refused in refusals:
            with pytest.raises(InvalidFieldError):
                refused()
