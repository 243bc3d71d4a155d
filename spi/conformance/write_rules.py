"""Rules of `upsert`, `upsert_many`, `replace`, `insert`, `update` and `delete`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from structable.spi import InvalidFieldError, RecordExistsError, RecordNotFoundError, Storage, Value

from .case import ConformanceCase, OpenTable
from .samples import GRID, ITEMS, item, keys, plain

__all__ = ["WriteRules"]

FULL = item(1, n=5, tag="a", note="x", rank=7, cost=1.5)


class WriteRules(ConformanceCase):
    """Each operation's rule, in the auto-commit view and in a transaction."""

    def test_upsert_inserts_an_absent_row(self, open_table: OpenTable) -> None:
        """`upsert` inserts the row; fields that it does not name are null."""
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 5})
        assert plain(table.scan()) == [item(1, n=5)]

    def test_upsert_changes_named_fields_and_keeps_the_others(self, open_table: OpenTable) -> None:
        """`upsert` changes the named fields of a row that exists and keeps the others."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        table.upsert({"id": 1, "n": 6, "tag": "b"})
        assert table.read((1,)) == {**FULL, "n": 6, "tag": "b"}

    def test_upsert_of_none_sets_null(self, open_table: OpenTable) -> None:
        """A field named with None becomes null, indexed or not."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        table.upsert({"id": 1, "n": None, "tag": None})
        assert table.read((1,)) == {**FULL, "n": None, "tag": None}
        assert keys(table.scan_index("tag", "a")) == []
        assert keys(table.scan_index("tag", None)) == [(1,)]

    def test_upsert_of_the_key_alone(self, open_table: OpenTable) -> None:
        """`upsert` that names only the key makes a row of nulls, and changes nothing in a row that exists."""
        table = open_table(ITEMS)
        table.upsert({"id": 1})
        assert table.read((1,)) == item(1)
        table.upsert(FULL)
        table.upsert({"id": 1})
        assert table.read((1,)) == FULL

    def test_upsert_takes_any_mapping(self, open_table: OpenTable) -> None:
        """A row is a mapping; a `Row` that was read is one."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        row = table.read((1,))
        assert row is not None
        table.delete((1,))
        table.upsert(row)
        assert table.read((1,)) == FULL

    def test_argument_is_not_kept(self, open_table: OpenTable) -> None:
        """The written row is the mapping's state at the call; later changes of the mapping have no effect."""
        table = open_table(ITEMS)
        row: dict[str, Value] = {"id": 1, "n": 1}
        table.upsert(row)
        row["n"] = 2
        row["id"] = 3
        assert plain(table.scan()) == [item(1, n=1)]

    def test_upsert_many(self, open_table: OpenTable) -> None:
        """`upsert_many` does the same in bulk: each row is inserted, or merged with the existing one."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        table.upsert_many([{"id": 3, "n": 3}, {"id": 1, "n": 1}, {"id": 2, "tag": "b"}])
        assert plain(table.scan()) == [{**FULL, "n": 1}, item(2, tag="b"), item(3, n=3)]
        table.upsert_many([])
        assert table.count() == 3

    def test_upsert_many_applies_rows_in_their_order(self, open_table: OpenTable) -> None:
        """Of two rows of one key in `upsert_many`, the later is applied to the result of the earlier."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": 1, "n": 1, "note": "x"}, {"id": 2}, {"id": 1, "n": 2, "tag": "b"}])
        assert plain(table.scan()) == [item(1, n=2, note="x", tag="b"), item(2)]
        assert keys(table.scan_index("tag", "b")) == [(1,)]

    def test_upsert_many_writes_none_if_one_is_refused(self, open_table: OpenTable) -> None:
        """A call that raises has no effect: one bad row, and none of `upsert_many` is written."""
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 1})
        with pytest.raises(InvalidFieldError):
            table.upsert_many([{"id": 1, "n": 2}, {"id": 2}, {"id": 3, "n": "x"}])
        assert plain(table.scan()) == [item(1, n=1)]

    def test_upsert_many_consumes_its_rows_once(self, open_table: OpenTable) -> None:
        """Iterables of rows are consumed once, before the first attempt; a failing one leaves nothing behind."""
        table = open_table(ITEMS)
        consumed: list[int] = []

        def rows(last: int) -> Iterator[Mapping[str, Value]]:
            for number in range(last):
                consumed.append(number)
                yield {"id": number}

        table.upsert_many(rows(3))
        assert consumed == [0, 1, 2]
        assert table.count() == 3

        def failing() -> Iterator[Mapping[str, Value]]:
            yield {"id": 10}
            raise KeyError("the caller's own")

        with pytest.raises(KeyError, match="the caller's own"):
            table.upsert_many(failing())
        assert table.count() == 3

    def test_upsert_many_of_many_rows(self, open_table: OpenTable) -> None:
        """Bulk means bulk: thousands of rows in one call."""
        table = open_table(GRID)
        rows: list[Mapping[str, Value]] = [{"k1": n % 7, "k2": n, "k3": "", "v": n % 11} for n in range(3000)]
        table.upsert_many(rows)
        assert table.count() == 3000
        assert len(list(table.scan_index("v", 3))) == len([row for row in rows if row["v"] == 3])

    def test_replace_makes_the_row_exactly_this(self, open_table: OpenTable) -> None:
        """`replace`: the row is exactly this, unnamed fields become null."""
        table = open_table(ITEMS)
        table.upsert(FULL)
        table.replace({"id": 1, "note": "y"})
        table.replace({"id": 2, "n": 2})
        assert plain(table.scan()) == [item(1, note="y"), item(2, n=2)]
        assert keys(table.scan_index("tag", "a")) == []
        assert keys(table.scan_index("rank", None)) == [(1,), (2,)]

    def test_insert(self, open_table: OpenTable) -> None:
        """`insert` puts a new row, and is `RecordExistsError` if the key exists; the existing row stays."""
        table = open_table(ITEMS)
        table.insert({"id": 1, "n": 1})
        with pytest.raises(RecordExistsError) as refusal:
            table.insert({"id": 1, "n": 2, "tag": "b"})
        assert (refusal.value.table, refusal.value.key) == ("items", (1,))
        assert plain(table.scan()) == [item(1, n=1)]
        assert keys(table.scan_index("tag", "b")) == []

    def test_insert_after_delete(self, open_table: OpenTable) -> None:
        """A deleted key does not exist: it can be inserted again, and nothing of the old row comes back."""
        table = open_table(ITEMS)
        table.insert(FULL)
        table.delete((1,))
        table.insert({"id": 1, "rank": 2})
        assert table.read((1,)) == item(1, rank=2)

    def test_update_changes_named_fields(self, open_table: OpenTable) -> None:
        """`update` changes the named fields of an existing row and keeps the others."""
        table = open_table(ITEMS)
        table.insert(FULL)
        table.update({"id": 1, "n": None, "tag": "b"})
        assert table.read((1,)) == {**FULL, "n": None, "tag": "b"}
        assert keys(table.scan_index("tag", "a")) == []
        assert keys(table.scan_index("tag", "b")) == [(1,)]

    def test_update_of_an_absent_row(self, open_table: OpenTable) -> None:
        """`update` of an absent row without a default is `RecordNotFoundError`, and makes no row."""
        table = open_table(ITEMS)
        with pytest.raises(RecordNotFoundError) as refusal:
            table.update({"id": 1, "n": 1})
        assert (refusal.value.table, refusal.value.key) == ("items", (1,))
        assert table.count() == 0

    def test_update_with_a_default(self, open_table: OpenTable) -> None:
        """`update` of an absent row puts the default and then applies the change; a row that exists ignores it."""
        table = open_table(ITEMS)
        default: dict[str, Value] = {"n": 100, "tag": "new", "rank": 1}
        table.update({"id": 1, "n": 1}, default=default)
        assert table.read((1,)) == item(1, n=1, tag="new", rank=1)
        table.update({"id": 1, "note": "x"}, default=default)
        assert table.read((1,)) == item(1, n=1, tag="new", rank=1, note="x")
        assert keys(table.scan_index("tag", "new")) == [(1,)]

    def test_default_may_leave_the_key_out(self, open_table: OpenTable) -> None:
        """`update`'s default may leave the key out or name the same; another key is `InvalidFieldError`."""
        table = open_table(ITEMS)
        table.update({"id": 1}, default={})
        table.update({"id": 2}, default={"id": 2, "n": 2})
        assert plain(table.scan()) == [item(1), item(2, n=2)]
        with pytest.raises(InvalidFieldError):
            table.update({"id": 3, "n": 3}, default={"id": 4})
        assert table.count() == 2

    def test_delete(self, open_table: OpenTable) -> None:
        """`delete` removes the row and its index entries; an absent one is no error."""
        table = open_table(ITEMS)
        table.upsert_many([FULL, item(2, tag="a")])
        table.delete((1,))
        table.delete((1,))
        table.delete((99,))
        assert plain(table.scan()) == [item(2, tag="a")]
        assert keys(table.scan_index("tag", "a")) == [(2,)]
        assert keys(table.scan_index("rank", 7)) == []

    def test_write_after_write_in_one_transaction(self, storage: Storage) -> None:
        """Writes of one row in one transaction build on one another, and the last state is committed."""
        storage.admin.create(ITEMS)
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.insert({"id": 1, "n": 1, "tag": "a"})
            table.increment((1,), "n", 4)
            table.upsert({"id": 1, "note": "x"})
            assert table.compare_and_swap((1,), "n", 5, 6)
            table.update({"id": 1, "tag": "b"})
            table.delete((2,))
            table.insert({"id": 2, "n": 1})
            table.delete((2,))
            table.insert({"id": 3, "n": 1})
            table.delete((3,))
            table.upsert({"id": 3, "rank": 3})
            table.replace({"id": 4, "n": 4})
            table.increment((5,), "n", 2)
            table.increment((5,), "n", 3)
        expected = [item(1, n=6, tag="b", note="x"), item(3, rank=3), item(4, n=4), item(5, n=5)]
        assert plain(storage.table("items").scan()) == expected
        assert keys(storage.table("items").scan_index("tag", "a")) == []
        assert keys(storage.table("items").scan_index("rank", 3)) == [(3,)]

    def test_a_call_that_raises_has_no_effect_and_the_transaction_goes_on(self, storage: Storage) -> None:
        """A call that raises has no effect, and the transaction continues: all other calls of it are committed."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 1, "n": 1})
        with storage.transaction() as transaction:
            table = transaction.table("items")
            table.upsert({"id": 2, "n": 2})
            with pytest.raises(RecordExistsError):
                table.insert({"id": 1, "n": 9})
            with pytest.raises(RecordExistsError):
                table.insert({"id": 2, "n": 9})
            with pytest.raises(RecordNotFoundError):
                table.update({"id": 3, "n": 9})
            with pytest.raises(InvalidFieldError):
                table.upsert_many([{"id": 4}, {"id": 5, "n": "x"}])
            with pytest.raises(InvalidFieldError):
                table.read((1,), columns=[])
            table.upsert({"id": 6, "n": 6})
        assert plain(storage.table("items").scan()) == [item(1, n=1), item(2, n=2), item(6, n=6)]
