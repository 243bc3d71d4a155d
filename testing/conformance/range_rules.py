"""Rules of ranges: every form, as accepted by `scan`, `count` and the other methods."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

import pytest

from structable.spi import InvalidFieldError, Range, StructuredTable, TableSpecification, Value

from .case import ConformanceCase, OpenTable
from .samples import GRID, grid_rows, keys

Key = tuple[Any, ...]
Bound = tuple[Value, ...] | Mapping[str, Value] | None

ALL = [(row["k1"], row["k2"], row["k3"]) for row in grid_rows()]
BOUNDS: list[Key] = [
    (),
    (1,),
    (2,),
    (9,),
    (-1,),
    (1, 2),
    (1, 9),
    (2, 0),
    (1, 2, "a"),
    (1, 2, "aa"),
    (3, 3, "b"),
]


def starts_at(key: Key, bound: Key, inclusive: bool) -> bool:
    """Return whether a key is after the begin of a range: only as many fields as the bound has are compared."""
    head = key[: len(bound)]
    return head >= bound if inclusive else head > bound


def ends_at(key: Key, bound: Key, inclusive: bool) -> bool:
    """Return whether a key lies before the end of a range."""
    head = key[: len(bound)]
    return head <= bound if inclusive else head < bound


def filled(open_table: OpenTable) -> StructuredTable:
    """Return the grid with all its rows."""
    table = open_table(GRID)
    table.upsert_many(grid_rows())
    return table


class RangeRules(ConformanceCase):
    """Bounds are prefixes of the primary key and are compared as tuples."""

    @pytest.mark.parametrize(
        ("range_", "expected"),
        [
            (Range.all(), ALL),
            (Range(), ALL),
            (Range.prefix((1,)), [key for key in ALL if key[0] == 1]),
            (Range.prefix((1, 2)), [(1, 2, "a"), (1, 2, "b")]),
            (Range.prefix((1, 2, "b")), [(1, 2, "b")]),
            (Range.prefix({"k2": 2, "k1": 1}), [(1, 2, "a"), (1, 2, "b")]),
            (Range.prefix((7,)), []),
            (Range.at_least((2,)), [key for key in ALL if key[0] >= 2]),
            (Range.at_least((2, 3)), [(2, 3, "a"), (2, 3, "b")] + [key for key in ALL if key[0] == 3]),
            (Range.above((2,)), [key for key in ALL if key[0] > 2]),
            (Range.above((2, 3)), [key for key in ALL if key[0] > 2]),
            (Range.at_most((1,)), [key for key in ALL if key[0] <= 1]),
            (Range.at_most((0, 1)), [(0, 0, "a"), (0, 0, "b"), (0, 1, "a"), (0, 1, "b")]),
            (Range.below((1,)), [key for key in ALL if key[0] < 1]),
            (Range.below((0, 1)), [(0, 0, "a"), (0, 0, "b")]),
            (Range({"k1": 1}, {"k1": 2}), [key for key in ALL if key[0] == 1]),
            (Range((1,), (2,), False, True), [key for key in ALL if key[0] == 2]),
            (Range((1,), (1,), True, True), [key for key in ALL if key[0] == 1]),
            (Range((0, 3), (1, 1)), [(0, 3, "a"), (0, 3, "b"), (1, 0, "a"), (1, 0, "b")]),
            (Range((1,), None), [key for key in ALL if key[0] >= 1]),
            (Range(None, (1,)), [key for key in ALL if key[0] < 1]),
        ],
        ids=str,
    )
    def test_range_forms(self, open_table: OpenTable, range_: Range, expected: list[Key]) -> None:
        """Each constructor and each form of a bound keeps exactly its rows, in both directions."""
        table = filled(open_table)
        assert keys(table.scan(range_)) == expected
        assert keys(table.scan(range_, reverse=True)) == expected[::-1]
        assert table.count([range_]) == len(expected)

    def test_longer_bounds_compare_as_tuples(self, open_table: OpenTable) -> None:
        """[(1,8), (3,3)] contains (2,2): bounds compare as tuples, not field by field."""
        table = filled(open_table)
        assert (2, 2, "a") in keys(table.scan(Range((1, 8), (3, 3))))
        assert (1, 3, "a") not in keys(table.scan(Range((1, 8), (3, 3))))
        assert (3, 3, "a") not in keys(table.scan(Range((1, 8), (3, 3))))

    def test_every_pair_of_bounds(self, open_table: OpenTable) -> None:
        """For any two bounds, of the same or another length, inclusive or not, the rows are those between them."""
        table = filled(open_table)
        for begin, end in itertools.product(BOUNDS[1:], repeat=2):
            for inclusive in itertools.product((True, False), repeat=2):
                wanted = [key for key in ALL if starts_at(key, begin, inclusive[0]) and ends_at(key, end, inclusive[1])]
                range_ = Range(begin, end, *inclusive)
                assert keys(table.scan(range_)) == wanted, range_
                assert table.count([range_]) == len(wanted), range_

    def test_empty_prefix_is_all_rows(self, open_table: OpenTable) -> None:
        """An empty prefix is all rows, as a tuple or as a mapping."""
        table = filled(open_table)
        empties: list[Bound] = [(), {}]
        for empty in empties:
            for range_ in (Range.prefix(empty), Range.at_least(empty), Range.at_most(empty)):
                assert keys(table.scan(range_)) == ALL

    def test_begin_behind_end_is_empty(self, open_table: OpenTable) -> None:
        """A range whose begin is after its end is empty, not an error; so is one that excludes its only point."""
        table = filled(open_table)
        for range_ in (
            Range((2,), (1,)),
            Range((2,), (1, 3), True, True),
            Range((2,), (2,)),
            Range((2,), (2,), False, True),
        ):
            assert keys(table.scan(range_)) == []
            assert table.count([range_]) == 0
            assert table.delete_all(range_) == 0
        assert table.count() == len(ALL)

    @pytest.mark.parametrize(
        "bound",
        [
            (1, 2, "a", 4),
            {"k2": 1},
            {"k1": 1, "k3": "a"},
            {"unknown": 1},
            ("x",),
            (1, "x"),
            (True,),
            (None,),
            (2**31,),
            [1],
            1,
        ],
        ids=repr,
    )
    def test_bound_that_is_no_prefix(self, open_table: OpenTable, bound: object) -> None:
        """A bound that is not a prefix of the primary key is `InvalidFieldError`, when the method is called."""
        table = open_table(GRID)
        wrong = cast("Bound", bound)
        for range_ in (Range(wrong, None), Range(None, wrong), Range.prefix(wrong)):
            for refused in (
                lambda range_=range_: table.scan(range_),
                lambda range_=range_: table.multi_scan([Range.all(), range_]),
                lambda range_=range_: table.scan_index("v", 1, range=range_),
                lambda range_=range_: table.count([range_]),
                lambda range_=range_: table.delete_all(range_),
                lambda range_=range_: table.update_all(range_, {"v": 1}),
            ):
                with pytest.raises(InvalidFieldError):
                    refused()

    def test_ranges_check_nothing_when_built(self, open_table: OpenTable) -> None:
        """`Range` checks nothing when it is built; the methods with a range do."""
        table = open_table(GRID)
        nonsense = Range(cast("Bound", object()), ("x",) * 40)
        with pytest.raises(InvalidFieldError):
            table.scan(nonsense)

    def test_string_prefix_is_a_whole_field(self, open_table: OpenTable) -> None:
        """A bound is a prefix of whole fields: "a" is not a prefix of "ab"."""
        fields = [GRID.field("k3"), GRID.field("k1")]
        table = open_table(TableSpecification("t", fields, ["k3", "k1"]))
        table.upsert_many([{"k3": text, "k1": 1} for text in ("", "a", "ab", "b")])
        assert keys(table.scan(Range.prefix(("a",)))) == [("a", 1)]
        assert keys(table.scan(Range.prefix(("",)))) == [("", 1)]
        assert keys(table.scan(Range.above(("a",)))) == [("ab", 1), ("b", 1)]
        assert keys(table.scan(Range(("a",), ("b",)))) == [("a", 1), ("ab", 1)]
