"""Rules of values: the values that each type accepts, rejects and converts."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from decimal import Decimal
from typing import cast

import pytest

from structable.spi import (
    Field,
    FieldType,
    InvalidFieldError,
    Range,
    Row,
    StructuredTable,
    TableSpecification,
    Value,
    col,
)

from .case import OpenTable
from .samples import EXTREMES, ITEMS, KEY_ORDER, TYPES, WRONG, item, plain, type_name
from .writing import OpenWriting, WritingCase


def read_row(table: StructuredTable, key: tuple[Value, ...]) -> Row:
    """Return a row that must be there."""
    row = table.read(key)
    assert row is not None, f"the row {key} is absent"
    return row


def same(one: Value, other: Value) -> bool:
    """Return whether two values are the same, in type and value; NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


class ValueRules(WritingCase):
    """Types, extremes, rounding, and refusals."""

    def test_every_value_of_a_type_comes_back(self, open_writing: OpenWriting) -> None:
        """A value of a type's whole range comes back equal and in the type's Python class, and null as None."""
        writing = open_writing(TYPES)
        samples = [(kind.value, value) for kind, values in EXTREMES.items() for value in (*values, None)]
        for kind in EXTREMES:
            writing(
                "upsert",
                *({"id": number, name: value} for number, (name, value) in enumerate(samples) if name == kind.value),
            )
        writing.table.upsert_many({"id": 1000 + number, name: value} for number, (name, value) in enumerate(samples))
        found = {row["id"]: row for row in writing.table.scan()}
        for number, (name, value) in enumerate(samples):
            assert same(read_row(writing.table, (number,))[name], value), (name, value)
            assert same(found[number][name], value), (name, value)
            assert repr(found[number][name]) == repr(found[1000 + number][name]), (name, value)

    def test_an_int_is_taken_for_a_decimal(self, open_table: OpenTable) -> None:
        """An int that fits a DECIMAL is accepted in rows, updates and filters, and comes back as a Decimal."""
        table = open_table(TYPES)
        most = 10**28 - 1
        table.upsert_many({"id": number, "decimal": value} for number, value in enumerate([0, -7, most, -most]))
        table.upsert({"id": 4, "int": 1})
        table.update({"id": 4, "decimal": 12})
        table.upsert({"id": 5, "decimal": 1})
        assert table.compare_and_swap((5,), "decimal", 1, 2)
        found = [row["decimal"] for row in table.scan()]
        assert all(map(same, found, map(Decimal, [0, -7, most, -most, 12, 2])))
        for where, ids in (
            (col("decimal") == -7, [1]),
            (col("decimal") > 2, [2, 4]),
            (col("decimal").isin([0, 12]), [0, 4]),
            (col("decimal").between(-7, 2), [0, 1, 5]),
        ):
            assert [row["id"] for row in table.scan(where=where)] == ids

    def test_wrong_values_are_refused(self, open_table: OpenTable) -> None:
        """A wrong type, a bool for an int, or a value out of range is `InvalidFieldError`, and nothing is written."""
        table = open_table(TYPES)
        for name, value in ((kind.value, value) for kind, values in WRONG.items() for value in values):
            with pytest.raises(InvalidFieldError) as refusal:
                table.upsert({"id": 1, name: cast("Value", value)})
            assert (refusal.value.table, refusal.value.field) == ("types", name), value
            assert refusal.value.reason, value
        assert table.count() == 0

    @pytest.mark.parametrize("kind", list(KEY_ORDER), ids=type_name)
    def test_wrong_values_are_refused_in_keys(self, open_table: OpenTable, kind: FieldType) -> None:
        """A value is checked in every key as in every write."""
        table = open_table(TableSpecification("t", [Field("k", kind), Field.int("v")], ["k"]))
        for given in [*WRONG[kind], None]:
            value = cast("Value", given)
            for key in ((value,), {"k": value}):
                for refused in (
                    lambda key=key: table.read(key),
                    lambda key=key: table.multi_read([key]),
                    lambda key=key: table.delete(key),
                    lambda key=key: table.compare_and_swap(key, "v", None, 1),
                    lambda key=key: table.increment(key, "v"),
                    lambda key=key: table.scan(Range.prefix(key)),
                    lambda value=value: table.upsert({"k": value, "v": 1}),
                ):
                    with pytest.raises(InvalidFieldError):
                        refused()
        assert table.count() == 0

    def test_every_operation_checks_field_names_and_values(self, open_table: OpenTable) -> None:
        """Operations that name a field reject unknown fields and values that do not fit."""
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 1})
        for refused in (
            lambda: table.compare_and_swap((1,), "unknown", None, 1),
            lambda: table.compare_and_swap((1,), "n", None, "x"),
            lambda: table.compare_and_swap((1,), "n", "x", 1),
            lambda: table.compare_and_swap((1,), "n", True, 1),
            lambda: table.increment((1,), "unknown"),
            lambda: table.update_all(Range.all(), {"unknown": 1}),
            lambda: table.update_all(Range.all(), {"n": "x"}),
            lambda: table.update_all(Range.all(), {"n": 2**63}),
            lambda: table.scan_index("tag", 1),
            lambda: table.scan_index("unknown", 1),
        ):
            with pytest.raises(InvalidFieldError):
                refused()
        assert plain(table.scan()) == [item(1, n=1)]

    @pytest.mark.parametrize(
        "key", [(), (1, 2), [1], 1, "1", {"id": 1, "n": 1}, {}, {"n": 1}, defaultdict(int), None], ids=repr
    )
    def test_key_is_whole(self, open_table: OpenTable, key: object) -> None:
        """A key is a mapping of all key fields, or a tuple in key order; anything else is `InvalidFieldError`."""
        table = open_table(ITEMS)
        whole = cast("tuple[Value, ...]", key)
        for refused in (
            lambda: table.read(whole),
            lambda: table.multi_read([whole]),
            lambda: table.delete(whole),
            lambda: table.compare_and_swap(whole, "n", None, 1),
            lambda: table.increment(whole, "n"),
        ):
            with pytest.raises(InvalidFieldError):
                refused()

    def test_key_as_tuple_or_mapping(self, open_table: OpenTable) -> None:
        """A tuple in key order and a mapping of the key fields, in any order, name the same row."""
        spec = TableSpecification("t", [Field.int("b"), Field.string("a"), Field.int("v")], ["a", "b"])
        table = open_table(spec)
        table.upsert({"a": "x", "b": 1, "v": 1})
        assert table.read(("x", 1)) == table.read({"b": 1, "a": "x"}) == {"a": "x", "b": 1, "v": 1}
        table.delete({"b": 1, "a": "x"})
        assert table.read(("x", 1)) is None

    def test_float_is_rounded_to_32_bits(self, open_table: OpenTable) -> None:
        """FLOAT values are rounded to 32 bits on write."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "float": 0.1})
        assert read_row(table, (1,))["float"] == 0.10000000149011612
        table.upsert({"id": 1, "float": 16777217})
        assert read_row(table, (1,))["float"] == 16777216.0

    def test_float_finds_what_it_wrote(self, open_table: OpenTable) -> None:
        """FLOAT values are also rounded in filters and expected values: 0.1 finds a written 0.1."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "float": 0.1, "double": 0.1})
        assert table.count(where=col("float") == 0.1) == 1
        assert table.count(where=col("float").isin([0.1])) == 1
        assert table.count(where=col("float").between(0.1, 0.1)) == 1
        assert table.count(where=col("float") > 0.1) == 0
        assert table.count(where=col("double") == 0.10000000149011612) == 0
        assert table.compare_and_swap((1,), "float", 0.1, 0.2)
        assert read_row(table, (1,))["float"] == 0.20000000298023224

    @pytest.mark.parametrize("value", [1e39, -1e39, 3.5e38, 10**39], ids=repr)
    def test_float_beyond_32_bits_is_refused(self, open_table: OpenTable, value: float) -> None:
        """FLOAT rejects a finite value beyond 32 bits, in rows, filters and expected values; infinity is kept."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "float": math.inf})
        for refused in (
            lambda: table.upsert({"id": 1, "float": value}),
            lambda: table.scan(where=col("float") < value),
            lambda: table.compare_and_swap((1,), "float", value, 1.0),
            lambda: table.compare_and_swap((1,), "float", math.inf, value),
        ):
            with pytest.raises(InvalidFieldError):
                refused()
        assert read_row(table, (1,))["float"] == math.inf

    def test_int_is_accepted_for_float_and_double(self, open_table: OpenTable) -> None:
        """An int is accepted for FLOAT and DOUBLE, and comes back as a float; nothing else is coerced."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "float": 3, "double": -7})
        row = read_row(table, (1,))
        assert (row["float"], type(row["float"]), row["double"], type(row["double"])) == (3.0, float, -7.0, float)
        assert table.count(where=(col("float") == 3) & (col("double") < 0)) == 1

    @pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 10**23, 2**1023 + 1], ids=lambda value: f"{value:.5e}")
    def test_int_that_a_double_would_round_is_refused(self, open_table: OpenTable, value: int) -> None:
        """DOUBLE accepts exactly the ints that equal a 64-bit float, in rows, filters and expected values."""
        table = open_table(TYPES)
        for kept in (2**53, 2**53 + 2, -(2**60), 2**1023):
            table.upsert({"id": 1, "double": kept})
            assert read_row(table, (1,))["double"] == kept
        for refused in (
            lambda: table.upsert({"id": 1, "double": value}),
            lambda: table.scan(where=col("double") == value),
            lambda: table.compare_and_swap((1,), "double", value, 1.0),
            lambda: table.compare_and_swap((1,), "double", 2.0**1023, value),
        ):
            with pytest.raises(InvalidFieldError, match="more digits than a 64-bit float keeps"):
                refused()
        assert read_row(table, (1,))["double"] == 2.0**1023

    def test_decimal_that_fits_exactly(self, open_table: OpenTable) -> None:
        """DECIMAL(p,s) accepts values that fit exactly; trailing zeros carry no value. It is kept with scale s."""
        table = open_table(TableSpecification("t", [Field.int("k"), Field.decimal("d", 4, 2)], ["k"]))
        for given, kept in [("1.5", "1.50"), ("1.500", "1.50"), ("12", "12.00"), ("9E+1", "90.00"), ("-0.01", "-0.01")]:
            table.upsert({"k": 1, "d": Decimal(given)})
            assert str(read_row(table, (1,))["d"]) == kept
        for beyond in ("1.555", "100", "-100", "1E+2", "0.001", "NaN", "-Infinity"):
            with pytest.raises(InvalidFieldError):
                table.upsert({"k": 1, "d": Decimal(beyond)})

    @pytest.mark.parametrize(("precision", "scale"), [(1, 0), (1, 1), (38, 0), (38, 38), (19, 5)])
    def test_decimal_of_every_precision(self, open_table: OpenTable, precision: int, scale: int) -> None:
        """DECIMAL has 1 to 38 digits of which 0 to all follow the point; the widest values come back exactly."""
        table = open_table(TableSpecification("t", [Field.int("k"), Field.decimal("d", precision, scale)], ["k"]))
        widest = Decimal((0, (9,) * precision, -scale))
        for value in (widest, widest.copy_negate(), Decimal((0, (1,), -scale)), Decimal(0)):
            table.upsert({"k": 1, "d": value})
            assert read_row(table, (1,))["d"] == value
        with pytest.raises(InvalidFieldError):
            table.upsert({"k": 1, "d": Decimal((0, (1,) + (0,) * precision, -scale))})

    def test_timestamp_is_kept_in_utc(self, open_table: OpenTable) -> None:
        """TIMESTAMP accepts an aware datetime of any zone, and returns its instant in UTC with its microseconds."""
        table = open_table(TYPES)
        zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
        table.upsert({"id": 1, "timestamp": dt.datetime(2024, 3, 1, 2, 0, 0, 123456, zone)})
        value = read_row(table, (1,))["timestamp"]
        assert value == dt.datetime(2024, 2, 29, 20, 30, 0, 123456, dt.UTC)
        assert isinstance(value, dt.datetime)
        assert value.utcoffset() == dt.timedelta(0)
        assert table.count(where=col("timestamp") == dt.datetime(2024, 3, 1, 2, 0, 0, 123456, zone)) == 1

    def test_timestamp_keys_are_instants(self, open_table: OpenTable) -> None:
        """Times are ordered, and equal, by instant: one instant in two zones is one key."""
        table = open_table(TableSpecification("t", [Field.timestamp("at"), Field.int("v")], ["at"]))
        east = dt.timezone(dt.timedelta(hours=9))
        table.upsert({"at": dt.datetime(2024, 1, 1, 9, tzinfo=east), "v": 1})
        table.upsert({"at": dt.datetime(2024, 1, 1, 0, tzinfo=dt.UTC), "v": 2})
        assert plain(table.scan()) == [{"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "v": 2}]

    def test_timestamp_ntz_stays_naive(self, open_table: OpenTable) -> None:
        """TIMESTAMP_NTZ accepts and returns a naive datetime with its microseconds, in any time zone of the machine."""
        table = open_table(TYPES)
        local = dt.datetime(2024, 3, 31, 2, 30, 0, 999999)
        table.upsert({"id": 1, "timestamp_ntz": local})
        value = read_row(table, (1,))["timestamp_ntz"]
        assert value == local
        assert isinstance(value, dt.datetime)
        assert value.tzinfo is None

    def test_empty_values_are_not_null(self, open_table: OpenTable) -> None:
        """An empty string and empty bytes are values, not null: in fields, in keys and in filters."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "string": "", "bytes": b""})
        row = read_row(table, (1,))
        assert (row["string"], row["bytes"]) == ("", b"")
        assert table.count(where=col("string").is_null() | col("bytes").is_null()) == 0
        assert table.count(where=(col("string") == "") & (col("bytes") == b"")) == 1

    def test_large_values_come_back(self, open_table: OpenTable) -> None:
        """Rows of up to 8 MiB are kept: large strings and bytes come back unchanged."""
        table = open_table(TYPES)
        text, data = "\u00e4\U0001f600x" * 100_000, bytes(range(256)) * 4_000
        table.upsert({"id": 1, "string": text, "bytes": data})
        row = read_row(table, (1,))
        assert row["string"] == text
        assert row["bytes"] == data
