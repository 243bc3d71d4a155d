"""Rules of `compare_and_swap`, `increment`, `delete_all` and `update_all`."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal
from typing import cast

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    Value,
    col,
)

from .case import Begin, ConformanceCase, OpenTable
from .samples import GRID, ITEMS, TYPES, grid_rows, item, keys, plain

COUNTERS = TableSpecification(
    "counters",
    [
        Field.long("id"),
        Field.byte("byte"),
        Field.short("short"),
        Field.int("int"),
        Field.long("long"),
        Field.string("note"),
    ],
    primary_key=["id"],
    indexes=["int"],
)


def value_of(table: StructuredTable, field: str) -> Value:
    """Return a field of the row with key 1."""
    row = table.read((1,))
    assert row is not None
    return row[field]


class AtomicRules(ConformanceCase):
    """The operations that read and write in one call."""

    def test_compare_and_swap(self, open_table: OpenTable) -> None:
        """`compare_and_swap` sets the field if it equals `expected`, and returns whether it did; other fields stay."""
        table = open_table(ITEMS)
        table.upsert(item(1, n=5, tag="a"))
        assert table.compare_and_swap((1,), "n", 5, 6) is True
        assert table.read((1,)) == item(1, n=6, tag="a")
        assert table.compare_and_swap((1,), "n", 5, 7) is False
        assert table.compare_and_swap({"id": 1}, "tag", "a", "b") is True
        assert table.read((1,)) == item(1, n=6, tag="b")
        assert keys(table.scan_index("tag", "b")) == [(1,)]
        assert keys(table.scan_index("tag", "a")) == []

    def test_compare_and_swap_to_null(self, open_table: OpenTable) -> None:
        """The new value may be None, which makes the field null."""
        table = open_table(ITEMS)
        table.upsert(item(1, n=5, tag="a"))
        assert table.compare_and_swap((1,), "tag", "a", None)
        assert table.read((1,)) == item(1, n=5)
        assert keys(table.scan_index("tag", None)) == [(1,)]

    def test_compare_and_swap_of_an_unset_field(self, open_table: OpenTable) -> None:
        """An unset field counts as None: only `expected=None` matches it."""
        table = open_table(ITEMS)
        table.upsert({"id": 1})
        assert not table.compare_and_swap((1,), "n", 0, 1)
        assert table.compare_and_swap((1,), "n", None, 1)
        assert not table.compare_and_swap((1,), "n", None, 2)
        assert table.read((1,)) == item(1, n=1)

    def test_compare_and_swap_of_an_absent_row(self, open_table: OpenTable) -> None:
        """An absent row counts as None: `expected=None` creates it, also with the value None."""
        table = open_table(ITEMS)
        assert not table.compare_and_swap((1,), "n", 0, 1)
        assert table.count() == 0
        assert table.compare_and_swap((1,), "n", None, 1)
        assert table.compare_and_swap((2,), "n", None, None)
        assert plain(table.scan()) == [item(1, n=1), item(2)]

    def test_compare_and_swap_equality(self, open_table: OpenTable) -> None:
        """In `expected`, NaN equals NaN, -0.0 equals 0.0, a decimal equals by value, a FLOAT is rounded."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "double": math.nan, "float": 0.1, "decimal": Decimal("1.50")})
        assert table.compare_and_swap((1,), "double", math.nan, 0.0)
        assert table.compare_and_swap((1,), "double", -0.0, 1)
        assert table.compare_and_swap((1,), "double", 1, math.inf)
        assert not table.compare_and_swap((1,), "double", math.nan, 2.0)
        assert table.compare_and_swap((1,), "decimal", Decimal("1.5"), Decimal(2))
        assert table.compare_and_swap((1,), "float", 0.1, math.nan)
        assert table.compare_and_swap((1,), "float", math.nan, 0.5)

    def test_compare_and_swap_of_a_key_field(self, open_table: OpenTable) -> None:
        """Key fields are `InvalidFieldError`."""
        table = open_table(ITEMS)
        table.upsert({"id": 1})
        with pytest.raises(InvalidFieldError):
            table.compare_and_swap((1,), "id", 1, 2)
        assert keys(table.scan()) == [(1,)]

    def test_increment(self, open_table: OpenTable) -> None:
        """`increment` adds the amount, which may be negative and is 1 if not given, and returns nothing."""
        table = open_table(COUNTERS)
        table.upsert({"id": 1, "long": 40, "note": "x"})
        result = cast("object", table.increment((1,), "long"))
        assert result is None
        table.increment({"id": 1}, "long", 10)
        table.increment((1,), "long", -9)
        assert value_of(table, "long") == 42
        assert value_of(table, "note") == "x"

    def test_increment_of_absent_and_null(self, open_table: OpenTable) -> None:
        """An absent row and a null count as 0; the row is created."""
        table = open_table(COUNTERS)
        table.increment((1,), "int", 5)
        table.increment((1,), "short", -3)
        assert plain(table.scan()) == [{"id": 1, "byte": None, "short": -3, "int": 5, "long": None, "note": None}]
        assert keys(table.scan_index("int", 5)) == [(1,)]

    def test_increment_moves_an_indexed_value(self, open_table: OpenTable) -> None:
        """An index follows the increments of its field."""
        table = open_table(COUNTERS)
        table.upsert_many([{"id": 1, "int": 1}, {"id": 2, "int": 3}])
        table.increment((1,), "int", 2)
        assert keys(table.scan_index("int", 3)) == [(1,), (2,)]
        assert keys(table.scan_index("int", 1)) == []

    @pytest.mark.parametrize(("field", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
    def test_increment_overflow(self, storage: Storage, field: str, bits: int) -> None:
        """An overflow is `InvalidFieldError`, at the call or at the commit, and nothing is written."""
        storage.admin.create(COUNTERS)
        table = storage.table("counters")
        highest, lowest = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
        table.upsert_many([{"id": 1, field: highest - 1}, {"id": 2, field: lowest}])
        table.increment((1,), field)
        assert value_of(table, field) == highest
        for key, amount in (((1,), 1), ((2,), -1), ((1,), highest)):
            with pytest.raises(InvalidFieldError):
                table.increment(key, field, amount)

            def overflow(transaction: Transaction, key: tuple[int] = key, amount: int = amount) -> None:
                transaction.table("counters").upsert({"id": 3})
                transaction.table("counters").increment(key, field, amount)

            with pytest.raises(InvalidFieldError):
                storage.run(overflow)
        assert [row[field] for row in table.scan()] == [highest, lowest]

    def test_increment_overflow_beside_a_closed_scan(self, storage: Storage, begin: Begin) -> None:
        """A refused increment raises the same error after a scan was closed between increments."""
        storage.admin.create(COUNTERS)
        storage.table("counters").upsert_many([{"id": key, "long": 1} for key in range(500)])
        transaction = begin()
        table = transaction.table("counters")
        rows = table.scan()
        next(rows)
        table.increment((1,), "long")
        rows.close()

        def overflow() -> None:
            table.increment((2,), "long", 2**63 - 1)
            table.read((2,))

        with pytest.raises(InvalidFieldError):
            overflow()
        with suppress(InvalidFieldError):
            transaction.commit()
        assert plain(storage.table("counters").multi_read([(2,)], ["long"])) == [{"id": 2, "long": 1}]

    @pytest.mark.parametrize("amount", [1.0, "1", None, True, 2**63, -(2**63) - 1], ids=repr)
    def test_increment_amount_must_fit(self, storage: Storage, amount: int) -> None:
        """The amount is an int within the field's range; anything else is `InvalidFieldError`."""
        storage.admin.create(COUNTERS)
        with pytest.raises(InvalidFieldError):
            storage.table("counters").increment((1,), "long", amount)
        assert storage.table("counters").count() == 0

    @pytest.mark.parametrize("field", ["id", "note", "unknown"])
    def test_increment_takes_integer_fields(self, open_table: OpenTable, field: str) -> None:
        """`increment` accepts integer fields outside the key; any other is `InvalidFieldError`."""
        table = open_table(COUNTERS)
        table.upsert({"id": 1})
        with pytest.raises(InvalidFieldError):
            table.increment((1,), field)
        assert keys(table.scan()) == [(1,)]

    def test_delete_all_of_a_range(self, open_table: OpenTable) -> None:
        """`delete_all` deletes the rows of a range and returns their number; index entries go with them."""
        table = open_table(GRID)
        rows = grid_rows()
        table.upsert_many(rows)
        assert table.delete_all(Range.prefix((1,))) == 8
        assert table.delete_all(Range.prefix((1,))) == 0
        rows = [row for row in rows if row["k1"] != 1]
        assert plain(table.scan()) == rows
        assert plain(table.scan_index("v", 2)) == [row for row in rows if row["v"] == 2]
        assert table.delete_all(Range.all()) == len(rows)
        assert table.count() == 0
        assert keys(table.scan_index("v", 0)) == []

    def test_delete_all_where(self, open_table: OpenTable) -> None:
        """`delete_all` deletes only the rows for which `where` is true, and keeps those for which it is unknown."""
        table = open_table(GRID)
        rows = grid_rows()
        table.upsert_many(rows)
        gone = [row for row in rows if row["k1"] == 2 and row["color"] not in (None, "red")]
        assert table.delete_all(Range.prefix((2,)), where=col("color") != "red") == len(gone)
        assert plain(table.scan()) == [row for row in rows if row not in gone]

    def test_update_all(self, open_table: OpenTable) -> None:
        """`update_all` changes named fields of a range's rows for which `where` is true, and returns their number."""
        table = open_table(GRID)
        rows = grid_rows()
        table.upsert_many(rows)
        changed = [row for row in rows if row["k1"] in (1, 2) and row["color"] == "red"]
        number = table.update_all(Range((1,), (3,)), {"v": 100, "color": None}, where=col("color") == "red")
        assert number == len(changed)
        expected = [{**row, "v": 100, "color": None} if row in changed else row for row in rows]
        assert plain(table.scan()) == expected
        assert plain(table.scan_index("v", 100)) == [row for row in expected if row["v"] == 100]
        assert table.update_all(Range.prefix((9,)), {"v": 1}) == 0

    def test_update_all_changes_each_row_once(self, open_table: OpenTable) -> None:
        """A row that `update_all` moves within an index, or into its own condition, is still changed once."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number, "rank": number} for number in range(10)])
        assert table.update_all(Range.all(), {"rank": 7}, where=col("rank") < 8) == 8
        assert [row["rank"] for row in table.scan()] == [7] * 8 + [8, 9]

    @pytest.mark.parametrize("changes", [{"id": 1}, {"n": 1, "id": 2}], ids=repr)
    def test_update_all_refuses_key_fields(self, open_table: OpenTable, changes: dict[str, Value]) -> None:
        """Key fields in `changes` are `InvalidFieldError`, even if no row matches."""
        table = open_table(ITEMS)
        with pytest.raises(InvalidFieldError):
            table.update_all(Range.all(), changes)
        table.upsert({"id": 1})
        with pytest.raises(InvalidFieldError):
            table.update_all(Range.all(), changes)
        assert plain(table.scan()) == [item(1)]

    def test_many_rows_at_once(self, open_table: OpenTable) -> None:
        """`delete_all` and `update_all` accept any number of rows."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number, "n": number, "tag": "old"} for number in range(2500)])
        assert table.update_all(Range.all(), {"tag": "new"}, where=col("n") < 2000) == 2000
        assert len(list(table.scan_index("tag", "new"))) == 2000
        assert table.delete_all(Range.at_least((500,)), where=col("tag") == "new") == 1500
        assert table.count() == 1000
