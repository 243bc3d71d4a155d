"""Rules of `scan_index`, and of indexes following every kind of write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from structable.spi import InvalidFieldError, Range, Storage, StructuredTable, Value, col

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, NOTED, grid_rows, item, keys, plain

ROWS = grid_rows()


def _made_again(table: StructuredTable) -> None:
    table.delete((1,))
    table.insert({"id": 1, "tag": "new"})


WRITES: dict[str, Callable[[StructuredTable], object]] = {
    "upsert": lambda table: table.upsert({"id": 1, "tag": "new"}),
    "upsert_many": lambda table: table.upsert_many([{"id": 1, "tag": "other"}, {"id": 1, "tag": "new"}]),
    "replace": lambda table: table.replace({"id": 1, "tag": "new"}),
    "update": lambda table: table.update({"id": 1, "tag": "new"}),
    "compare_and_swap": lambda table: table.compare_and_swap((1,), "tag", "old", "new"),
    "update_all": lambda table: table.update_all(Range.prefix((1,)), {"tag": "new"}),
    "delete and insert": _made_again,
}
"""Every way to move row 1 from tag "old" to tag "new"."""

REMOVALS: dict[str, Callable[[StructuredTable], object]] = {
    "delete": lambda table: table.delete((1,)),
    "delete_all": lambda table: table.delete_all(Range.all(), where=col("tag") == "old"),
}
"""Every way to remove row 1."""


class IndexRules(ConformanceCase):
    """Rows by an indexed field, with own writes, in key order."""

    def filled(self, open_table: OpenTable) -> StructuredTable:
        """Return the grid with all its rows."""
        table = open_table(GRID)
        table.upsert_many(ROWS)
        return table

    def test_scan_index(self, open_table: OpenTable) -> None:
        """`scan_index` returns the rows whose indexed field equals the value, in key order."""
        table = self.filled(open_table)
        for value in range(-1, 6):
            assert plain(table.scan_index("v", value)) == [row for row in ROWS if row["v"] == value]

    def test_scan_index_of_none_finds_nulls(self, open_table: OpenTable) -> None:
        """The value None finds the rows in which the field is null, also those that never named it."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": 1}, {"id": 2, "tag": ""}, {"id": 3, "tag": "x"}, {"id": 4, "tag": None, "rank": 0}])
        assert keys(table.scan_index("tag", None)) == [(1,), (4,)]
        assert keys(table.scan_index("tag", "")) == [(2,)]
        assert keys(table.scan_index("rank", None)) == [(1,), (2,), (3,)]

    @pytest.mark.parametrize("field", ["color", "k1", "unknown"])
    def test_scan_index_needs_an_index(self, open_table: OpenTable, field: str) -> None:
        """A field without an index is `InvalidFieldError`, when the method is called."""
        table = open_table(GRID)
        with pytest.raises(InvalidFieldError):
            table.scan_index(field, 1)
        with pytest.raises(InvalidFieldError):
            table.scan_index(field, None)

    def test_scan_index_takes_what_scan_takes(self, open_table: OpenTable) -> None:
        """`scan_index` accepts `range`, `where`, `columns`, `order_by`, `reverse` and `limit` as `scan` does."""
        table = self.filled(open_table)
        zeros = [row for row in ROWS if row["v"] == 0]
        assert plain(table.scan_index("v", 0, range=Range.prefix((0,)))) == [row for row in zeros if row["k1"] == 0]
        assert plain(table.scan_index("v", 0, range=Range((0, 2), (2,), False))) == [
            row for row in zeros if (row["k1"], row["k2"]) > (0, 2) and row["k1"] in (0, 1)
        ]
        assert plain(table.scan_index("v", 0, range=Range((2,), (1,)))) == []
        assert plain(table.scan_index("v", 0, where=col("color") == "red")) == [
            row for row in zeros if row["color"] == "red"
        ]
        assert plain(table.scan_index("v", 0, where=col("v") == 1)) == []
        assert plain(table.scan_index("v", 0, reverse=True)) == zeros[::-1]
        assert plain(table.scan_index("v", 0, limit=3)) == zeros[:3]
        assert plain(table.scan_index("v", 0, reverse=True, limit=3)) == zeros[::-1][:3]
        assert plain(table.scan_index("v", 0, columns=["v"], limit=1)) == [{"k1": 0, "k2": 0, "k3": "a", "v": 0}]
        by_k2 = sorted(zeros, key=lambda row: (row["k2"], row["k1"], row["k3"]))
        assert plain(table.scan_index("v", 0, order_by="k2")) == by_k2
        assert plain(table.scan_index("v", 0, order_by="k2", reverse=True, limit=4)) == by_k2[::-1][:4]
        assert plain(table.scan_index("v", 0, order_by="v")) == zeros

    def test_index_of_strings_matches_whole_values(self, open_table: OpenTable) -> None:
        """An index finds equal values only: neither longer nor shorter ones, nor ones that differ by case."""
        table = open_table(ITEMS)
        tags = ["a", "ab", "A", "", "a\x01", "b"]
        table.upsert_many([{"id": number, "tag": tag} for number, tag in enumerate(tags)])
        for number, tag in enumerate(tags):
            assert keys(table.scan_index("tag", tag)) == [(number,)]

    @pytest.mark.parametrize("write", list(WRITES))
    @pytest.mark.parametrize("committed", [True, False], ids=["committed row", "own row"])
    def test_index_follows_every_write(self, storage: Storage, write: str, committed: bool) -> None:
        """However a row gets another value, an index finds the row under that value alone, even before the commit."""
        storage.admin.create(ITEMS)
        rows = [item(1, tag="old"), item(2, tag="old"), item(3, tag="new")]
        if committed:
            storage.table("items").upsert_many(rows)
        with storage.transaction() as transaction:
            table = transaction.table("items")
            if not committed:
                table.upsert_many(rows)
            WRITES[write](table)
            self.assert_tags(table, old=[2], new=[1, 3])
        self.assert_tags(storage.table("items"), old=[2], new=[1, 3])

    @pytest.mark.parametrize("removal", list(REMOVALS))
    @pytest.mark.parametrize("committed", [True, False], ids=["committed row", "own row"])
    def test_index_forgets_deleted_rows(self, storage: Storage, removal: str, committed: bool) -> None:
        """A deleted row is not found by any index, before and after the commit."""
        storage.admin.create(ITEMS)
        rows = [item(1, tag="old"), item(3, tag="new")]
        if committed:
            storage.table("items").upsert_many(rows)
        with storage.transaction() as transaction:
            table = transaction.table("items")
            if not committed:
                table.upsert_many(rows)
            REMOVALS[removal](table)
            self.assert_tags(table, old=[], new=[3])
        self.assert_tags(storage.table("items"), old=[], new=[3])

    def assert_tags(self, table: StructuredTable, **expected: list[int]) -> None:
        """Check the index scans, filters and counts of each tag, and an order by it, against one another."""
        for tag, ids in expected.items():
            wanted = [(number,) for number in ids]
            assert keys(table.scan_index("tag", tag)) == wanted
            assert keys(table.scan(where=col("tag") == tag)) == wanted
            assert table.count(where=col("tag") == tag) == len(wanted)
        ordered = [(number,) for tag in sorted(expected) for number in expected[tag]]
        assert keys(table.scan(order_by="tag")) == ordered
        assert keys(table.scan(order_by="tag", reverse=True)) == ordered[::-1]

    def test_rolled_back_writes_leave_no_entry(self, storage: Storage) -> None:
        """Indexes hold nothing of a transaction that was rolled back."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many([item(1, tag="old"), item(3, tag="new")])
        transaction = storage.transaction()
        for write in WRITES.values():
            write(transaction.table("items"))
            transaction.table("items").upsert({"id": 1, "tag": "old"})
        transaction.table("items").upsert({"id": 9, "tag": "new"})
        transaction.rollback()
        self.assert_tags(storage.table("items"), old=[1], new=[3])

    def test_two_indexes_are_independent(self, open_table: OpenTable) -> None:
        """Each index is on one field: changing one value leaves the entries of the others."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": 1, "tag": "a", "rank": 1}, {"id": 2, "tag": "a", "rank": 2}])
        table.upsert({"id": 1, "rank": 2})
        assert keys(table.scan_index("tag", "a")) == [(1,), (2,)]
        assert keys(table.scan_index("rank", 2)) == [(1,), (2,)]
        assert keys(table.scan_index("rank", 1)) == []
        assert keys(table.scan_index("tag", "a", where=col("rank") == 2, reverse=True)) == [(2,), (1,)]

    def test_indexed_tables_do_not_share_entries(self, storage: Storage) -> None:
        """Rows and index entries of one table are never found in another."""
        for spec in (ITEMS, GRID, NOTED):
            storage.admin.create(spec)
        row: dict[str, Value] = {"id": 1, "tag": "a", "rank": 1}
        storage.table("items").upsert(row)
        storage.table("grid").upsert({"k1": 1, "k2": 1, "k3": "a", "v": 1})
        storage.table("noted").upsert({"id": "1"})
        assert keys(storage.table("items").scan_index("rank", 1)) == [(1,)]
        assert keys(storage.table("grid").scan_index("v", 1)) == [(1, 1, "a")]
        storage.table("items").delete_all(Range.all())
        assert keys(storage.table("grid").scan()) == [(1, 1, "a")]
        assert keys(storage.table("noted").scan()) == [("1",)]
