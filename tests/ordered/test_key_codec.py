import contextlib
import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.engine import successor
from structable.spi import DataCorruptionError, Field, FieldType, InvalidFieldError, Value
from structable.spi.authors import check_key
from tests.ordered.entries import decode_entry, encode_entry
from tests.ordered.strategies import KEYABLE, SPACE, fields, row_values, same, table, values

KEY = [Field.string("s"), Field.long("n")]
ROW = b"\x01"


def test_the_form_of_a_key() -> None:
    raw = KeyCodec(table(KEY)).encode_tuple(("é", -1))
    assert raw == SPACE + ROW + "é".encode() + b"\x00" + b"\x7f" + b"\xff" * 7


@given(st.data())
def test_order_of_raw_keys_is_the_order_of_keys(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=4))
    codec = KeyCodec(table(key))
    one, other = data.draw(row_values(key)), data.draw(row_values(key))
    # Equal heads, so that every field decides some comparison.
    shared = data.draw(st.integers(0, len(key)))
    other = one[:shared] + other[shared:]
    raw, raw_other = codec.encode_checked(one), codec.encode_checked(other)
    assert (raw < raw_other) == (_by_code_point(one) < _by_code_point(other))
    assert (raw == raw_other) == (one == other)


def _by_code_point(key: tuple[Value, ...]) -> tuple[object, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


def test_bytes_order_where_zeros_are_escaped() -> None:
    codec = KeyCodec(table([Field.bytes("b"), Field.byte("n")]))
    pieces = [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\x01",
        b"\x00\xff",
        b"\x01",
        b"\x01\x00",
        b"\xff",
        b"\xff\x00",
        b"\xff\xff",
    ]
    keys: list[tuple[Value, ...]] = [(piece, number) for piece in pieces for number in (-128, 0, 127)]
    raws = [codec.encode_checked(key) for key in keys]
    assert raws == sorted(raws)
    assert [codec.decode(raw) for raw in raws] == keys


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=5))
    codec = KeyCodec(table(key))
    checked = data.draw(row_values(key))
    raw = codec.encode_checked(checked)
    assert codec.encode_tuple(checked) == raw
    assert same(codec.decode(raw), checked)
    assert codec.rows_begin < raw < codec.rows_end


@given(st.data())
def test_a_prefix_begins_exactly_the_keys_that_begin_with_it(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=4))
    codec = KeyCodec(table(key))
    one, other = data.draw(row_values(key)), data.draw(row_values(key))
    count = data.draw(st.integers(0, len(key)))
    prefix = codec.encode_prefix(one[:count])
    assert codec.encode_checked(one).startswith(prefix)
    assert codec.encode_checked(other).startswith(prefix) == (other[:count] == one[:count])
    assert codec.encode_checked(one) < successor(prefix)


class Name(str):
    __slots__ = ()


CANONICAL: dict[FieldType, Value] = {
    FieldType.BOOLEAN: True,
    FieldType.BYTE: 1,
    FieldType.SHORT: 1,
    FieldType.INT: 1,
    FieldType.LONG: 1,
    FieldType.STRING: "a",
    FieldType.BYTES: b"a",
    FieldType.DATE: dt.date(2020, 1, 1),
    FieldType.TIMESTAMP: dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    FieldType.TIMESTAMP_NTZ: dt.datetime(2020, 1, 1),
}
ODD_VALUES: list[object] = [
    *CANONICAL.values(),
    None,
    0,
    1.0,
    Decimal(1),
    Name("a"),
    "\0",
    "a\0b",
    "\ud800",
    bytearray(b"a"),
    128,
    -129,
    32768,
    1 << 31,
    1 << 63,
    -(1 << 63) - 1,
    dt.datetime(2020, 1, 1, fold=1),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC, fold=1),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
]


@pytest.mark.parametrize("kind", KEYABLE)
@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_the_fast_encoder_takes_a_value_only_as_it_is_kept(kind: FieldType, value: object) -> None:
    schema = table([Field("k", kind)])
    codec = KeyCodec(schema)
    raw = codec.encode_tuple((value,))
    if raw is None:
        assert type(value) is not type(CANONICAL[kind]) or repr(value) != repr(CANONICAL[kind])
        return
    checked = check_key(schema.spec, (value,))
    assert same(checked, (value,))
    assert raw == codec.encode_checked(checked)


@pytest.mark.parametrize("key", [(), ("a",), ("a", 1, 2), ["a", 1], {"s": "a", "n": 1}, "ab", None], ids=repr)
def test_the_fast_encoder_takes_whole_tuples_only(key: object) -> None:
    assert KeyCodec(table(KEY)).encode_tuple(key) is None


@pytest.mark.parametrize("size", [1900, 1985, 1986, 1992, 1993, 2001, 3000])
def test_the_fast_encoder_takes_no_key_over_the_limit(size: int) -> None:
    schema = table(KEY)
    codec = KeyCodec(schema)
    key: tuple[Value, ...] = ("a" * size, 1)
    raw = codec.encode_tuple(key)
    if size + 8 <= 2000:
        assert raw in (None, codec.encode_checked(check_key(schema.spec, key)))
    else:
        assert raw is None
        with pytest.raises(InvalidFieldError):
            check_key(schema.spec, key)
    assert raw is not None or size > 1900


@given(st.data())
def test_corrupt_keys_raise_nothing_but_data_corruption(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=4))
    codec = KeyCodec(table(key))
    raw = data.draw(st.binary(max_size=40) | row_values(key).map(codec.encode_checked))
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    with contextlib.suppress(DataCorruptionError):
        assert len(codec.decode(cut)) == len(key)


@pytest.mark.parametrize("raw", [b"", SPACE + ROW, SPACE + ROW + b"a\x00", SPACE + ROW + b"\xff\x00" + bytes(8)])
def test_a_corrupt_key_is_found(raw: bytes) -> None:
    with pytest.raises(DataCorruptionError, match="row key"):
        KeyCodec(table(KEY)).decode(raw)


def test_a_time_out_of_range_is_corrupt() -> None:
    codec = KeyCodec(table([Field.timestamp("t")]))
    with pytest.raises(DataCorruptionError):
        codec.decode(SPACE + ROW + b"\xff" * 8)


@given(st.data())
def test_index_entries_give_back_value_and_row_key(data: st.DataObject) -> None:
    key = data.draw(fields("k", keyable=True, min_size=1, max_size=3))
    field = Field("v", data.draw(st.sampled_from(KEYABLE)))
    codec = KeyCodec(table(key, [field], ("v",)))
    raw_key = codec.encode_checked(data.draw(row_values(key)))
    number, value = data.draw(st.integers(0, 65535)), data.draw(st.none() | values(field))
    entry = encode_entry(codec, number, field, value, raw_key)
    assert entry == codec.index_entry_encoder(number, field)(value, raw_key)
    assert entry.startswith(codec.index_begin(number) + codec.encode_index_value(field, value))
    assert codec.index_begin(number) < entry < codec.index_end(number)
    assert codec.rows_end <= entry
    assert same(decode_entry(codec, number, field, entry), (value, raw_key))
    assert codec.index_row_key_decoder(field)(entry) == raw_key


@given(st.data())
def test_index_entries_are_ordered_by_value_then_key_and_nulls_come_first(data: st.DataObject) -> None:
    field = Field("v", data.draw(st.sampled_from(KEYABLE)))
    codec = KeyCodec(table(KEY, [field], ("v",)))
    pairs = data.draw(st.lists(st.tuples(st.none() | values(field), row_values(KEY)), min_size=2, max_size=2))
    # As tuples, which compare element by element: a null is the empty one, which comes first.
    one, other = (((() if value is None else _by_code_point((value,))), _by_code_point(key)) for value, key in pairs)
    entries = [encode_entry(codec, 1, field, value, codec.encode_checked(key)) for value, key in pairs]
    assert (entries[0] < entries[1]) == (one < other)


@given(st.integers(-128, 127))
def test_entries_outlive_a_widening(value: int) -> None:
    codec = KeyCodec(table(KEY, [Field.byte("v")], ("v",)))
    wide = {codec.encode_index_value(Field("v", kind), value) for kind in FieldType if kind.integer_bits}
    assert len(wide) == 1


@given(st.data())
def test_corrupt_entries_raise_nothing_but_data_corruption(data: st.DataObject) -> None:
    field = Field("v", data.draw(st.sampled_from(KEYABLE)))
    codec = KeyCodec(table(KEY, [field], ("v",)))
    entry = encode_entry(codec, 1, field, data.draw(st.none() | values(field)), SPACE + ROW + b"a\x00" + bytes(8))
    cut = data.draw(st.binary(max_size=20) | st.integers(0, len(entry)).map(lambda size: entry[:size]))
    with contextlib.suppress(DataCorruptionError):
        codec.index_row_key_decoder(field)(cut)


@given(st.binary(max_size=4).map(lambda head: head + b"\x01"), st.binary(max_size=6))
def test_successor(prefix: bytes, rest: bytes) -> None:
    assert prefix + rest + b"\xff" * 3 < successor(prefix)
    assert successor(prefix + b"\xff\xff") == successor(prefix) == prefix[:-1] + b"\x02"


@pytest.mark.parametrize("prefix", [b"", b"\xff", b"\xff\xff"])
def test_nothing_succeeds_the_greatest_prefix(prefix: bytes) -> None:
    with pytest.raises(ValueError, match="nothing is greater"):
        successor(prefix)
