import contextlib
import dataclasses
import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.codec.rows import RowCodec
from structable.backends.ordered.codec.source import NewerLayoutError
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Field, FieldType, InvalidFieldError, TableSpecification, Value
from structable.spi.authors import check_row
from tests.ordered.strategies import SPACE, fields, row_values, same, table

KEY = [Field.string("s"), Field.long("n")]
ALL_TYPES = [
    *(Field(kind.value, kind) for kind in FieldType if kind is not FieldType.DECIMAL),
    Field.decimal("decimal", 5, 2),
]


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    key, others = data.draw(fields("k", keyable=True, min_size=1, max_size=4)), data.draw(fields("v", max_size=20))
    schema = table(key, others)
    codec = RowCodec(schema)
    raw_key = KeyCodec(schema).encode_checked(key_values := data.draw(row_values(key)))
    values = data.draw(row_values(others, nulls=True))
    raw = codec.encode_values(values)
    assert raw
    assert same(codec.decode_values(raw), values)
    row = dict(zip(schema.row_columns, key_values + values, strict=True))
    assert codec.encode_full(row) == (raw_key, raw)
    columns = data.draw(
        st.permutations(schema.row_columns).flatmap(lambda p: st.integers(1, len(p)).map(lambda n: p[:n]))
    )
    assert same(codec.projection(tuple(columns))(raw_key, raw), tuple(row[name] for name in columns))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 47, 48, 49, 112, 113, 300])
def test_null_bits_of_any_number_of_fields(count: int) -> None:
    codec = RowCodec(table(KEY, [Field.byte(f"v{i}") if i % 2 else Field.string(f"v{i}") for i in range(count)]))
    full: list[Value] = [i % 128 if i % 2 else str(i) for i in range(count)]
    assert codec.decode_values(codec.encode_values(tuple(full))) == tuple(full)
    assert codec.decode_values(codec.encode_values((None,) * count)) == (None,) * count
    for position in range(count):
        values = (*full[:position], None, *full[position + 1 :])
        assert codec.decode_values(codec.encode_values(values)) == values


def widened(others: list[Field], added: list[Field]) -> TableSchema:
    """A table at its third layout: all fields that can be widened, then fields added."""
    wide = {kind: FieldType.LONG for kind in FieldType if kind.integer_bits} | {FieldType.FLOAT: FieldType.DOUBLE}
    second = [Field(field.name, wide[field.type]) if field.type in wide else field for field in others]
    spec = TableSpecification("t", [*KEY, *reversed(added), *second], ["s", "n"])
    layouts = {3: tuple(others), 4: tuple(second), 9: (*second, *added)}
    return TableSchema(spec, SPACE, 9, layouts, {})


@given(st.data())
def test_rows_of_older_layouts(data: st.DataObject) -> None:
    others, added = data.draw(fields("v")), data.draw(fields("w", max_size=20))
    schema = widened(others, added)
    old = RowCodec(dataclasses.replace(schema, spec=table(KEY, others).spec, version=3, layouts={3: tuple(others)}))
    values = data.draw(row_values(others, nulls=True))
    raw = old.encode_values(values)
    codec = RowCodec(schema)
    padded = values + (None,) * len(added)
    assert same(codec.decode_values(raw), padded)
    raw_key = KeyCodec(schema).encode_checked(("a", 7))
    row = dict(zip(schema.row_columns, ("a", 7, *padded), strict=True))
    columns = tuple(data.draw(st.permutations(schema.row_columns)))
    assert same(codec.projection(columns)(raw_key, raw), tuple(row[name] for name in columns))
    added_only = tuple(field.name for field in added)
    if added_only:
        assert codec.projection(added_only)(raw_key, raw) == (None,) * len(added)
    # Written again, it is of the new layout.
    assert same(codec.decode_values(codec.encode_values(padded)), padded)
    with pytest.raises(NewerLayoutError):
        old.decode_values(codec.encode_values(padded))


ODD_VALUES: list[object] = [
    None,
    True,
    0,
    1,
    128,
    -129,
    32768,
    1 << 31,
    1 << 63,
    0.5,
    0.1,
    -0.0,
    1e39,
    float("inf"),
    float("nan"),
    Decimal("1.5"),
    Decimal("1E+2"),
    Decimal("1.50000"),
    Decimal("0E+999999"),
    Decimal("-0"),
    Decimal("1000"),
    Decimal("999.99"),
    Decimal("1.001"),
    Decimal("1E-999999999"),
    Decimal("1E+999999999"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("-Infinity"),
    "",
    "é",
    "a\0",
    "\ud800",
    b"\0",
    bytearray(b"a"),
    dt.date(1, 1, 1),
    dt.date(9999, 12, 31),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2020, 1, 1, fold=1),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC, fold=1),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    [],
    object,
]


@pytest.mark.parametrize("field", ALL_TYPES, ids=lambda field: field.name)
@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_the_fast_encoder_agrees_with_the_contract(field: Field, value: object) -> None:
    schema = table(KEY, [field])
    codec = RowCodec(schema)
    row = {"s": "a", "n": 1, field.name: value}
    pair = codec.encode_full(row)  # type: ignore[arg-type]
    try:
        checked = check_row(schema.spec, row)
    except InvalidFieldError:
        assert pair is None
        return
    raw = codec.encode_values((checked[field.name],))
    assert same(codec.decode_values(raw), (checked[field.name],))
    assert pair in (None, (KeyCodec(schema).encode_checked(("a", 1)), raw))
    if same(value, checked[field.name]):
        assert pair is not None


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"s": "a", "n": 1},
        {"s": "a", "n": 1, "w": 2},
        {"s": "a", "n": 1, "v": 2, "w": 3},
        {"s": None, "n": 1, "v": 2},
        {"s": "a", "n": True, "v": 2},
        {"s": "a" * 2000, "n": 1, "v": 2},
        [("s", "a"), ("n", 1), ("v", 2)],
        None,
    ],
    ids=repr,
)
def test_the_fast_encoder_takes_whole_rows_only(row: object) -> None:
    assert RowCodec(table(KEY, [Field.long("v")])).encode_full(row) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("key_size", [1, 900, 1900, 1993])
@pytest.mark.parametrize("size", [1, 500, 1101, 2000, 2001, 2500])
def test_the_fast_encoder_takes_no_indexed_value_over_a_limit(key_size: int, size: int) -> None:
    schema = table(KEY, [Field.bytes("v")], ("v",))
    row: dict[str, Value] = {"s": "a" * key_size, "n": 1, "v": b"\0" * size}
    pair = RowCodec(schema).encode_full(row)
    try:
        check_row(schema.spec, row)
    except InvalidFieldError:
        assert pair is None
    assert pair is not None or key_size + size > 1900


def test_the_fast_encoder_takes_no_row_over_the_limit() -> None:
    schema = table(KEY, [Field.bytes("v"), Field.string("w")])
    codec = RowCodec(schema)
    half = 4 * 1024 * 1024
    assert codec.encode_full({"s": "a", "n": 1, "v": bytes(half), "w": "a" * (half - 3000)}) is not None
    assert codec.encode_full({"s": "a", "n": 1, "v": bytes(half), "w": "a" * half}) is None


@given(st.data())
def test_corrupt_rows_raise_nothing_but_data_corruption(data: st.DataObject) -> None:
    others = data.draw(fields("v"))
    schema = table(KEY, others)
    codec = RowCodec(schema)
    raw = codec.encode_values(data.draw(row_values(others, nulls=True)))
    broken = bytearray(raw)
    for position in data.draw(st.lists(st.integers(2, len(raw) - 1), max_size=3)):
        broken[position] = data.draw(st.integers(0, 255))
    damaged = data.draw(st.sampled_from([bytes(broken), raw + b"x", raw[:-1], b""]) | st.binary(max_size=40))
    for decode in (codec.decode_values, lambda value: codec.projection(schema.row_columns)(b"junk", value)):
        with contextlib.suppress(DataCorruptionError):
            decode(damaged)


@given(st.data())
def test_truncated_and_extended_rows_are_found(data: st.DataObject) -> None:
    others = data.draw(fields("v", min_size=1))
    codec = RowCodec(table(KEY, others))
    raw = codec.encode_values(data.draw(row_values(others, nulls=True)))
    for damaged in (raw + b"x", raw[:-1], raw[: data.draw(st.integers(0, len(raw) - 1))]):
        with pytest.raises(DataCorruptionError, match="row"):
            codec.decode_values(damaged)


def test_text_that_is_not_utf_8_is_found() -> None:
    codec = RowCodec(table(KEY, [Field.string("v")]))
    raw = codec.encode_values(("ab",))
    with pytest.raises(DataCorruptionError, match="utf-8"):
        codec.decode_values(raw[:-1] + b"\xff")


def test_a_layout_far_beyond_the_schema_is_no_layout() -> None:
    codec = RowCodec(table(KEY, [Field.long("v")]))
    raw = codec.encode_values((1,))
    with pytest.raises(NewerLayoutError):
        codec.decode_values(b"\x01\x00" + raw[2:])
    with pytest.raises(DataCorruptionError, match="65535"):
        codec.decode_values(b"\xff\xff" + raw[2:])


def test_a_missing_layout_is_corruption() -> None:
    schema = table(KEY, [Field.long("v")])
    codec = RowCodec(dataclasses.replace(schema, version=2, layouts={2: schema.value_fields}))
    with pytest.raises(DataCorruptionError, match="its layout 1 is unknown"):
        codec.decode_values(b"\x01\x00" + bytes(10))


def test_a_corrupt_key_is_named() -> None:
    codec = RowCodec(table(KEY, [Field.long("v")]))
    with pytest.raises(DataCorruptionError, match="row key"):
        codec.projection(("n", "v"))(b"junk", codec.encode_values((1,)))
