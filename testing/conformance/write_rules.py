"""Rules of `upsert`, `replace`, `insert`, `update` and `delete`: by calls, by calls of many, and by jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from structable.spi import (
    InvalidFieldError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    StructableError,
    StructuredTable,
    Value,
)

from .case import OpenTable
from .samples import ITEMS, Record, item, keys, plain
from .writing import OpenWriting, Writing, WritingCase

FULL = item(1, n=5, tag="a", note="x", rank=7, cost=1.5)
BAD_ROWS: list[Record] = [
    {"id": 1, "unknown": 1},
    {"id": 1, "N": 1},
    {"id": 1, "n": "1"},
    {"id": 1, "tag": "nul\x00"},
    {"id": None, "n": 1},
    {"id": True, "n": 1},
    {"n": 1},
]


def writes_of(table: StructuredTable) -> dict[str, Callable[[], object]]:
    """Return a call of each verb that writes, on a table like ITEMS that has row 1, and no row 100 or 101."""
    row = item(1, tag="new")
    return {
        "upsert": lambda: table.upsert(row),
        "upsert_many": lambda: table.upsert_many([row]),
        "replace": lambda: table.replace(row),
        "replace_many": lambda: table.replace_many([row]),
        "insert": lambda: table.insert(item(100)),
        "insert_many": lambda: table.insert_many([item(101)]),
        "apply_changes": lambda: table.apply_changes([("+U", row)]),
        "update": lambda: table.update(row),
        "update_many": lambda: table.update_many([row]),
        "compare_and_swap": lambda: table.compare_and_swap((1,), "n", None, 1),
        "increment": lambda: table.increment((1,), "n"),
        "increment_many": lambda: table.increment_many([((1,), "n", 1)]),
        "delete": lambda: table.delete((1,)),
        "delete_many": lambda: table.delete_many([(1,)]),
        "delete_all": lambda: table.delete_all(Range.all()),
        "update_all": lambda: table.update_all(Range.all(), {"n": 1}),
    }


class WriteRules(WritingCase):
    """Each operation's rule, by calls and calls of many in both views, and by jobs."""

    @pytest.fixture
    def writing(self, open_writing: OpenWriting) -> Writing:
        """Write rows of ITEMS in each way."""
        return open_writing(ITEMS)

    def test_upsert(self, writing: Writing) -> None:
        """`upsert` inserts an absent row with null in unnamed fields, and changes the named fields of a present row."""
        writing.table.upsert(FULL)
        writing(
            "upsert", {"id": 3, "n": 3}, {"id": 1, "n": 6, "tag": None}, {"id": 2, "tag": "b"}, {"id": 1, "note": "y"}
        )
        changed = {**FULL, "n": 6, "tag": None, "note": "y"}
        assert plain(writing.table.scan()) == [changed, item(2, tag="b"), item(3, n=3)]
        assert [keys(writing.table.scan_index("tag", tag)) for tag in ("a", "b", None)] == [[], [(2,)], [(1,), (3,)]]

    def test_upsert_of_the_key_alone(self, writing: Writing) -> None:
        """`upsert` that names only the key makes a row of nulls, and changes nothing in a row that exists."""
        writing.table.upsert(FULL)
        writing("upsert", {"id": 1}, {"id": 2})
        assert plain(writing.table.scan()) == [FULL, item(2)]

    def test_replace(self, writing: Writing) -> None:
        """`replace` makes rows exactly as given, the last one given for a repeated key; unnamed fields become null."""
        writing.table.upsert_many([FULL, item(2, tag="b")])
        writing("replace", {"id": 1, "n": 6}, {"id": 3, "tag": "c"}, {"id": 1, "note": "y"})
        assert plain(writing.table.scan()) == [item(1, note="y"), item(2, tag="b"), item(3, tag="c")]
        assert keys(writing.table.scan_index("tag", "a")) == []
        assert keys(writing.table.scan_index("rank", None)) == [(1,), (2,), (3,)]

    def test_insert(self, writing: Writing) -> None:
        """`insert` puts new rows; if the key of one exists, it is `RecordExistsError`, and none is put."""
        table = writing.table
        table.insert({"id": 1, "n": 1})
        writing("insert", {"id": 4, "tag": "a"}, {"id": 3, "n": 3})
        rows = [item(1, n=1), item(3, n=3), item(4, tag="a")]
        assert plain(table.scan()) == rows
        refusal = writing.refuse(RecordExistsError, "insert", {"id": 1, "n": 2, "tag": "b"}, {"id": 7})
        assert (refusal.table, refusal.key) == ("items", (1,))
        if writing.together:
            writing.refuse(StructableError, "insert", {"id": 7}, {"id": 7})
        assert plain(table.scan()) == rows
        assert [keys(table.scan_index("tag", tag)) for tag in "ab"] == [[(4,)], []]

    def test_update(self, writing: Writing) -> None:
        """`update` changes named fields of rows; absent ones are `RecordNotFoundError`, or skipped by `update_many`."""
        table = writing.table
        table.insert_many([FULL, item(2, n=2)])
        writing("update", {"id": 2, "n": 20, "tag": "c"}, {"id": 1, "n": None, "tag": "b"})
        rows = [{**FULL, "n": None, "tag": "b"}, item(2, n=20, tag="c")]
        assert plain(table.scan()) == rows
        assert [keys(table.scan_index("tag", tag)) for tag in "ab"] == [[], [(1,)]]
        if "many" not in writing.way:
            refusal = writing.refuse(RecordNotFoundError, "update", {"id": 3, "n": 0}, {"id": 2, "n": 0})
            assert (refusal.table, refusal.key) == ("items", (3,))
            assert plain(table.scan()) == rows

    def test_delete(self, writing: Writing) -> None:
        """`delete` removes rows and their index entries; absent and repeated keys are not errors."""
        writing.table.upsert_many([FULL, item(2, tag="a"), item(3, tag="a")])
        writing("delete", {"id": 3}, {"id": 1}, {"id": 99}, {"id": 1})
        assert plain(writing.table.scan()) == [item(2, tag="a")]
        assert keys(writing.table.scan_index("tag", "a")) == [(2,)]
        assert keys(writing.table.scan_index("rank", 7)) == []

    def test_bad_rows_are_refused(self, writing: Writing) -> None:
        """A row with an unknown field, a wrong value or no whole key is `InvalidFieldError`, and none is written."""
        writing.table.upsert({"id": 1, "n": 1})
        for verb in ("upsert", "replace", "insert", "update"):
            for bad in BAD_ROWS:
                writing.refuse_bad(InvalidFieldError, verb, bad, {"id": 1 if verb == "update" else 9, "n": 9})
        assert plain(writing.table.scan()) == [item(1, n=1)]

    def test_upsert_takes_any_mapping(self, open_table: OpenTable) -> None:
        """A row may be any mapping, also a `Row` that was read."""
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

    def test_upsert_many_consumes_its_rows_once(self, open_table: OpenTable) -> None:
        """Iterables of rows are consumed once, before the first attempt; a failing one changes nothing."""
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

    def test_many_rows_in_one_call(self, open_table: OpenTable) -> None:
        """One call takes thousands of rows."""
        table = open_table(ITEMS)
        table.upsert_many({"id": number, "tag": "ab"[number % 2]} for number in range(3000))
        assert table.count() == 3000
        table.delete_many([(number,) for number in range(4000) if number % 3])
        assert keys(table.scan()) == [(number,) for number in range(0, 3000, 3)]
        assert keys(table.scan_index("tag", "a")) == [(number,) for number in range(0, 3000, 6)]

    def test_insert_after_delete(self, open_table: OpenTable) -> None:
        """A deleted key does not exist: it can be inserted again, and nothing of the old row comes back."""
        table = open_table(ITEMS)
        table.insert(FULL)
        table.delete((1,))
        table.insert({"id": 1, "rank": 2})
        assert table.read((1,)) == item(1, rank=2)

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
        for bad in BAD_ROWS[:-1]:
            with pytest.raises(InvalidFieldError):
                table.update({"id": 1}, default=bad)
        table.update({"id": 1}, default={})
        table.update({"id": 2}, default={"id": 2, "n": 2})
        assert plain(table.scan()) == [item(1), item(2, n=2)]
        with pytest.raises(InvalidFieldError):
            table.update({"id": 3, "n": 3}, default={"id": 4})
        assert table.count() == 2

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
