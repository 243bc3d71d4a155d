"""Merges as operands: the generated code does what `Merger.apply` does with the rows."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.engine import Operand
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import AggregateFunction, Field, FieldType, InvalidFieldError, RowKind, TableSpecification, Value
from structable.spi.authors import IgnoredType, Merger, Values
from tests.ordered.strategies import SPACE, same, values

_BLIND = ("sum", "count", "min", "max", "bool_and", "bool_or")
KEY = [Field.string("s"), Field.long("n")]
FIELDS = {
    f"{function}_{kind.value.lower()}": (function, kind)
    for kind in FieldType
    if kind.width
    for function in _BLIND
    if AggregateFunction(function).fits(kind)
}


def _field(name: str, kind: FieldType) -> Field:
    return Field.decimal(name, 9, 2) if kind is FieldType.DECIMAL else Field(name, kind)


def binding_of(names: list[str], indexes: tuple[str, ...] = (), **options: str) -> TableBinding:
    functions = {f"fields.{name}.aggregate-function": FIELDS[name][0] for name in names}
    others = {name.replace("_", "-"): text for name, text in options.items()}
    spec = TableSpecification(
        "t",
        [*KEY, *(_field(name, FIELDS[name][1]) for name in names)],
        ["s", "n"],
        indexes,
        {"merge-engine": "aggregation", **functions, **others},
    )
    schema = TableSchema(spec, SPACE, 0, {0: spec.value_fields}, {name: i for i, name in enumerate(indexes)})
    return TableBinding(schema, schema.encode())


ALL = binding_of(list(FIELDS))


def merged(merger: Merger, old: Values | None, kind: RowKind, row: dict[str, Value]) -> Values | str | None:
    try:
        result = merger.apply(old, kind, row)
    except InvalidFieldError as error:
        return error.field
    assert not isinstance(result, IgnoredType)
    return result


@given(st.data())
def test_operand_is_the_merge_of_the_row(data: st.DataObject) -> None:
    """Null and unnamed fields, overflows, NaN and signed zeros included."""
    assert ALL.operands is not None
    merger = Merger(ALL.spec, ALL.value_names)
    state: Values | None = None
    raw: bytes | None = None
    for _ in range(data.draw(st.integers(1, 4))):
        names = data.draw(st.lists(st.sampled_from(ALL.value_names), unique=True))
        given_values = {name: data.draw(st.none() | values(ALL.spec.field(name))) for name in names}
        row = {"s": "a", "n": 7, **given_values}
        encoded = ALL.operands.encode_added(row)
        assert encoded is not None
        assert encoded == (ALL.raw_key(("a", 7)), ALL.operands.encode(RowKind.UPDATE_AFTER, row))
        wanted = merged(merger, state, RowKind.UPDATE_AFTER, row)
        steps = (Operand(ALL.raw_schema, encoded[1]),)
        if isinstance(wanted, str):
            with pytest.raises(InvalidFieldError, match=wanted):
                ALL.applied(raw, steps)
            continue
        found = ALL.applied(raw, steps)
        assert same(ALL.rows.decode_values(found), wanted)
        assert found == ALL.rows.encode_values(ALL.rows.decode_values(found))
        state, raw = wanted, found


@given(st.data())
def test_operands_of_integers_combine(data: st.DataObject) -> None:
    """Two operands, one after the other, are the first with the second merged into it."""
    names = [name for name, (function, kind) in FIELDS.items() if kind not in (FieldType.FLOAT, FieldType.DOUBLE)]
    binding = binding_of(names)
    codec = binding.operands
    assert codec is not None
    rows = [
        {"s": "a", "n": 1, **{name: data.draw(st.none() | values(binding.spec.field(name))) for name in names}}
        for _ in range(3)
    ]
    operands = [codec.encode(RowKind.INSERT, row) for row in rows]
    start, first, second = operands
    assert start is not None and first is not None and second is not None  # noqa: PT018
    try:
        together = codec.absorb(start, codec.absorb(first, second))
        one_by_one = codec.absorb(codec.absorb(start, first), second)
    except InvalidFieldError:
        return
    assert together == one_by_one


def test_retract_is_an_operand_unless_the_row_decides() -> None:
    binding = binding_of(["sum_int", "count_long", "sum_byte"], remove_record_on_delete="true")
    codec = binding.operands
    assert codec is not None
    row: dict[str, Value] = {"s": "a", "n": 1, "sum_int": 5, "count_long": 9, "sum_byte": None}
    operand = codec.encode(RowKind.UPDATE_BEFORE, row)
    assert operand is not None
    assert binding.rows.decode_values(operand) == (-5, -1, None)
    assert codec.encode(RowKind.DELETE, row) is None
    assert codec.encode(RowKind.UPDATE_BEFORE, {"s": "a", "n": 1, "sum_byte": -128}) is None


@pytest.mark.parametrize(
    "row",
    [
        {"s": "a", "n": 1, "sum_int": True},
        {"s": "a", "n": 1, "sum_int": 1 << 31},
        {"s": "a", "n": 1, "count_int": 1 << 31},
        {"s": "a", "n": 1, "count_int": "x"},
        {"s": "a", "sum_int": 1},
        {"s": "a", "n": 1, "nobody": 1},
        {"s": "a\0", "n": 1, "sum_int": 1},
    ],
)
def test_unusual_rows_are_left_to_the_checks(row: dict[str, Value]) -> None:
    binding = binding_of(["sum_int", "count_int"])
    assert binding.operands is not None
    assert binding.operands.encode_added(row) is None


def test_table_with_an_index_has_no_operands() -> None:
    assert binding_of(["sum_int"]).operands is not None
    assert binding_of(["sum_int"], ("sum_int",)).operands is None


def test_row_of_an_older_layout_is_merged() -> None:
    old = binding_of(["sum_int"])
    codec = old.operands
    assert codec is not None
    row = codec.encode(RowKind.INSERT, {"s": "a", "n": 1, "sum_int": 5})
    spec = old.spec.evolve(
        fields=[*old.spec.fields, Field.long("hits")],
        options={**(old.spec.options or {}), "fields.hits.aggregate-function": "count"},
    )
    schema = TableSchema(spec, SPACE, 1, {0: old.schema.layouts[0], 1: spec.value_fields}, {})
    new = TableBinding(schema, schema.encode())
    assert new.operands is not None
    operand = new.operands.encode(RowKind.INSERT, {"s": "a", "n": 1, "sum_int": 2, "hits": 8})
    assert operand is not None
    assert new.rows.decode_values(new.operands.absorb(row, operand)) == (7, 1)


@given(st.data())
def test_operands_that_fit_do_so_in_any_order(data: st.DataObject) -> None:
    """`fits` promises that no order of the others, and none of their subsets, overflows."""
    names = [name for name, (function, _) in FIELDS.items() if function in ("sum", "count")]
    binding = binding_of(names)
    codec = binding.operands
    assert codec is not None
    rows = [
        {"s": "a", "n": 1, **{name: data.draw(st.none() | values(binding.spec.field(name))) for name in names}}
        for _ in range(4)
    ]
    start, own, *others = [codec.encode(RowKind.INSERT, row) for row in rows]
    assert start is not None
    assert own is not None
    beside = [Operand(binding.raw_schema, other) for other in others if other is not None]
    if binding.fits(start, [Operand(binding.raw_schema, own)], beside):
        chosen = data.draw(st.lists(st.sampled_from([own, *others]), unique=True))
        for operand in chosen:
            assert operand is not None
            start = codec.absorb(start, operand)


def test_sums_fit_with_others() -> None:
    binding = binding_of(["sum_byte", "sum_decimal", "sum_float"])

    def operand(**row: Value) -> Operand:
        assert binding.operands is not None
        raw = binding.operands.encode(RowKind.INSERT, {"s": "a", "n": 1, **row})
        assert raw is not None
        return Operand(binding.raw_schema, raw)

    full = operand(sum_byte=100, sum_decimal=Decimal("9999999.98"), sum_float=3.4028e38).row
    for name, value, other in (
        ("sum_byte", 20, 7),
        ("sum_decimal", Decimal("0.01"), Decimal("-1")),
        ("sum_float", 1.0, 1.0),
    ):
        mine = [operand(**{name: value})]
        assert binding.fits(full, mine, [])
        assert binding.fits(full, mine, [operand(**{name: other})])
        assert binding.fits(None, mine, [operand(**{name: value})] * 3)
        assert not binding.fits(full, mine, [operand(**{name: value})] * 20)
    assert not binding.fits(full, [operand(sum_byte=20)], [Operand(b"another", full)])
