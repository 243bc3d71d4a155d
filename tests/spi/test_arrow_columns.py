"""Columns of other Arrow types: the documented table is the tested one, and errors name the row and the value."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from structable.spi import Field, FieldType
from structable.spi.arrow import CastError, cast_column
from structable.testing.conformance.arrow_samples import ARROW_SAMPLES, taken_columns

PAGE = Path(__file__).parent.parent.parent / "docs" / "spi.md"
ENCODINGS = {"dictionary", "run_end_encoded"}


def test_the_documented_types_are_the_tested_ones() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("| Arrow type | a field of type |\n| --- | --- |\n")
    documented: dict[str, frozenset[str]] = {}
    for line in rest.partition("\n\n")[0].splitlines():
        types, fields = line.strip("| ").split(" | ")
        names = frozenset({kind.value for kind in FieldType} if fields == "any" else re.findall("[a-z_]+", fields))
        documented |= dict.fromkeys(re.findall("`([^`]+)`", types), names - {"none"})
    tested = {sample.name: frozenset(kind.value for kind in sample.fields) for sample in ARROW_SAMPLES}
    assert {name: fields for name, fields in documented.items() if name not in ENCODINGS} == tested
    assert documented.keys() >= ENCODINGS


def test_every_arrow_type_is_tested() -> None:
    every = {number for name, number in vars(pa.lib).items() if name.startswith("Type_")}
    # pyarrow makes no columns of the two older intervals.
    unmade = {vars(pa.lib)[f"Type_INTERVAL_{name}"] for name in ("MONTHS", "DAY_TIME")}
    encodings = {pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED}
    tested = {sample.kind.id for sample in ARROW_SAMPLES}
    assert every - unmade - encodings == tested - {pa.uuid().id}


_DAYS = 86_400_000


@pytest.mark.parametrize(
    ("field", "column", "reason"),
    [
        (Field.byte("f"), pa.array([300]), "300 is out of the range of byte, -128 to 127"),
        (Field.int("f"), pa.array([181.0, 1.5]).slice(1), "1.5 is not a whole number"),
        (Field.int("f"), pa.array([float("nan")]), "nan is not a whole number"),
        (Field.int("f"), pa.array([2.0**40]), "1099511627776 is out of the range of int"),
        (Field.long("f"), pa.array([2.0**54]), "is beyond 9007199254740992, up to which a 64-bit float has all whole"),
        (Field.decimal("f", 4, 1), pa.array([0.1]), "0.1 does not fit decimal(4,1) exactly"),
        (Field.byte("f"), pa.array([Decimal("1.5")]), "1.5 is not a whole number"),
        (Field.double("f"), pa.array([Decimal(2**53 + 1)]), "has more digits than a 64-bit float keeps"),
        (Field.date("f"), pa.array([1], pa.timestamp("us")), "1970-01-01 00:00:00.000001 is not a whole day"),
        (Field.long("f"), pa.array([2**63], pa.uint64()), "9223372036854775808 is out of the range of long"),
        (Field.float("f"), pa.array([1e39]), "1e+39 is beyond a 32-bit float"),
        (Field.float("f"), pa.array([16777217]), "16777217 has more digits than a 32-bit float keeps"),
        (Field.double("f"), pa.array([2**53 + 1]), "9007199254740993 has more digits than a 64-bit float keeps"),
        (Field.decimal("f", 4, 2), pa.array([100]), "Decimal('100') does not fit decimal(4,2) exactly"),
        (Field.decimal("f", 4, 1), pa.array([Decimal("1.25")]), "Decimal('1.25') does not fit decimal(4,1) exactly"),
        (Field.date("f"), pa.array([_DAYS + 1], pa.date64()), "1970-01-02 00:00:00.001 is not a whole day"),
        (
            Field.date("f"),
            pa.array([2**62 // _DAYS * _DAYS], pa.date64()),
            "4611686018371200000 ms since 1970 is outside of the years 1 to 9999",
        ),
        (
            Field.timestamp("f"),
            pa.array([1_001], pa.timestamp("ns", "Europe/Berlin")),
            "1970-01-01 00:00:00.000001001Z is finer than a microsecond",
        ),
        (
            Field.timestamp_ntz("f"),
            pa.array([253_402_300_800], pa.timestamp("s")),
            "10000-01-01 00:00:00 is outside of the years 1 to 9999",
        ),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named(field: Field, column: "pa.Array[Any]", reason: str) -> None:
    nulls: Any = pa.nulls(4, column.type)
    for before in (0, 1, 4):
        with pytest.raises(CastError, match=re.escape(reason)) as caught:
            cast_column(field, pa.concat_arrays([nulls[:before], column, nulls, column]))
        assert caught.value.position == before


@pytest.mark.parametrize(
    ("field", "kind", "remedy"),
    [
        (Field.long("f"), pa.time64("us"), "there is no time of day; write it as a long"),
        (Field.long("f"), pa.duration("s"), "write its number of units as a long"),
        (Field.string("f"), pa.list_(pa.string()), "write it as JSON into a string"),
        (Field.timestamp("f"), pa.timestamp("us"), "it has no time zone; give it one"),
        (Field.timestamp_ntz("f"), pa.timestamp("us", "UTC"), "its values are instants"),
        (Field.int("f"), pa.dictionary(pa.int8(), pa.time32("s")), "there is no time of day"),
        (Field.int("f"), pa.run_end_encoded(pa.int32(), pa.bool_()), "cast it before"),
    ],
    ids=str,
)
def test_a_type_that_is_not_taken_is_named_with_the_remedy(field: Field, kind: pa.DataType, remedy: str) -> None:
    column: Any = pa.nulls(1, kind)  # type: ignore[call-overload] # the stubs know no type as such
    with pytest.raises(
        CastError, match=rf"^is of the Arrow type {re.escape(str(kind))}; .* is needed; {remedy}"
    ) as caught:
        cast_column(field, column)
    assert caught.value.position is None


def test_parts_of_columns_are_cast() -> None:
    for field, column, kept in taken_columns():
        whole = cast_column(field, column)
        for first, rows in ((0, 2), (1, 1), (2, 3), (len(kept), 0)):
            part = cast_column(field, column.slice(first, rows))
            assert repr(part.to_pylist()) == repr(whole.to_pylist()[first : first + rows]), (field, column.type)


def test_damaged_data_are_refused() -> None:
    damaged = pa.DictionaryArray.from_arrays(pa.array([7]), pa.array(["a"], pa.string_view()), safe=False)
    with pytest.raises(CastError, match="the Arrow data are not valid"):
        cast_column(Field.string("f"), damaged)
