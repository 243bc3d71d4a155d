"""Rules of `read`, `multi_read` and `Row`."""

from __future__ import annotations

import pickle
from typing import cast

import pytest

from structable.spi import Field, InvalidFieldError, Key, Row, TableSpecification, Value

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, grid_rows, item, keys, plain

FULL = item(1, n=5, tag="a", note="x", rank=7, cost=1.5)


class ReadRules(ConformanceCase):
    """Reads of single rows, and the rows themselves."""

    def test_read(self, open_table: OpenTable) -> None:
        """`read` returns the row of this key, or None."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        assert table.read((1,)) == FULL
        assert table.read({"id": 1}) == FULL
        assert table.read((2,)) is None

    def test_columns_restrict_a_read(self, open_table: OpenTable) -> None:
        """`columns` restricts the result; key fields are always in it."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        assert table.read((1,), columns=["n"]) == {"id": 1, "n": 5}
        assert table.read((1,), columns=["id"]) == {"id": 1}
        assert table.read((1,), columns=iter(["note", "id", "tag"])) == {"id": 1, "note": "x", "tag": "a"}
        assert plain(table.multi_read([(1,)], columns=["cost"])) == [{"id": 1, "cost": 1.5}]
        assert table.read((2,), columns=["n"]) is None

    @pytest.mark.parametrize("columns", [[], ["unknown"], ["n", "N"], [1]], ids=repr)
    def test_columns_must_be_fields(self, open_table: OpenTable, columns: list[str]) -> None:
        """An empty list or an unknown column is `InvalidFieldError`, whether or not the row exists."""
        table = open_table(ITEMS)
        for key in ((1,), (2,)):
            for refused in (
                lambda key=key: table.read(key, columns),
                lambda key=key: table.multi_read([key], columns),
                lambda: table.multi_read([], columns),
                lambda: table.scan(columns=columns),
                lambda: table.multi_scan([], columns=columns),
                lambda: table.scan_index("tag", "a", columns=columns),
            ):
                with pytest.raises(InvalidFieldError):
                    refused()

    def test_multi_read_gives_existing_rows_in_key_order_each_once(self, open_table: OpenTable) -> None:
        """`multi_read` returns the existing rows of exactly these keys, in key order, each once."""
        table = open_table(GRID)
        table.upsert_many(grid_rows())
        wanted: list[Key] = [
            (3, 0, "a"),
            (0, 1, "b"),
            (9, 9, "a"),
            (0, 1, "b"),
            {"k3": "a", "k2": 1, "k1": 0},
            (-1, 0, "a"),
        ]
        found = table.multi_read(wanted)
        assert isinstance(found, list)
        assert keys(found) == [(0, 1, "a"), (0, 1, "b"), (3, 0, "a")]
        assert plain(found) == [row for row in grid_rows() if (row["k1"], row["k2"], row["k3"]) in keys(found)]
        assert table.multi_read([]) == []
        assert table.multi_read([(9, 9, "z")]) == []

    def test_multi_read_consumes_its_keys_once(self, open_table: OpenTable) -> None:
        """Iterables of keys are consumed once."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number} for number in range(5)])
        assert keys(table.multi_read((number,) for number in (4, 2, 7))) == [(2,), (4,)]

    def test_multi_read_of_many_keys(self, open_table: OpenTable) -> None:
        """`multi_read` accepts any number of keys."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number} for number in range(0, 2000, 2)])
        found = table.multi_read([(number,) for number in range(1500, -1, -1)])
        assert keys(found) == [(number,) for number in range(0, 1501, 2)]

    def test_row_is_read_by_name_and_attribute(self, open_table: OpenTable) -> None:
        """A `Row` has `row["status"]`, `row.status`, `row.key` and `dict(row)`; unset fields are None."""
        table = open_table(GRID)
        table.upsert({"k1": 1, "k2": 2, "k3": "a", "v": 5})
        for row in [table.read((1, 2, "a")), next(table.scan()), table.multi_read([(1, 2, "a")])[0]]:
            assert isinstance(row, Row)
            assert (row["v"], row.v, row.key, row.color) == (5, 5, (1, 2, "a"), None)
            assert dict(row) == {"k1": 1, "k2": 2, "k3": "a", "v": 5, "color": None}

    def test_row_as_a_tuple(self, open_table: OpenTable) -> None:
        """`Row.astuple()` has the values in the order of the row's own columns, whatever call read the row."""
        table = open_table(GRID)
        table.upsert({"k1": 1, "k2": 2, "k3": "a", "v": 5})
        for columns in (None, ["v"], ["color", "k3"]):
            for row in [
                table.read((1, 2, "a"), columns),
                table.multi_read([(1, 2, "a")], columns)[0],
                next(table.scan(columns=columns)),
                next(table.scan(columns=columns, reverse=True)),
            ]:
                assert row is not None
                assert row.astuple() == tuple(row[name] for name in row)
                assert row.astuple().__class__ is tuple
                assert len(row.astuple()) == len(row)

    def test_row_equals_an_equal_mapping(self, open_table: OpenTable) -> None:
        """A row is equal to an equal mapping and to an equal row, and to no other; equal rows have equal hashes."""
        table = open_table(ITEMS)
        table.upsert_many([FULL, {**FULL, "id": 2}])
        row, again, other = table.read((1,)), next(table.scan()), table.read((2,))
        assert row == again == FULL
        assert row != other
        assert row != {"id": 1}
        assert hash(row) == hash(again)

    def test_row_is_immutable(self, open_table: OpenTable) -> None:
        """Rows are immutable."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        row = table.read((1,))
        assert row is not None
        with pytest.raises(TypeError):
            row["n"] = 6
        with pytest.raises(AttributeError):
            row.n = 6  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            del row.n
        assert row == FULL

    def test_unknown_or_unread_column_of_a_row(self, open_table: OpenTable) -> None:
        """An unknown name and a column that was not read are `KeyError` and `AttributeError`."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        row = table.read((1,), columns=["n"])
        assert row is not None
        for name in ("unknown", "note"):
            assert name not in row
            with pytest.raises(KeyError):
                row[name]
            with pytest.raises(AttributeError):
                getattr(row, name)

    def test_names_of_row_win_over_fields(self, open_table: OpenTable) -> None:
        """Row's own names win over fields as attributes; such a field is read as `row["key"]`."""
        names = ["key", "keys", "items", "values", "get", "astuple"]
        table = open_table(TableSpecification("t", [Field.int("k"), *(Field.string(name) for name in names)], ["k"]))
        table.upsert({"k": 1, **{name: f"field {name}" for name in names}})
        row = table.read((1,))
        assert row is not None
        assert row.key == (1,)
        assert [row[name] for name in names] == [f"field {name}" for name in names]
        assert list(row.keys()) == list(row)
        assert row.get("missing", 7) == 7

    def test_row_travels(self, open_table: OpenTable) -> None:
        """A row is picklable, and equals its copy."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        row = table.read((1,))
        copy = cast("Row", pickle.loads(pickle.dumps(row)))
        assert copy == row == FULL
        assert copy.key == (1,)

    def test_row_does_not_change_with_its_table(self, open_table: OpenTable) -> None:
        """A row that was read does not change with later writes."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        row = table.read((1,))
        changed: dict[str, Value] = {"id": 1, "n": 6}
        table.upsert(changed)
        table.delete((1,))
        assert row == FULL
