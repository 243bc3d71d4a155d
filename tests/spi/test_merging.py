"""`Merger`: what no store shows by itself. The conformance suite has the rules of the merge engines."""

from __future__ import annotations

import decimal
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.spi import Field, InvalidFieldError, RowKind, TableSpecification, UnsupportedOperationError
from structable.spi.authors import IGNORED, Merger, Values

COUNTERS = TableSpecification(
    "counters",
    [
        Field.int("id"),
        Field.byte("total"),
        Field.long("visits"),
        Field.double("low"),
        Field.timestamp_ntz("last"),
        Field.decimal("cost", 5, 2),
        Field.boolean("every"),
    ],
    ["id"],
    options={
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "fields.visits.aggregate-function": "count",
        "fields.low.aggregate-function": "min",
        "fields.last.aggregate-function": "max",
        "fields.cost.aggregate-function": "sum",
        "fields.every.aggregate-function": "bool_and",
        "fields.low.ignore-retract": "true",
        "fields.last.ignore-retract": "true",
        "fields.every.ignore-retract": "true",
    },
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "total": st.none() | st.integers(-128, 127),
        "visits": st.none() | st.integers(-9, 9),
        "low": st.none() | st.floats(),
        "last": st.none() | st.datetimes(),
        "cost": st.none() | st.decimals(-999, 999, places=2),
        "every": st.none() | st.booleans(),
    },
)
CHANGES = st.lists(st.tuples(st.sampled_from(RowKind), ROWS), max_size=6)


@given(CHANGES)
def test_operands_are_merges(changes: list[tuple[RowKind, dict[str, object]]]) -> None:
    """A blind table's row is the same whether changes are applied, or kept as operands and absorbed later."""
    merger = Merger(COUNTERS)
    assert merger.blind
    applied: Values | None = None
    absorbed: Values | None = None
    for kind, row in changes:
        operand = merger.operand(kind, row)  # type: ignore[arg-type]
        try:
            after = merger.apply(applied, kind, row)  # type: ignore[arg-type]
        except InvalidFieldError:
            if operand is not None:
                with pytest.raises(InvalidFieldError):
                    merger.absorb(absorbed, operand)
            continue
        assert isinstance(after, tuple)
        applied = after
        absorbed = after if operand is None else merger.absorb(absorbed, operand)
        assert repr(absorbed) == repr(applied)  # to the bit: NaN equals NaN, 0.0 differs from -0.0


def test_operand_that_does_not_fit() -> None:
    """The negative of the lowest integer is no operand, although the row may take it."""
    merger = Merger(COUNTERS)
    assert merger.operand(RowKind.DELETE, {"total": -128}) is None
    before = merger.apply(None, RowKind.INSERT, {"total": -10})
    assert isinstance(before, tuple)
    after = merger.apply(before, RowKind.DELETE, {"total": -128})
    assert isinstance(after, tuple)
    assert after[0] == 118


def test_texts_and_products_are_not_blind() -> None:
    for field, function in [(Field.string("v"), "max"), (Field.long("v"), "product"), (Field.long("v"), "last_value")]:
        options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
        assert not Merger(TableSpecification("t", [Field.int("id"), field], ["id"], options=options)).blind


def test_columns_in_another_order() -> None:
    """A store that keeps fields in the order in which they were added gives rows in that order."""
    merger = Merger(COUNTERS, ["every", "cost", "last", "low", "visits", "total"])
    assert merger.apply(None, RowKind.INSERT, {"total": 1, "every": True}) == (True, None, None, None, None, 1)


def test_decimals_are_exact_beyond_the_default_context() -> None:
    spec = TableSpecification(
        "t",
        [Field.int("id"), Field.decimal("v", 38, 0)],
        ["id"],
        options={"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    )
    large = decimal.Decimal("9" * 37 + "0")
    merger = Merger(spec)
    assert merger.apply((large,), RowKind.INSERT, {"v": decimal.Decimal(9)}) == (decimal.Decimal("9" * 38),)
    with pytest.raises(InvalidFieldError, match=r"'v'.*sum that does not fit decimal\(38,0\)"):
        merger.apply((large,), RowKind.INSERT, {"v": decimal.Decimal(10)})


@pytest.mark.parametrize("kind", [Field.float, Field.double])
@pytest.mark.parametrize(
    ("function", "before", "value"), [("product", 1e-30, 1e-300), ("product", 1e30, 1e300), ("sum", 3e38, 1.79e308)]
)
def test_floats_that_leave_their_range(kind: object, function: str, before: float, value: float) -> None:
    """No finite numbers become infinite, and no product of others zero; infinity itself may be added."""
    field = kind("v")  # type: ignore[operator]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
    merger = Merger(TableSpecification("t", [Field.int("id"), field], ["id"], options=options))
    if field == Field.double("v"):
        before = {1e-30: 1e-30, 1e30: 1e30, 3e38: 1.79e308}[before]
    else:
        value = {1e-300: 1e-30, 1e300: 1e30, 1.79e308: 3e38}[value]
    with pytest.raises(InvalidFieldError, match="'v'"):
        merger.apply((before,), RowKind.INSERT, {"v": value})
    assert merger.apply((before,), RowKind.INSERT, {"v": math.inf}) == (math.inf,)


def test_refusals_name_the_way_out() -> None:
    first_row = Merger(
        TableSpecification("t", [Field.int("id"), Field.int("v")], ["id"], options={"merge-engine": "first-row"})
    )
    with pytest.raises(UnsupportedOperationError, match=r"first-row takes no retract.*ignore-delete"):
        first_row.refuse(RowKind.DELETE, {})
    parts = Merger(
        TableSpecification("t", [Field.int("id"), Field.int("v")], ["id"], options={"merge-engine": "partial-update"})
    )
    with pytest.raises(UnsupportedOperationError, match="ignore-delete or remove-record-on-delete"):
        parts.apply((1,), RowKind.UPDATE_BEFORE, {})
    assert first_row.apply((1,), RowKind.INSERT, {"v": 2}) is IGNORED
