"""Rules of order: the contract defines the order of keys and of indexed values, not the store."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structable.spi import Field, FieldType, Range, Storage, TableSpecification, Value

from .case import ConformanceCase, OpenTable
from .samples import KEY_ORDER, keys, type_name


def shuffled(values: list[Value]) -> list[Value]:
    """Return the values in another order, the same in every run."""
    mixed = list(values)
    random.Random(7).shuffle(mixed)
    return mixed


class KeyOrder(ConformanceCase):
    """The order of keys: "b" follows "aa", -1 precedes 0, every store agrees."""

    @pytest.mark.parametrize("kind", list(KEY_ORDER), ids=type_name)
    def test_order_of_keys(self, open_table: OpenTable, kind: FieldType) -> None:
        """Ints by value, strings by code point, bytes bytewise, false before true, times by instant."""
        table = open_table(TableSpecification("t", [Field("k", kind), Field.int("v")], ["k"]))
        ascending = KEY_ORDER[kind]
        table.upsert_many([{"k": value, "v": 1} for value in shuffled(ascending)])
        assert [row["k"] for row in table.scan()] == ascending
        assert [row["k"] for row in table.scan(reverse=True)] == ascending[::-1]
        assert [row["k"] for row in table.multi_read([(value,) for value in shuffled(ascending)])] == ascending

    @pytest.mark.parametrize("kind", list(KEY_ORDER), ids=type_name)
    def test_order_decides_ranges(self, open_table: OpenTable, kind: FieldType) -> None:
        """Ranges cut the keys in accordance with the order."""
        table = open_table(TableSpecification("t", [Field("k", kind), Field.int("v")], ["k"]))
        ascending = KEY_ORDER[kind]
        table.upsert_many([{"k": value, "v": 1} for value in shuffled(ascending)])
        for place, value in enumerate(ascending):
            assert [row["k"] for row in table.scan(Range.below((value,)))] == ascending[:place]
            assert [row["k"] for row in table.scan(Range.at_least((value,)))] == ascending[place:]
            assert [row["k"] for row in table.scan(Range.prefix((value,)))] == [value]

    @pytest.mark.parametrize("kind", list(KEY_ORDER), ids=type_name)
    def test_order_by_an_index(self, open_table: OpenTable, kind: FieldType) -> None:
        """Indexed values are ordered as keys are, nulls first, ties by primary key."""
        table = open_table(TableSpecification("t", [Field.int("k"), Field("v", kind)], ["k"], ["v"]))
        ascending: list[Value] = [None, *KEY_ORDER[kind]]
        rows: list[tuple[int, Value]] = list(enumerate(shuffled(ascending * 2)))
        table.upsert_many([{"k": number, "v": value} for number, value in rows])
        expected = [(value, number) for value in ascending for number, other in rows if other == value]
        assert [(row["v"], row["k"]) for row in table.scan(order_by="v")] == expected
        assert [(row["v"], row["k"]) for row in table.scan(order_by="v", reverse=True)] == expected[::-1]

    def test_order_of_composite_keys(self, open_table: OpenTable) -> None:
        """Composite keys are ordered field by field: a longer string or byte value never runs into the next field."""
        texts = ["", "\x01", "a", "a\x01", "aa", "b"]
        data = [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\xff"]
        ascending = list(itertools.product(texts, data, [-1, 0, 1]))
        spec = TableSpecification("t", [Field.string("s"), Field.bytes("b"), Field.int("i")], ["s", "b", "i"])
        table = open_table(spec)
        mixed = list(ascending)
        random.Random(3).shuffle(mixed)
        table.upsert_many([{"s": s, "b": b, "i": i} for s, b, i in mixed])
        assert keys(table.scan()) == ascending
        assert keys(table.scan(reverse=True)) == ascending[::-1]
        assert keys(table.scan(Range.prefix(("a",)))) == [key for key in ascending if key[0] == "a"]
        assert keys(table.scan(Range.prefix(("a", b"\x00")))) == [key for key in ascending if key[:2] == ("a", b"\x00")]

    def test_key_order_is_not_field_order(self, open_table: OpenTable) -> None:
        """Keys are ordered by the primary key's order of fields, whatever the order of fields in the table."""
        table = open_table(TableSpecification("t", [Field.int("a"), Field.int("b"), Field.int("c")], ["c", "a"]))
        table.upsert_many([{"a": a, "b": 0, "c": c} for a, c in [(1, 2), (2, 1), (3, 1), (0, 2)]])
        assert keys(table.scan()) == [(1, 2), (1, 3), (2, 0), (2, 1)]
        assert table.read((1, 3)) == {"a": 3, "b": 0, "c": 1}

    def test_any_strings_and_bytes_are_ordered(self, storage: Storage) -> None:
        """A scan returns any strings and bytes by code point and bytewise, each exactly once."""
        spec = TableSpecification("t", [Field.string("s"), Field.bytes("b"), Field.long("n")], ["s", "b", "n"])
        storage.admin.create(spec)
        table = storage.table("t")
        text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
        key = st.tuples(text, st.binary(max_size=4), st.integers(-(2**63), 2**63 - 1))

        @settings(max_examples=self.max_examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(key, max_size=20))
        def check(given_keys: list[tuple[str, bytes, int]]) -> None:
            with storage.transaction() as transaction:
                inside = transaction.table("t")
                inside.delete_all(Range.all())
                inside.upsert_many([{"s": s, "b": b, "n": n} for s, b, n in given_keys])
                assert keys(inside.scan()) == sorted(set(given_keys))
            assert keys(table.scan()) == sorted(set(given_keys))

        check()
