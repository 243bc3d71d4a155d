"""Rules of filters: three-valued logic, comparisons of every type, and rejected filters."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import cast

import pytest

from structable.spi import (
    Field,
    FieldType,
    Filter,
    InvalidFieldError,
    Range,
    StructuredTable,
    TableSpecification,
    Value,
    col,
)

from .case import ConformanceCase, OpenTable
from .conditions import OPERATORS, CompareFields
from .samples import EXTREMES, ITEMS, TYPES, WRONG, type_name

NAN = math.nan


def ids(table: StructuredTable, where: Filter) -> list[Value]:
    """Return the ids of the rows for which a filter is true; `scan` and `count` have to agree."""
    found = [row["id"] for row in table.scan(where=where)]
    assert table.count(where=where) == len(found), str(where)
    return found


class FilterRules(ConformanceCase):
    """Null is unknown, NaN is the greatest number and equals itself, -0.0 equals 0.0."""

    def nullable(self, open_table: OpenTable) -> StructuredTable:
        """Return ITEMS with n of 1, 2, null, 3, null and tag of "a", null, "b", "b", null."""
        table = open_table(ITEMS)
        values: list[tuple[Value, Value]] = [(1, "a"), (2, None), (None, "b"), (3, "b"), (None, None)]
        table.upsert_many([{"id": number, "n": n, "tag": tag, "note": tag} for number, (n, tag) in enumerate(values)])
        return table

    def test_comparisons_are_not_true_of_null(self, open_table: OpenTable) -> None:
        """A comparison with a null field is unknown, hence not true, whichever it is."""
        table = self.nullable(open_table)
        cases = [
            (col("n") == 2, [1]),
            (col("n") != 2, [0, 3]),
            (col("n") < 2, [0]),
            (col("n") <= 2, [0, 1]),
            (col("n") > 2, [3]),
            (col("n") >= 2, [1, 3]),
            (col("n").between(2, 3), [1, 3]),
            (col("n").isin([1, 3, 9]), [0, 3]),
            (col("note").startswith("a"), [0]),
            (col("tag").startswith(""), [0, 2, 3]),
            (col("tag") != "a", [2, 3]),
            (col("tag") > "a", [2, 3]),
        ]
        for where, expected in cases:
            assert ids(table, where) == expected, str(where)

    def test_negation_of_unknown_is_unknown(self, open_table: OpenTable) -> None:
        """`~` of unknown is unknown: a row whose field is null is found neither by a comparison nor by its negation."""
        table = self.nullable(open_table)
        cases = [
            (~(col("n") == 2), [0, 3]),
            (~(col("n") != 2), [1]),
            (~(col("n") < 2), [1, 3]),
            (~(col("n") <= 2), [3]),
            (~(col("n") > 2), [0, 1]),
            (~(col("n") >= 2), [0]),
            (~col("n").between(2, 3), [0]),
            (~col("n").isin([1, 3]), [1]),
            (~col("note").startswith("a"), [2, 3]),
            (~~(col("n") == 2), [1]),
            (~(col("tag") == "b"), [0]),
        ]
        for where, expected in cases:
            assert ids(table, where) == expected, str(where)

    def test_is_null(self, open_table: OpenTable) -> None:
        """`is_null` and `is_not_null` are true or false of every row, and so are their negations."""
        table = self.nullable(open_table)
        for field, nulls in (("n", [2, 4]), ("tag", [1, 4]), ("note", [1, 4]), ("cost", [0, 1, 2, 3, 4]), ("id", [])):
            rest = [number for number in range(5) if number not in nulls]
            assert ids(table, col(field).is_null()) == nulls
            assert ids(table, ~col(field).is_not_null()) == nulls
            assert ids(table, col(field).is_not_null()) == rest
            assert ids(table, ~col(field).is_null()) == rest

    def test_three_valued_and_or(self, open_table: OpenTable) -> None:
        """False & unknown is false, true | unknown is true; all else with unknown is unknown."""
        table = self.nullable(open_table)
        # By row: n < 3 is T T U F U; tag == "b" is F U T T U.
        small, tagged = col("n") < 3, col("tag") == "b"
        cases = [
            (small & tagged, []),
            (small | tagged, [0, 1, 2, 3]),
            (~(small & tagged), [0, 3]),
            (~(small | tagged), []),
            (~small & tagged, [3]),
            (small & ~tagged, [0]),
            (~small | ~tagged, [0, 3]),
            (small & (tagged | col("id").isin([1])), [1]),
            (~(~small | tagged), [0]),
            (col("n").is_null() & tagged, [2]),
            (col("n").is_null() | small, [0, 1, 2, 4]),
        ]
        for where, expected in cases:
            assert ids(table, where) == expected, str(where)

    def test_empty_isin_is_false_even_for_null(self, open_table: OpenTable) -> None:
        """An empty `isin` is false, also for null: nothing matches it, and its negation matches every row."""
        table = self.nullable(open_table)
        for field in ("n", "tag", "id"):
            assert ids(table, col(field).isin([])) == []
            assert ids(table, ~col(field).isin([])) == [0, 1, 2, 3, 4]
        assert ids(table, col("n").isin([]) | (col("n") == 1)) == [0]

    @pytest.mark.parametrize("kind", list(EXTREMES), ids=type_name)
    def test_comparisons_of_every_type(self, open_table: OpenTable, kind: FieldType) -> None:
        """Values of every type compare in the order of the contract; for floats NaN comes last and equals itself."""
        table = open_table(TYPES)
        name, ascending = kind.value, EXTREMES[kind]
        numbers = list(range(len(ascending)))
        table.upsert_many([{"id": number, name: value} for number, value in enumerate(ascending)])
        table.upsert({"id": 1000})
        for place, value in enumerate(ascending):
            assert ids(table, col(name) == value) == [place], repr(value)
            assert ids(table, col(name) != value) == numbers[:place] + numbers[place + 1 :], repr(value)
            assert ids(table, col(name) < value) == numbers[:place], repr(value)
            assert ids(table, col(name) <= value) == numbers[: place + 1], repr(value)
            assert ids(table, col(name) > value) == numbers[place + 1 :], repr(value)
            assert ids(table, col(name) >= value) == numbers[place:], repr(value)
            assert ids(table, col(name).isin([value, ascending[0]])) == sorted({0, place}), repr(value)
            assert ids(table, ~col(name).isin([value])) == numbers[:place] + numbers[place + 1 :], repr(value)
            assert ids(table, col(name).between(value, ascending[-1])) == numbers[place:], repr(value)
            assert ids(table, ~(col(name) < value)) == numbers[place:], repr(value)
            assert ids(table, ~(col(name) >= value)) == numbers[:place], repr(value)

    @pytest.mark.parametrize("kind", list(EXTREMES), ids=type_name)
    def test_fields_compare_with_one_another(self, open_table: OpenTable, kind: FieldType) -> None:
        """Two fields of one type compare as a field and a value do, null and NaN too; so do a key field and another."""
        extreme = next(field for field in TYPES.fields if field.type is kind)
        fields = [replace(extreme, name=name) for name in ("a", "b")]
        values = [*EXTREMES[kind][:4], *EXTREMES[kind][-3:], None]
        rows: list[dict[str, Value]] = [
            {"id": number, "a": a, "b": b} for number, (a, b) in enumerate(itertools.product(values, values))
        ]
        can_be_key = kind not in (FieldType.FLOAT, FieldType.DOUBLE, FieldType.DECIMAL)
        table = open_table(TableSpecification("t", [Field.long("id"), *fields], ["id"], ["a"] if can_be_key else []))
        table.upsert_many(rows)
        key = ["a", "id"] if can_be_key else ["id"]
        keyed = open_table(TableSpecification("keyed", [fields[0], Field.long("id"), fields[1]], key))
        keyed.upsert_many(row for row in rows if row["a"] is not None)
        for operator in OPERATORS:
            condition = CompareFields("a", operator, "b")
            wanted = {truth: [row["id"] for row in rows if condition.truth(row) is truth] for truth in (True, False)}
            assert ids(table, condition.filter()) == wanted[True], operator
            assert ids(table, ~condition.filter()) == wanted[False], operator
            assert set(ids(keyed, condition.filter())) == set(wanted[True]), operator
            assert set(ids(keyed, ~condition.filter())) == set(wanted[False]), operator
        assert ids(table, col("a") == col("a")) == ids(table, col("a").is_not_null())

    def test_compared_fields_with_other_conditions(self, open_table: OpenTable) -> None:
        """A comparison of two fields may be combined with other conditions, and select the rows of a write."""
        fields = [Field.long("id"), Field.int("low"), Field.int("high"), Field.int("n"), Field.string("tag")]
        table = open_table(TableSpecification("t", fields, ["id"], ["n"]))
        table.upsert_many(
            {"id": number, "low": number, "high": 6 - number, "n": 3, "tag": "a" if number % 2 else None}
            for number in range(6)
        )
        inside = col("n").between(col("low"), col("high"))
        cases = [
            (inside, [0, 1, 2, 3]),
            (~inside, [4, 5]),
            (inside & (col("tag") == "a"), [1, 3]),
            ((col("low") > col("high")) | (col("id") == 0), [0, 4, 5]),
            ((col("n") == 3) & (col("low") == col("high")), [3]),
            (col("id").isin([1, 4]) & (col("low") <= col("n")), [1]),
        ]
        for where, expected in cases:
            assert ids(table, where) == expected, str(where)
        assert [row["id"] for row in table.scan_index("n", 3, where=col("low") > col("high"))] == [4, 5]
        assert table.update_all(Range.all(), {"tag": "new"}, col("low") == col("high")) == 1
        assert table.delete_all(Range.all(), col("low") < col("high")) == 3
        assert [(row["id"], row["tag"]) for row in table.scan()] == [(3, "new"), (4, None), (5, "a")]

    @pytest.mark.parametrize("scales", [(2, 5), (0, 38)])
    def test_decimals_of_two_scales(self, open_table: OpenTable, scales: tuple[int, int]) -> None:
        """Decimals of different numbers of digits compare as numbers."""
        fields = [Field.decimal(name, 38, scale) for name, scale in zip("ab", scales, strict=True)]
        table = open_table(TableSpecification("t", [Field.long("id"), *fields], ["id"]))
        pairs = [("0", "0"), ("0", "0.00001"), ("-3", "-0.5"), ("7", "0.99999"), ("1E+35", "0.1")]
        table.upsert_many({"id": n, "a": Decimal(a), "b": Decimal(b)} for n, (a, b) in enumerate(pairs))
        assert ids(table, col("a") == col("b")) == [0]
        assert ids(table, col("a") < col("b")) == [1, 2]
        assert ids(table, col("b") < col("a")) == [3, 4]

    @pytest.mark.parametrize("kind", ["float", "double"])
    def test_nan(self, open_table: OpenTable, kind: str) -> None:
        """NaN equals NaN and is greater than every number, infinity included."""
        table = open_table(TYPES)
        values: list[Value] = [1.0, NAN, -math.inf, math.inf, None, -NAN]
        table.upsert_many([{"id": number, kind: value} for number, value in enumerate(values)])
        nan = col(kind)
        cases = [
            (nan == NAN, [1, 5]),
            (nan != NAN, [0, 2, 3]),
            (nan < NAN, [0, 2, 3]),
            (nan <= NAN, [0, 1, 2, 3, 5]),
            (nan > NAN, []),
            (nan >= NAN, [1, 5]),
            (nan > math.inf, [1, 5]),
            (nan >= 1.0, [0, 1, 3, 5]),
            (~(nan > 1.0), [0, 2]),
            (nan != 1.0, [1, 2, 3, 5]),
            (nan.isin([1.0, NAN]), [0, 1, 5]),
            (~nan.isin([NAN]), [0, 2, 3]),
            (nan.between(math.inf, NAN), [1, 3, 5]),
        ]
        for where, expected in cases:
            assert ids(table, where) == expected, str(where)

    @pytest.mark.parametrize("kind", ["float", "double"])
    def test_negative_zero_equals_zero(self, open_table: OpenTable, kind: str) -> None:
        """-0.0 equals 0.0, on either side."""
        table = open_table(TYPES)
        table.upsert_many([{"id": 0, kind: -0.0}, {"id": 1, kind: 0.0}, {"id": 2, kind: 0}])
        for zero in (0.0, -0.0, 0):
            assert ids(table, col(kind) == zero) == [0, 1, 2]
            assert ids(table, col(kind).isin([zero])) == [0, 1, 2]
            assert ids(table, col(kind) < zero) == []
            assert ids(table, col(kind) >= zero) == [0, 1, 2]
            assert ids(table, col(kind) != zero) == []

    def test_decimals_compare_by_value(self, open_table: OpenTable) -> None:
        """Decimals that are equal by value are equal, however many digits they were written with."""
        table = open_table(TYPES)
        table.upsert_many(
            [{"id": number, "decimal": Decimal(text)} for number, text in enumerate(["1.5", "1.50", "-2", "1E+3"])]
        )
        assert ids(table, col("decimal") == Decimal("1.500")) == [0, 1]
        assert ids(table, col("decimal") > Decimal("1.5")) == [3]
        assert ids(table, col("decimal").isin([Decimal("1000"), Decimal("-2.0")])) == [2, 3]

    def test_startswith(self, open_table: OpenTable) -> None:
        """`startswith` matches STRING and BYTES literally: no character of the prefix is a wildcard, case counts."""
        table = open_table(TYPES)
        texts: list[str | None] = [
            "",
            "a",
            "ab",
            "a%",
            "a_c",
            "a\\b",
            "abc",
            "A",
            "\u00e9t",
            "a*",
            "a\U0010ffff",
            "b",
            None,
        ]
        table.upsert_many(
            [
                {"id": number, "string": text, "bytes": None if text is None else text.encode()}
                for number, text in enumerate(texts)
            ]
        )
        for prefix in ("", "a", "ab", "a%", "a_", "a\\", "\u00e9", "a*", "%", "_", "a\U0010ffff", "zz"):
            wanted = [number for number, text in enumerate(texts) if text is not None and text.startswith(prefix)]
            assert ids(table, col("string").startswith(prefix)) == wanted, prefix
            assert ids(table, col("bytes").startswith(prefix.encode())) == wanted, prefix

    def test_startswith_of_high_bytes(self, open_table: OpenTable) -> None:
        """A prefix of the highest bytes or characters has no successor to stop at; it still finds its rows."""
        fields = [Field.bytes("b"), Field.string("s"), Field.long("id")]
        table = open_table(TableSpecification("t", fields, ["b"], ["s"]))
        data = [b"\xfe\xff", b"\xff", b"\xff\x00", b"\xff\xff", b"\xff\xff\xff"]
        table.upsert_many([{"b": one, "id": number, "s": "\U0010ffff" * number} for number, one in enumerate(data)])
        assert ids(table, col("b").startswith(b"\xff")) == [1, 2, 3, 4]
        assert ids(table, col("b").startswith(b"\xff\xff")) == [3, 4]
        assert ids(table, col("s").startswith("\U0010ffff\U0010ffff")) == [2, 3, 4]

    def test_filters_of_key_fields(self, open_table: OpenTable) -> None:
        """Any field may be filtered: every operator finds the same rows by a key field as by a copy outside the key."""
        fields = [Field.string("a"), Field.int("b"), Field.long("id"), Field.string("copy_a"), Field.int("copy_b")]
        table = open_table(TableSpecification("t", fields, ["a", "b"]))
        pairs = [(a, b) for a in ("", "a", "aa", "b") for b in (-1, 0, 1)]
        table.upsert_many([{"a": a, "b": b, "copy_a": a, "copy_b": b, "id": n} for n, (a, b) in enumerate(pairs)])
        shapes: list[Callable[[str, str], Filter]] = [
            lambda a, b: (col(a) == "a") & (col(b) >= 0),
            lambda a, b: (col(a) == "a") & (col(b) == 0),
            lambda a, b: col(a).isin(["b", "", "zz"]) & (col(b) < 1),
            lambda a, b: col(a).startswith("a") & (col(b) != 0),
            lambda a, b: (col(a) > "a") | (col(b) == -1),
            lambda a, b: ~(col(a) == "a") & ~col(b).isin([1]),
            lambda a, b: col(a).between("a", "aa") & col(b).between(0, 5),
            lambda a, b: (col(a) >= "a") & (col(a) < "b") & (col(a) != "aa"),
            lambda a, b: ((col(a) == "a") & (col(b) == 1)) | ((col(a) == "b") & (col(b) == -1)),
            lambda a, b: (col(a) > "b") & (col(a) < "a"),
        ]
        for shape in shapes:
            assert ids(table, shape("a", "b")) == ids(table, shape("copy_a", "copy_b")), str(shape("a", "b"))

    def test_isin_consumes_its_values_once(self, open_table: OpenTable) -> None:
        """`isin` accepts any iterable, even with repetitions, and a filter can be used again."""
        table = self.nullable(open_table)
        where = col("n").isin(number for number in (1, 3, 3))
        assert ids(table, where) == [0, 3]
        assert ids(table, where) == [0, 3]

    def test_times_compare_by_instant(self, open_table: OpenTable) -> None:
        """An aware datetime of any zone is compared as an instant."""
        table = open_table(TYPES)
        table.upsert({"id": 1, "timestamp": dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)})
        zone = dt.timezone(dt.timedelta(hours=-8))
        assert ids(table, col("timestamp") == dt.datetime(2024, 1, 1, 4, tzinfo=zone)) == [1]
        assert ids(table, col("timestamp") > dt.datetime(2024, 1, 1, 3, 59, 59, 999999, zone)) == [1]

    @pytest.mark.parametrize("kind", list(WRONG), ids=type_name)
    def test_values_are_checked_like_a_rows(self, open_table: OpenTable, kind: FieldType) -> None:
        """A filter's value is checked like a row's, when the method is called."""
        table = open_table(TYPES)
        for given in WRONG[kind]:
            value = cast("Value", given)
            for where in (col(kind.value) == value, ~(col(kind.value) > value), col(kind.value).isin([value])):
                with pytest.raises(InvalidFieldError):
                    table.scan(where=where)

    def test_none_in_a_comparison_is_refused(self, open_table: OpenTable) -> None:
        """None in a comparison is `InvalidFieldError`, and the message names `is_null()`."""
        table = open_table(ITEMS)
        null: Value = None
        for where in (
            col("n") == null,
            col("n") != null,
            col("n") < None,
            col("n").isin([1, None]),
            col("n").between(None, 1),
        ):
            with pytest.raises(InvalidFieldError, match=r"is_null\(\)"):
                table.scan(where=where)

    def test_filters_are_checked_by_every_method(self, open_table: OpenTable) -> None:
        """An unknown field, a wrong value or prefix is rejected by every method with a filter."""
        table = open_table(ITEMS)
        wrong = [
            col("unknown") == 1,
            col("unknown").is_null(),
            col("unknown").isin([]),
            col("N") == 1,
            col("n") == "x",
            col("n").startswith("1"),
            col("tag").startswith(b"a"),
            (col("n") == 1) | ~(col("rank") == 2**31),
            col("n") == col("tag"),
            col("n") < col("unknown"),
            col("unknown") != col("n"),
            col("tag").isin(cast("list[Value]", [col("note")])),
            cast("Filter", "n = 1"),
        ]
        for where in wrong:
            for refused in (
                lambda where=where: table.scan(where=where),
                lambda where=where: table.multi_scan([Range.all()], where=where),
                lambda where=where: table.scan_index("tag", "a", where=where),
                lambda where=where: table.count(where=where),
                lambda where=where: table.delete_all(Range.all(), where),
                lambda where=where: table.update_all(Range.all(), {"n": 1}, where),
            ):
                with pytest.raises(InvalidFieldError):
                    refused()

    def test_large_filters(self, open_table: OpenTable) -> None:
        """A filter may have thousands of parts."""
        table = open_table(ITEMS)
        table.upsert_many([{"id": number, "n": number, "rank": number} for number in range(50)])
        for field in ("id", "n", "rank"):
            assert ids(table, col(field).isin(range(10, 3000))) == list(range(10, 50))
            where = col(field) == 0
            for number in range(1, 300):
                where = where | (col(field) == number * 2)
            assert ids(table, where) == list(range(0, 50, 2))
