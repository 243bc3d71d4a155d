"""Arrow's types with values at their edges, and the fields that take them; docs/spi.md has the same table."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from structable.spi import Field, FieldType

REFUSED = object()
"""A value that a field does not take."""

_INTEGERS = (FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG)
_FLOATS = (FieldType.FLOAT, FieldType.DOUBLE)
_NUMBERS = (*_INTEGERS, *_FLOATS, FieldType.DECIMAL)
_NAIVE = (FieldType.TIMESTAMP_NTZ, FieldType.DATE)
_WIDE = Context(prec=100)
_DAY = 86_400_000
_SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_UUID = uuid.UUID("00112233-4455-6677-8899-AABBCCDDEEFF")


@dataclass(frozen=True)
class ArrowSample:
    """An Arrow type."""

    name: str
    """The name in the documentation; several types of one name differ in their parameters."""
    kind: pa.DataType
    fields: tuple[FieldType, ...] = ()
    """The field types that take columns of this type."""
    values: tuple[Any, ...] = (None,)
    """Values from which pyarrow makes an array of the type, or of its storage."""

    def column(self, values: Sequence[object]) -> pa.Array[Any]:
        """Return an array of the type, which begins in the middle of its buffers."""
        padded: list[Any] = [None, *values]
        if isinstance(self.kind, pa.BaseExtensionType):
            made: Any = pa.ExtensionArray.from_storage(self.kind, pa.array(padded, self.kind.storage_type))
        else:
            made = pa.array(padded, self.kind)
        return made.slice(1)  # type: ignore[no-any-return]

    def kept(self, field: Field, value: Any) -> object:  # noqa: ANN401 - a value of any type
        """Return what a field keeps of one of the values, as Python does it; `REFUSED` if it would change."""
        if value is None:
            return None
        kind = field.type
        if self.name == "arrow.bool8":
            return value != 0
        if self.name == "arrow.uuid":
            return value if kind is FieldType.BYTES else str(uuid.UUID(bytes=value))
        if kind.integer_bits:
            return self._whole(kind, value)
        if kind in _FLOATS:
            return _float(kind, value)
        if kind is FieldType.DECIMAL:
            return _decimal(field, Decimal(value)) if math.isfinite(value) else REFUSED
        if kind in (FieldType.DATE, FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ):
            return self._time(kind, value)
        return value

    def _whole(self, kind: FieldType, value: Any) -> object:  # noqa: ANN401
        bound = 1 << kind.integer_bits - 1
        if not math.isfinite(value) or value != int(value) or not -bound <= value < bound:
            return REFUSED
        most = 2**53 if self.name == "double" else 2**24
        return REFUSED if isinstance(value, float) and abs(value) > most else int(value)

    def _time(self, kind: FieldType, value: int) -> object:
        if isinstance(self.kind, pa.TimestampType):
            nanoseconds = value * 1_000_000_000 // _SECONDS[self.kind.unit]
        else:
            nanoseconds = value * 1_000_000 * (_DAY if self.name == "date32" else 1)
            if nanoseconds % (1_000_000 * _DAY):
                return REFUSED
        if kind is FieldType.DATE:
            return _date(nanoseconds, 1_000_000 * _DAY)
        return _time(nanoseconds, kind is FieldType.TIMESTAMP)


def _float(kind: FieldType, value: float | Decimal) -> object:
    try:
        kept = struct.unpack("<f", struct.pack("<f", value))[0] if kind is FieldType.FLOAT else float(value)
    except OverflowError:
        return REFUSED
    whole = not isinstance(value, float) and value == int(value)
    return REFUSED if whole and kept != value else kept


def _decimal(field: Field, value: Decimal) -> object:
    assert field.precision is not None
    assert field.scale is not None
    unscaled = int(value.scaleb(field.scale, _WIDE))
    kept = Decimal(unscaled).scaleb(-field.scale, _WIDE)
    return kept if kept == value and abs(unscaled) < 10**field.precision else REFUSED


def _date(nanoseconds: int, a_day: int) -> object:
    try:
        return REFUSED if nanoseconds % a_day else dt.date.fromordinal(719_163 + nanoseconds // a_day)
    except (ValueError, OverflowError):
        return REFUSED


def _time(nanoseconds: int, aware: bool) -> object:
    try:
        time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if aware else None) + dt.timedelta(0, 0, nanoseconds // 1_000)
    except OverflowError:
        return REFUSED
    return REFUSED if nanoseconds % 1_000 else time


def _timestamps(unit: Any) -> list[ArrowSample]:  # noqa: ANN401 - pyarrow's stubs name four literals
    second = _SECONDS[unit]
    values = [0, second, -second, 86_400 * second, None]
    if unit == "ns":
        values += [1_000, -1_000, -1, 1_001, 2**63 - 1, -(2**63) + 1]
    else:
        values += [253_402_300_799 * second, -62_135_596_800 * second, 253_402_300_800 * second, 2**63 - 1, -(2**63)]
    zoned = [pa.timestamp(unit, zone) for zone in ("UTC", "Europe/Berlin", "+05:30")]
    return [
        ArrowSample("timestamp without zone", pa.timestamp(unit), _NAIVE, tuple(values)),
        *(ArrowSample("timestamp with zone", kind, (FieldType.TIMESTAMP,), tuple(values)) for kind in zoned),
    ]


def _integers(name: str) -> ArrowSample:
    bits = int(name.lstrip("uint"))
    least, most = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    edges = [
        sign * (2**power + more) for power in (7, 15, 24, 31, 53, 60, 63) for sign in (1, -1) for more in (-1, 0, 1)
    ]
    values = sorted({least, 0, most, *(edge for edge in edges if least <= edge <= most)})
    return ArrowSample(name, getattr(pa, name)(), _NUMBERS, (*values, None))


_TEXTS = ("", "a", "\u00e9\U0001f600", None, "longer than the twelve bytes of a view")
_BYTES = (b"", b"\0", b"a\xff", None, b"longer than the twelve bytes of a view")

ARROW_SAMPLES: list[ArrowSample] = [
    ArrowSample("null", pa.null(), tuple(FieldType)),
    ArrowSample("bool", pa.bool_(), (FieldType.BOOLEAN,), (True, False, None)),
    ArrowSample("arrow.bool8", pa.bool8(), (FieldType.BOOLEAN,), (1, 0, None, -1)),
    *map(_integers, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    ArrowSample("halffloat", pa.float16(), _NUMBERS, (1.5, 181.0, -0.0, 65504.0, 2.0**-24, math.inf, math.nan, None)),
    ArrowSample(
        "float",
        pa.float32(),
        _NUMBERS,
        (0.5, 2.0**24, 2.0**25, 1.401298464324817e-45, 3.4028234663852886e38, -math.inf, None),
    ),
    ArrowSample(
        "double",
        pa.float64(),
        _NUMBERS,
        (0.1, 181.0, 2.0**53, 2.0**54, -(2.0**63), 5e-324, 1e39, -1e300, math.inf, math.nan, None),
    ),
    ArrowSample("decimal32", pa.decimal32(9, 2), _NUMBERS, (Decimal("1.50"), Decimal("-9999999.99"), None)),
    ArrowSample("decimal64", pa.decimal64(18, 12), _NUMBERS, (Decimal("1.5"), Decimal("1.0E-11"), None)),
    ArrowSample("decimal128", pa.decimal128(38, 0), _NUMBERS, (Decimal(10**28 - 1), Decimal(10**28), None)),
    ArrowSample("decimal128", pa.decimal128(9, -3), _NUMBERS, (Decimal("1E+5"), None)),
    ArrowSample("decimal256", pa.decimal256(76, 20), _NUMBERS, (Decimal("-0.5"), Decimal(10**50), None)),
    *(
        ArrowSample(name, getattr(pa, name)(), (FieldType.STRING,), _TEXTS)
        for name in ("string", "large_string", "string_view")
    ),
    *(
        ArrowSample("arrow.json", pa.json_(kind), (FieldType.STRING,), ('{"a": 1}', None))
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ),
    *(
        ArrowSample(name, getattr(pa, name)(), (FieldType.BYTES,), _BYTES)
        for name in ("binary", "large_binary", "binary_view")
    ),
    ArrowSample("fixed_size_binary", pa.binary(2), (FieldType.BYTES,), (b"a\xff", b"\0\0", None)),
    ArrowSample("arrow.uuid", pa.uuid(), (FieldType.BYTES, FieldType.STRING), (_UUID.bytes, None)),
    ArrowSample("date32", pa.date32(), _NAIVE, (0, -719_162, 2_932_896, None)),
    ArrowSample("date64", pa.date64(), _NAIVE, (0, -_DAY, 1, None, 2**62 // _DAY * _DAY)),
    *(sample for unit in _SECONDS for sample in _timestamps(unit)),
    *(ArrowSample("time32", pa.time32(unit)) for unit in ("s", "ms")),
    *(ArrowSample("time64", pa.time64(unit)) for unit in ("us", "ns")),
    *(ArrowSample("duration", pa.duration(unit)) for unit in ("s", "ms", "us", "ns")),
    ArrowSample("month_day_nano_interval", pa.month_day_nano_interval()),
    ArrowSample("list", pa.list_(pa.int32())),
    ArrowSample("large_list", pa.large_list(pa.int32())),
    ArrowSample("list_view", pa.list_view(pa.int32())),
    ArrowSample("large_list_view", pa.large_list_view(pa.int32())),
    ArrowSample("fixed_size_list", pa.list_(pa.int32(), 2)),
    ArrowSample("map", pa.map_(pa.string(), pa.int32())),
    ArrowSample("struct", pa.struct([("a", pa.int32())])),
    ArrowSample("sparse_union", pa.sparse_union([pa.field("a", pa.int32())])),
    ArrowSample("dense_union", pa.dense_union([pa.field("a", pa.int32())])),
    ArrowSample("arrow.opaque", pa.opaque(pa.binary(), "geometry", "PostgreSQL")),
    ArrowSample("arrow.fixed_shape_tensor", pa.fixed_shape_tensor(pa.int32(), [2])),
]


def _field(name: str, kind: FieldType) -> Field:
    return Field.decimal(name, 38, 10) if kind is FieldType.DECIMAL else Field(name, kind)


def _encoded(column: pa.Array[Any]) -> Iterator[pa.Array[Any]]:
    """Yield a column as a dictionary and by runs, of any type."""
    places = pa.array(range(len(column)), pa.uint8())
    yield pa.DictionaryArray.from_arrays(places, column)
    yield pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(column) + 1), pa.int32()), column)


def taken_columns() -> Iterator[tuple[Field, pa.Array[Any], list[object]]]:
    """Yield fields with a column of each type that they take, as it is and encoded, and the values that they keep."""
    rows = max(len(sample.values) for sample in ARROW_SAMPLES)
    for number, sample in enumerate(ARROW_SAMPLES):
        for kind in sample.fields:
            field = _field(f"f{number}_{kind.value}", kind)
            fitting = [value for value in sample.values if sample.kept(field, value) is not REFUSED]
            fitting += [None] * (rows - len(fitting))
            column, kept = sample.column(fitting), [sample.kept(field, value) for value in fitting]
            yield field, column, kept
            if kind is sample.fields[0]:
                for way, encoded in enumerate(_encoded(column)):
                    yield _field(f"{field.name}_{way}", kind), encoded, kept
