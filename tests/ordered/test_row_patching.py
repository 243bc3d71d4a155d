import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.codec.row_patching import RowPatch, RowPatches
from structable.backends.ordered.codec.rows import RowCodec
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Field, Value
from structable.spi.authors import check_row
from tests.ordered.strategies import fields, row_values, same, table

KEY = [Field.string("s"), Field.long("n")]
OTHERS = [Field.int("number"), Field.string("text"), Field.bytes("blob"), Field.boolean("flag")]


def patch_of(schema: TableSchema, row: dict[str, Value]) -> RowPatch:
    patch = RowPatches(schema, KeyCodec(schema)).of(row)
    assert patch is not None
    return patch


@given(st.data())
def test_patch_is_the_merge_of_decoded_values(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=3))
    others = data.draw(fields("v", min_size=1, max_size=20))
    schema = table(key, others)
    codec = RowCodec(schema)
    key_values, before = data.draw(row_values(key)), data.draw(row_values(others, nulls=True))
    raw_key, old = KeyCodec(schema).encode_checked(key_values), codec.encode_values(before)
    changes = dict(zip(schema.row_columns, (*key_values, *data.draw(row_values(others, nulls=True))), strict=True))
    kept = data.draw(st.sets(st.sampled_from([field.name for field in others]), max_size=len(others) - 1))
    row = {name: value for name, value in changes.items() if name not in kept}

    patch = patch_of(schema, row)
    assert patch.key(row) == raw_key
    raw = patch.change(row, raw_key, old)
    assert raw is not None
    names = [field.name for field in schema.value_fields]
    wanted = tuple(row.get(name, value) if name in row else value for name, value in zip(names, before, strict=True))
    assert same(codec.decode_values(raw), wanted)
    assert raw == codec.encode_values(wanted)


@given(st.data())
def test_encoder_of_given_fields_takes_rows_that_need_no_check(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=3))
    others = data.draw(fields("v", min_size=1, max_size=20))
    schema = table(key, others)
    codec, keys, key_values = RowCodec(schema), KeyCodec(schema), data.draw(row_values(key))
    values = dict(zip(schema.row_columns, (*key_values, *data.draw(row_values(others, nulls=True))), strict=True))
    left_out = data.draw(st.sets(st.sampled_from([field.name for field in others])))
    row = {name: value for name, value in values.items() if name not in left_out}

    raw = codec.encode_values(tuple(row.get(field.name) for field in schema.value_fields))
    assert codec.encode_given(row) == (keys.encode_checked(key_values), raw)
    assert same(tuple(check_row(schema.spec, row).values()), tuple(row.values()))
    for name in row:
        wrong: list[Any] = [object(), "\ud800", 1 << 70]
        for bad in wrong:
            assert codec.encode_given({**row, name: bad}) is None
    for name in schema.spec.primary_key:
        assert codec.encode_given({**row, name: None}) is None
        assert codec.encode_given({other: value for other, value in row.items() if other != name}) is None
    assert codec.encode_given({**row, "nobody": 1}) is None


@pytest.mark.parametrize(
    "row",
    [
        {"s": "a", "n": 1},
        {"s": "a", "number": 1},
        {"s": "a", "n": 1, "nobody": 1},
        {"s": "a", "n": 1, 5: 1},
    ],
    ids=["no change", "no whole key", "unknown field", "no name"],
)
def test_fields_that_make_no_patch(row: dict[str, Value]) -> None:
    schema = table(KEY, OTHERS)
    assert RowPatches(schema, KeyCodec(schema)).of(row) is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": True},
        {"number": 1 << 31},
        {"number": 1.0},
        {"text": "a\0b"},
        {"text": "\ud800"},
        {"text": b"a"},
        {"blob": bytearray(1)},
        {"flag": 1},
        {"blob": bytes(8 << 20)},
    ],
    ids=lambda change: str(change)[:40],
)
def test_values_that_the_rule_decides_about(change: dict[str, Value]) -> None:
    schema = table(KEY, OTHERS)
    row: dict[str, Value] = {"s": "a", "n": 1, **change}
    old = RowCodec(schema).encode_values((1, "a", b"b", None))
    assert patch_of(schema, row).change(row, b"key", old) is None


@pytest.mark.parametrize(
    "key", [("a\0", 1), (b"a", 1), ("a", 1 << 63), ("a", True), (None, 1), ("a" * 2_000, 1)], ids=str
)
def test_keys_that_the_rule_decides_about(key: tuple[Value, ...]) -> None:
    row: dict[str, Value] = {"s": key[0], "n": key[1], "number": 1}
    assert patch_of(table(KEY, OTHERS), row).key(row) is None


def test_indexed_values_near_the_limit_are_decided_by_the_rule() -> None:
    schema = table(KEY, OTHERS, indexes=("text",))
    old = RowCodec(schema).encode_values((1, "a", b"b", None))
    for other in ("number", "text"):
        row: dict[str, Value] = {"s": "a", "n": 1, other: 1 if other == "number" else "t" * 1_990}
        assert (patch_of(schema, row).change(row, bytes(30), old) is None) == (other == "text")


def test_values_of_another_layout_and_damaged_ones_make_no_patch() -> None:
    schema = table(KEY, OTHERS)
    row: dict[str, Value] = {"s": "a", "n": 1, "number": 5}
    old = RowCodec(schema).encode_values((1, "a", b"b", None))
    change = patch_of(schema, row).change
    assert change(row, b"key", old) is not None
    assert change(row, b"key", b"\1" + old[1:]) is None
    assert change(row, b"key", old + b"x") is None
    assert change(row, b"key", old[:5]) is None


@pytest.mark.slow
def test_a_number_of_many_sets_of_fields() -> None:
    schema = table(KEY, [Field.double(f"v{number}") for number in range(30)])
    patches, old = RowPatches(schema, KeyCodec(schema)), RowCodec(schema).encode_values((0.5,) * 30)
    for first in range(30):
        for second in range(first):
            row: dict[str, Value] = {"s": "a", "n": 1, f"v{first}": math.inf, f"v{second}": None}
            patch = patches.of(row)
            assert patch is not None
            raw = patch.change(row, b"key", old)
            assert raw is not None
            values = RowCodec(schema).decode_values(raw)
            assert (values[first], values[second], values.count(0.5)) == (math.inf, None, 28)
