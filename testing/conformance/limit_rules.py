"""Rules of sizes: the limits of keys, indexed values and rows, the same in every store."""

from __future__ import annotations

import pytest

from structable.spi import Field, FieldSizeLimitError, InvalidFieldError, Range, Storage, TableSpecification

from .case import Begin, OpenTable
from .samples import Record, plain
from .writing import OpenWriting, WritingCase

MEBIBYTE = 1024 * 1024

LIMITED = TableSpecification(
    "limited",
    [Field.string("k"), Field.bytes("b"), Field.int("i"), Field.string("tag"), Field.bytes("one"), Field.bytes("two")],
    primary_key=["k", "b", "i"],
    indexes=["tag"],
)


class LimitRules(WritingCase):
    """Beyond a limit `FieldSizeLimitError` with the size and the limit, and nothing written."""

    def test_key_of_2000_bytes(self, open_writing: OpenWriting) -> None:
        """A key has at most 2,000 bytes: UTF-8 and byte lengths and fixed widths, nothing for separators or escapes."""
        writing = open_writing(LIMITED)
        # 2 bytes each in UTF-8, bytes that stores have to escape, and 4 bytes of an INT: 2,000 in all.
        row: Record = {"k": "\u00e9" * 498, "b": b"\x00" * 1000, "i": 1}
        writing("upsert", row)
        assert [row.key for row in writing.table.scan()] == [tuple(row.values())]
        assert writing.table.read(row) == {**row, "tag": None, "one": None, "two": None}
        refusal = writing.refuse(FieldSizeLimitError, "upsert", {**row, "b": b"\x00" * 1001}, {**row, "b": b""})
        assert (refusal.size, refusal.limit) == (2001, 2000)
        assert isinstance(refusal, InvalidFieldError)
        assert writing.table.count() == 1

    def test_key_limit_holds_for_every_key_argument(self, open_table: OpenTable) -> None:
        """The limit is checked in every key, not only in those that are written."""
        table = open_table(LIMITED)
        key = ("k", b"\xff" * 2000, 1)
        for refused in (
            lambda: table.read(key),
            lambda: table.multi_read([key]),
            lambda: table.delete(key),
            lambda: table.increment(key, "i"),
            lambda: table.compare_and_swap(key, "tag", None, "x"),
        ):
            with pytest.raises(InvalidFieldError):
                refused()

    def test_indexed_value_of_2000_bytes(self, open_writing: OpenWriting) -> None:
        """An indexed value has at most 2,000 bytes."""
        writing = open_writing(LIMITED)
        row: Record = {"k": "k", "b": b"", "i": 1, "tag": "t" * 2000}
        writing("upsert", row)
        refusal = writing.refuse(FieldSizeLimitError, "upsert", {**row, "tag": "t" * 2001}, {**row, "i": 2})
        assert (refusal.size, refusal.limit) == (2001, 2000)
        assert [row.key for row in writing.table.scan_index("tag", "t" * 2000)] == [("k", b"", 1)]

    def test_key_and_indexed_value_of_2500_bytes(self, open_table: OpenTable) -> None:
        """A key and an indexed value together have at most 2,500 bytes."""
        table = open_table(LIMITED)
        key: Record = {"k": "k" * 996, "b": b"", "i": 1}  # 1,000 bytes
        table.upsert({**key, "tag": "t" * 1500})
        assert table.count() == 1
        for write in (
            lambda: table.upsert({**key, "tag": "u" * 1501}),
            lambda: table.replace({**key, "tag": "u" * 1501}),
            lambda: table.update({**key, "tag": "u" * 1501}),
            lambda: table.update_all(Range.all(), {"tag": "u" * 1501}),
            lambda: table.compare_and_swap(("k" * 996, b"", 1), "tag", "t" * 1500, "u" * 1501),
        ):
            with pytest.raises(FieldSizeLimitError) as refusal:
                write()
            assert (refusal.value.size, refusal.value.limit) == (2501, 2500)
        assert [row["tag"] for row in table.scan()] == ["t" * 1500]

    def test_row_of_8_mebibytes(self, storage: Storage) -> None:
        """A row has at most 8 MiB, its key included."""
        storage.admin.create(LIMITED)
        table = storage.table("limited")
        key: Record = {"k": "k" * 4, "b": b"", "i": 1}  # 8 bytes
        whole: Record = {**key, "one": b"1" * (4 * MEBIBYTE), "two": b"2" * (4 * MEBIBYTE - 8)}
        table.upsert(whole)
        row = table.read(("kkkk", b"", 1))
        assert row is not None
        assert (row["one"], row["two"]) == (whole["one"], whole["two"])
        with pytest.raises(FieldSizeLimitError) as refusal:
            table.replace({**whole, "two": b"3" * (4 * MEBIBYTE - 7)})
        assert (refusal.value.size, refusal.value.limit) == (8 * MEBIBYTE + 1, 8 * MEBIBYTE)
        assert table.count() == 1
        assert table.read(("kkkk", b"", 1)) == row

    def test_row_limit_counts_the_merged_row(self, storage: Storage) -> None:
        """The limit is of the row after the merge, whichever operation merges."""
        storage.admin.create(LIMITED)
        table = storage.table("limited")
        key: Record = {"k": "k", "b": b"", "i": 1}
        table.upsert({**key, "one": b"1" * (5 * MEBIBYTE)})
        more = b"2" * (4 * MEBIBYTE)
        for write in (
            lambda: table.upsert({**key, "two": more}),
            lambda: table.upsert_many([{**key, "i": 2}, {**key, "two": more}]),
            lambda: table.update({**key, "two": more}),
            lambda: table.update_all(Range.all(), {"two": more}),
            lambda: table.compare_and_swap(("k", b"", 1), "two", None, more),
        ):
            with pytest.raises(FieldSizeLimitError) as refusal:
                write()
            assert refusal.value.limit == 8 * MEBIBYTE
        assert plain(table.scan(columns=["two"])) == [{**key, "two": None}]
        table.upsert({**key, "one": None, "two": more})  # the merge frees the size of the old value
        assert plain(table.scan(columns=["two"])) == [{**key, "two": more}]

    @pytest.mark.parametrize("indexes", [[], ["n"]], ids=["blind", "indexed"])
    def test_row_limit_counts_increments(self, storage: Storage, indexes: list[str]) -> None:
        """An increment of a null adds the field's width to the row, and is rejected at the call or at the commit."""
        storage.admin.create(LIMITED.evolve(fields=[*LIMITED.fields, Field.long("n")], indexes=indexes))
        table = storage.table("limited")
        full, other = ("f", b"", 1), ("k", b"", 1)
        table.upsert({"k": "f", "b": b"", "i": 1, "one": b"1" * (8 * MEBIBYTE - 5)})
        for increments in ([(full, "n", 1)], [(other, "n", 1), (full, "n", 0)]):
            with pytest.raises(FieldSizeLimitError), storage.transaction() as transaction:
                transaction.table("limited").increment_many(increments)
            with pytest.raises(FieldSizeLimitError):
                table.increment_many(increments)
        with pytest.raises(FieldSizeLimitError) as refusal:
            table.increment(full, "n")
        assert (refusal.value.size, refusal.value.limit) == (8 * MEBIBYTE + 8, 8 * MEBIBYTE)
        assert plain(table.scan(columns=["n"])) == [{"k": "f", "b": b"", "i": 1, "n": None}]

    def test_row_limit_counts_every_write_of_a_transaction(self, storage: Storage, begin: Begin) -> None:
        """A row that a transaction has read and filled up takes nothing more."""
        storage.admin.create(LIMITED)
        table = storage.table("limited")
        key: Record = {"k": "k", "b": b"", "i": 1}
        before: Record = {**key, "one": b"1" * (8 * MEBIBYTE - 1_000), "two": b""}
        table.upsert(before)
        transaction = begin()
        view = transaction.table("limited")
        assert view.read(("k", b"", 1)) is not None
        view.upsert({**key, "two": b"2" * 995})  # with 5 bytes of the key, 8 MiB

        def write_more() -> None:
            view.upsert({**key, "tag": "t"})
            transaction.commit()

        with pytest.raises(FieldSizeLimitError):
            write_more()
        transaction.rollback()
        assert plain(table.scan(columns=["two"])) == [{**key, "two": b""}]
