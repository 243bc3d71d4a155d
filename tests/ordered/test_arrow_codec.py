import dataclasses
import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structable.backends.ordered.arrow.buffers import Array
from structable.backends.ordered.arrow.byte_columns import TooLargeError
from structable.backends.ordered.arrow.decoder import ArrowDecoder
from structable.backends.ordered.arrow.encoder import ArrowEncoder
from structable.backends.ordered.codec.keys import KeyCodec
from structable.backends.ordered.codec.rows import RowCodec
from structable.backends.ordered.codec.source import NewerLayoutError
from structable.backends.ordered.engine import Pair, rows_of_pairs
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import DataCorruptionError, Field, FieldSizeLimitError, FieldType, InvalidFieldError, Value
from structable.spi.arrow import arrow_schema, conform_batch
from tests.ordered.strategies import SPACE, fields, row_values, same, table
from tests.ordered.test_row_codec import widened

KEY = [Field.string("s"), Field.long("n")]
Rows = list[tuple[Value, ...]]


def _pairs(schema: TableSchema, rows: Rows) -> list[Pair]:
    """Return rows in the order of `schema.row_columns` as the row codec writes them."""
    keys, codec, width = KeyCodec(schema), RowCodec(schema), len(schema.spec.primary_key)
    return [(keys.encode_checked(row[:width]), codec.encode_values(row[width:])) for row in rows]


def _read(decoder: ArrowDecoder, pairs: list[Pair]) -> pa.RecordBatch:
    return decoder.decode([key for key, _ in pairs], [value for _, value in pairs])


def _column(batch: pa.RecordBatch, name: str) -> list[object]:
    return [_python(value) for value in batch.column(name).to_pylist()]


def _python(value: object) -> object:
    """Arrow's UTC is another object than datetime's."""
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


def _expected(schema: TableSchema, rows: Rows, name: str) -> list[Value]:
    return [row[schema.row_columns.index(name)] for row in rows]


def _rows(schema: TableSchema, *, min_size: int = 0, max_size: int) -> st.SearchStrategy[Rows]:
    key, others = list(schema.spec.key_fields), list(schema.value_fields)
    row = st.tuples(row_values(key), row_values(others, nulls=True)).map(lambda parts: parts[0] + parts[1])
    return st.lists(row, min_size=min_size, max_size=max_size)


@given(st.data())
def test_decoding_agrees_with_the_row_codec(data: st.DataObject) -> None:
    key, others = data.draw(fields("k", keyable=True, min_size=1, max_size=4)), data.draw(fields("v", max_size=18))
    schema = table(key, others)
    rows = data.draw(_rows(schema, max_size=6))
    columns = data.draw(
        st.permutations(schema.row_columns).flatmap(lambda p: st.integers(1, len(p)).map(lambda n: p[:n]))
    )
    batch = _read(ArrowDecoder(schema, tuple(columns)), _pairs(schema, rows))
    assert batch.schema.equals(arrow_schema(schema.spec, columns), check_metadata=True)
    assert batch.num_rows == len(rows)
    for name in columns:
        assert same(_column(batch, name), _expected(schema, rows, name))


@given(st.data())
def test_layouts_in_any_mixture(data: st.DataObject) -> None:
    others, added = data.draw(fields("v", min_size=1)), data.draw(fields("w", max_size=3))
    schema = widened(others, added)
    versions = {
        version: dataclasses.replace(schema, version=version, layouts={version: layout})
        for version, layout in schema.layouts.items()
    }
    pairs: list[Pair] = []
    rows: Rows = []
    for version in data.draw(st.lists(st.sampled_from([3, 4, 9]), min_size=1, max_size=6)):
        # Narrow values fit all layouts.
        row = data.draw(row_values(KEY)) + data.draw(row_values(others, nulls=True))
        row += data.draw(row_values(added, nulls=True)) if version == 9 else ()
        pairs += _pairs(versions[version], [row])
        rows.append(row if version == 9 else row + (None,) * len(added))
    columns = schema.row_columns
    batch = _read(ArrowDecoder(schema, columns), pairs)
    assert batch.schema.equals(arrow_schema(schema.spec, columns))
    for name in columns:
        assert same(_column(batch, name), _expected(schema, rows, name))


@given(st.data())
def test_encoding_agrees_with_the_row_codec(data: st.DataObject) -> None:
    key, others = data.draw(fields("k", keyable=True, min_size=1, max_size=4)), data.draw(fields("v", max_size=18))
    schema = table(key, others)
    rows = data.draw(_rows(schema, max_size=6))
    columns = tuple(data.draw(st.permutations(schema.row_columns)))
    pairs = _pairs(schema, rows)
    batch = conform_batch(schema.spec, _read(ArrowDecoder(schema, columns), pairs))
    assert _same_rows(schema, ArrowEncoder(schema, columns).encode(batch), pairs)
    # Slices share the buffers of the whole.
    begin = data.draw(st.integers(0, len(rows)))
    assert _same_rows(schema, ArrowEncoder(schema, columns).encode(batch.slice(begin)), pairs[begin:])


def _same_rows(schema: TableSchema, pairs: list[Pair], wanted: list[Pair]) -> bool:
    """Compare bit by bit, except NaN, whose payload Arrow and `struct` need not keep alike."""
    decode = RowCodec(schema).projection(schema.row_columns)
    return [key for key, _ in pairs] == [key for key, _ in wanted] and same(
        [decode(*pair) for pair in pairs], [decode(*pair) for pair in wanted]
    )


@given(st.data())
def test_missing_columns_are_null(data: st.DataObject) -> None:
    others = data.draw(fields("v", max_size=20))
    schema = table(KEY, others)
    rows = data.draw(_rows(schema, min_size=1, max_size=4))
    columns = ("n", "s", *(field.name for field in others if data.draw(st.booleans())))
    batch = _read(ArrowDecoder(schema, columns), _pairs(schema, rows))
    kept = [tuple(v if n in columns else None for v, n in zip(row, schema.row_columns, strict=True)) for row in rows]
    assert _same_rows(schema, ArrowEncoder(schema, columns).encode(batch), _pairs(schema, kept))


def test_nulls_over_garbage_are_zero() -> None:
    schema = table(KEY, [Field.string("v"), Field.timestamp("t"), Field.decimal("d", 5, 2)])
    valid = pa.py_buffer(b"\x00")
    garbage = pa.Array.from_buffers(pa.string(), 1, [valid, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"a\0b")])
    times = pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), 1, [valid, pa.py_buffer(b"\x7f" * 8)])
    decimals = pa.Array.from_buffers(pa.decimal128(5, 2), 1, [valid, pa.py_buffer(b"\x01" * 16)])
    columns = ("s", "n", "v", "t", "d")
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([1]), garbage, times, decimals], names=list(columns))
    assert ArrowEncoder(schema, columns).encode(batch) == _pairs(schema, [("a", 1, None, None, None)])


_FAR = 2**62


@pytest.mark.parametrize(
    ("column", "array", "reason"),
    [
        ("s", pa.array(["ok", None]), "must not be null"),
        ("s", pa.array(["ok", "a\0b"]), "NUL"),
        ("v", pa.array([None, "a\0b"]), "NUL"),
        ("t", pa.array([0, _FAR], pa.int64()).view(pa.timestamp("us", tz="UTC")), "years 1 to 9999"),
        ("u", pa.array([0, -_FAR], pa.int64()).view(pa.timestamp("us")), "years 1 to 9999"),
        ("d", pa.array([None, 2**31 - 1], pa.int32()).view(pa.date32()), "years 1 to 9999"),
        ("v", pa.array([b"a", b"\xff"]).view(pa.string()), "not valid"),
    ],
)
def test_refused_values(column: str, array: Array, reason: str) -> None:
    schema = table(KEY, [Field.string("v"), Field.timestamp("t"), Field.timestamp_ntz("u"), Field.date("d")])
    names = ("s", "n", "v", "t", "u", "d")
    types = arrow_schema(schema.spec, names)
    data: dict[str, Array] = {"s": pa.array(["a", "b"]), "n": pa.array([1, 2])}
    arrays = [array if name == column else data.get(name, pa.nulls(2, types.field(name).type)) for name in names]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    with pytest.raises(InvalidFieldError, match=reason) as refused:
        ArrowEncoder(schema, names).encode(conform_batch(schema.spec, batch))
    assert refused.value.field == column


@pytest.mark.parametrize("value", [dt.date.min, dt.date.max])
def test_the_first_and_the_last_date(value: dt.date) -> None:
    schema = table([Field.date("k")], [Field.date("v")])
    batch = pa.RecordBatch.from_arrays([pa.array([value]), pa.array([value])], names=["k", "v"])
    assert ArrowEncoder(schema, ("k", "v")).encode(batch) == _pairs(schema, [(value, value)])


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [("a" * 1993, b"", b""), ("a", b"a" * 2001, b""), ("a" * 1000, b"a" * 1493, b""), ("a", b"", b"a" * (1 << 23))],
)
def test_size_limits(key: str, value: bytes, other: bytes) -> None:
    schema = table(KEY, [Field.bytes("v"), Field.bytes("w")], ("v",))

    def encode(*row: Value) -> list[Pair]:
        rows = [("a", 1, b"", b""), row]
        batch = pa.RecordBatch.from_pylist([dict(zip(schema.row_columns, each, strict=True)) for each in rows])
        return ArrowEncoder(schema, schema.row_columns).encode(conform_batch(schema.spec, batch))

    with pytest.raises(FieldSizeLimitError):
        encode(key, 1, value, other)
    shorter: tuple[Value, ...] = (key[:1992], 1, value[:1492] if len(key) > 1 else value[:2000], other[: (1 << 23) - 9])
    assert len(encode(*shorter)) == 2


def test_a_batch_needs_all_key_fields() -> None:
    with pytest.raises(InvalidFieldError, match="primary key"):
        ArrowEncoder(table(KEY), ("s",))


def test_no_rows() -> None:
    schema = table(KEY, [Field.decimal("v", 3, 1)])
    batch = ArrowDecoder(schema, ("v", "s")).decode([], [])
    assert batch.schema.equals(arrow_schema(schema.spec, ("v", "s")))
    assert ArrowEncoder(schema, ("s", "n")).encode(ArrowDecoder(schema, ("s", "n")).decode([], [])) == []


@pytest.mark.parametrize("count", [1, 2])
def test_numbers_are_aligned(count: int) -> None:
    """Arrow's kernels warn of others; the numbers of a single row would be bytes in the middle of it."""
    schema = table(KEY, [Field.boolean("b"), Field.long("v"), Field.decimal("d", 38, 2), Field.int("i")])
    values: dict[str, Value] = {"s": "a", "n": 1, "b": True, "v": 7, "d": Decimal("0.25"), "i": 3}
    row = tuple(values[name] for name in schema.row_columns)
    batch = _read(ArrowDecoder(schema, schema.row_columns), _pairs(schema, [row] * count))
    data = [batch.column(name).buffers()[1] for name in ("n", "v", "d", "i")]
    assert [None if buffer is None else buffer.address % 8 for buffer in data] == [0] * len(data)


@pytest.mark.parametrize("rows", [1, 7, 64, 8192])
def test_batches_hold_all_rows_in_order(rows: int) -> None:
    schema = table(KEY, [Field.string("v")])
    wanted: Rows = [(f"{n:05}", n, "x" * (n % 50)) for n in range(1000)]
    batches = list(ArrowDecoder(schema, schema.row_columns).batches(rows_of_pairs(iter(_pairs(schema, wanted)), rows)))
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == wanted
    assert max(batch.num_rows for batch in batches) <= rows


def test_large_rows_make_small_batches() -> None:
    schema = table(KEY, [Field.bytes("v")])
    wanted: Rows = [("a", n, bytes(1 << 20)) for n in range(100)]
    batches = list(ArrowDecoder(schema, ("n",)).batches(rows_of_pairs(iter(_pairs(schema, wanted)))))
    assert [batch.num_rows for batch in batches] == [64, 15, 15, 6]


def test_too_large_batches_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = table(KEY, [Field.long("v")])
    decoder = ArrowDecoder(schema, ("v",))
    wanted: Rows = [("a", n, n) for n in range(10)]
    whole: Callable[[list[bytes], list[bytes]], pa.RecordBatch] = decoder.decode_batch

    def limited(keys: list[bytes], values: list[bytes]) -> pa.RecordBatch:
        if len(keys) > 3:
            raise TooLargeError
        return whole(keys, values)

    monkeypatch.setattr(decoder, "decode_batch", limited)
    batches = list(decoder.batches(rows_of_pairs(iter(_pairs(schema, wanted)))))
    assert [batch.column("v").to_pylist() for batch in batches] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    with pytest.raises(ValueError, match="2 GiB"):
        decoder.decode([b""] * 4, [b""] * 4)


@given(st.data())
def test_corrupt_rows_raise_nothing_but_data_corruption(data: st.DataObject) -> None:
    key, others = data.draw(fields("k", keyable=True, min_size=1, max_size=3)), data.draw(fields("v"))
    schema = table(key, others)
    pairs = _pairs(schema, data.draw(_rows(schema, min_size=1, max_size=4)))
    position = data.draw(st.integers(0, len(pairs) - 1))
    raw_key, raw = pairs[position]
    broken = bytearray(raw)
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        broken[place] = data.draw(st.integers(0, 255))
    damaged = data.draw(st.sampled_from([bytes(broken), raw + b"x", raw[:-1], b""]) | st.binary(max_size=40))
    damaged_key = data.draw(
        st.just(raw_key) | st.integers(0, len(raw_key)).map(lambda n: raw_key[:n]) | st.binary(max_size=20)
    )
    pairs[position] = damaged_key, damaged
    try:
        batch = _read(ArrowDecoder(schema, schema.row_columns), pairs)
    except DataCorruptionError:
        return
    batch.validate(full=True)


@pytest.mark.parametrize("kind", [FieldType.STRING, FieldType.LONG])
@pytest.mark.parametrize(
    "damage", [lambda raw: raw + b"x", lambda raw: raw[:-1], lambda raw: b"\xff\xff" + raw[2:], lambda raw: b""]
)
def test_a_corrupt_row_is_found(kind: FieldType, damage: Callable[[bytes], bytes]) -> None:
    schema = table(KEY, [Field("v", kind)])
    value: Value = "abc" if kind is FieldType.STRING else 7
    pairs = _pairs(schema, [("a", 1, value), ("b", 2, value)])
    pairs[1] = pairs[1][0], damage(pairs[1][1])
    with pytest.raises(DataCorruptionError, match="row"):
        _read(ArrowDecoder(schema, ("v",)), pairs)


def test_corrupt_text_and_corrupt_keys_are_found() -> None:
    schema = table(KEY, [Field.string("v")])
    (key, value), other = _pairs(schema, [("a", 1, "abc"), ("b", 2, None)])
    with pytest.raises(DataCorruptionError):
        _read(ArrowDecoder(schema, ("v",)), [(key, value[:-1] + b"\xff"), other])
    with pytest.raises(DataCorruptionError):
        _read(ArrowDecoder(schema, ("s",)), [(SPACE + b"\x01\xff\x00" + bytes(8), value), other])
    for junk in (b"", SPACE, key[:-3]):
        with pytest.raises(DataCorruptionError, match="row key"):
            _read(ArrowDecoder(schema, ("s", "n")), [other, (junk, value)])


def test_a_newer_layout_is_a_schema_change() -> None:
    schema = table(KEY, [Field.long("v")])
    key, value = _pairs(schema, [("a", 1, 2)])[0]
    with pytest.raises(NewerLayoutError):
        _read(ArrowDecoder(schema, ("v",)), [(key, b"\x01\x00" + value[2:])])
