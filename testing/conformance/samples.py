"""The tables for the rules, and sample values of every type in the order of the contract."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeAlias

from structable.spi import Field, FieldType, Row, TableSpecification, Value

Record: TypeAlias = dict[str, Any]
"""A row as a plain dictionary. Any: a field's type is known to its table, not to the type checker."""

ITEMS = TableSpecification(
    "items",
    [
        Field.long("id"),
        Field.long("n"),
        Field.string("tag"),
        Field.string("note"),
        Field.int("rank"),
        Field.double("cost"),
    ],
    primary_key=["id"],
    indexes=["tag", "rank"],
)
"""The table of most tests: an integer key, two indexes, and nullable fields of several types."""

GRID = TableSpecification(
    "grid",
    [Field.int("k1"), Field.int("k2"), Field.string("k3"), Field.int("v"), Field.string("color")],
    primary_key=["k1", "k2", "k3"],
    indexes=["v"],
)
"""A composite key, for ranges."""

NOTED = TableSpecification("noted", [Field.string("id"), Field.string("note"), Field.long("n")], primary_key=["id"])
"""A table without an index."""

TYPES = TableSpecification(
    "types",
    [
        Field.long("id"),
        Field.boolean("boolean"),
        Field.byte("byte"),
        Field.short("short"),
        Field.int("int"),
        Field.long("long"),
        Field.float("float"),
        Field.double("double"),
        Field.decimal("decimal", 38, 10),
        Field.string("string"),
        Field.bytes("bytes"),
        Field.date("date"),
        Field.timestamp("timestamp"),
        Field.timestamp_ntz("timestamp_ntz"),
    ],
    primary_key=["id"],
)
"""One field of each type, named by it."""

EXTREMES: dict[FieldType, list[Value]] = {
    FieldType.BOOLEAN: [False, True],
    FieldType.BYTE: [-(2**7), -1, 0, 1, 2**7 - 1],
    FieldType.SHORT: [-(2**15), -1, 0, 1, 2**15 - 1],
    FieldType.INT: [-(2**31), -1, 0, 1, 2**31 - 1],
    FieldType.LONG: [-(2**63), -1, 0, 1, 2**63 - 1],
    FieldType.FLOAT: [
        -math.inf,
        -3.4028234663852886e38,
        -1.5,
        0.0,
        1.401298464324817e-45,
        0.5,
        3.4028234663852886e38,
        math.inf,
        math.nan,
    ],
    FieldType.DOUBLE: [
        -math.inf,
        -1.7976931348623157e308,
        -0.1,
        0.0,
        5e-324,
        0.1,
        1.7976931348623157e308,
        math.inf,
        math.nan,
    ],
    FieldType.DECIMAL: [
        Decimal("-9999999999999999999999999999.9999999999"),
        Decimal("-1.5"),
        Decimal("0"),
        Decimal("0.0000000001"),
        Decimal("1E+5"),
        Decimal("9999999999999999999999999999.9999999999"),
    ],
    FieldType.STRING: [
        "",
        " ",
        "a",
        "a\x01",
        "e\u0301",
        "line\nbreak\ttab",
        "quote'\"\\%_",
        "\u00e9",
        "\uffff",
        "\U0010ffff",
    ],
    FieldType.BYTES: [b"", b"\x00", b"\x00\x00", bytes(range(256)), b"\x00\xff", b"a", b"\xff", b"\xff\x00"],
    FieldType.DATE: [dt.date.min, dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date.max],
    FieldType.TIMESTAMP: [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, 12, 30, 15, 1, dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ],
    FieldType.TIMESTAMP_NTZ: [
        dt.datetime(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 12, 30, 15, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
}
"""Values that every store has to keep, ascending within each type."""

KEY_ORDER: dict[FieldType, list[Value]] = {
    FieldType.BOOLEAN: [False, True],
    FieldType.BYTE: [-128, -127, -2, -1, 0, 1, 2, 126, 127],
    FieldType.SHORT: [-(2**15), -257, -256, -1, 0, 1, 255, 256, 2**15 - 1],
    FieldType.INT: [-(2**31), -65537, -256, -1, 0, 1, 255, 256, 65536, 2**31 - 1],
    FieldType.LONG: [-(2**63), -(2**32), -257, -1, 0, 1, 255, 256, 2**32, 2**63 - 1],
    FieldType.STRING: [
        "",
        "\x01",
        "\x01\x01",
        "\x02",
        " ",
        "A",
        "Z",
        "_",
        "a",
        "a\x01",
        "a b",
        "aa",
        "ab",
        "b",
        "\x7f",
        "\x80",
        "\u00e9",
        "\u07ff",
        "\u0800",
        "\ufb01",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
    ],
    FieldType.BYTES: [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\x01",
        b"\x00\xff",
        b"\x01",
        b"a",
        b"a\x00",
        b"aa",
        b"b",
        b"\xff",
        b"\xff\x00",
        b"\xff\xff",
    ],
    FieldType.DATE: EXTREMES[FieldType.DATE],
    FieldType.TIMESTAMP: EXTREMES[FieldType.TIMESTAMP],
    FieldType.TIMESTAMP_NTZ: EXTREMES[FieldType.TIMESTAMP_NTZ],
}
"""Values of every key-able type, ascending as the contract orders keys."""

_LATER = dt.timezone(dt.timedelta(hours=-1))

WRONG: dict[FieldType, list[object]] = {
    FieldType.BOOLEAN: [0, 1, "true", 1.0],
    FieldType.BYTE: [2**7, -(2**7) - 1, True, 1.0, "1", Decimal(1)],
    FieldType.SHORT: [2**15, -(2**15) - 1, False, 1.0, "1"],
    FieldType.INT: [2**31, -(2**31) - 1, True, 1.5, "1"],
    FieldType.LONG: [2**63, -(2**63) - 1, True, 1.0, "1", b"1"],
    FieldType.FLOAT: [True, "1.0", Decimal(1), 1e39, -1e39, 10**400],
    FieldType.DOUBLE: [False, "1.0", Decimal(1), 10**400],
    FieldType.DECIMAL: [
        True,
        10**28,
        -(10**5000),
        1.5,
        "1.5",
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("0.00000000001"),
        Decimal("1E+28"),
        Decimal("99999999999999999999999999999"),
    ],
    FieldType.STRING: [1, b"a", "nul\x00", "\ud800", "a\udfff"],
    FieldType.BYTES: ["a", bytearray(b"a"), 1],
    FieldType.DATE: [dt.datetime(2024, 1, 1), "2024-01-01", 1],
    FieldType.TIMESTAMP: [
        dt.datetime(2024, 1, 1),
        dt.date(2024, 1, 1),
        "2024-01-01",
        0,
        dt.datetime(9999, 12, 31, 23, 30, tzinfo=_LATER),
    ],
    FieldType.TIMESTAMP_NTZ: [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.date(2024, 1, 1), "2024-01-01", 0],
}
"""Values that a field of the type rejects."""


def type_name(kind: object) -> str:
    """Return a type's name, for test ids."""
    return kind.value if isinstance(kind, FieldType) else str(kind)


def item(key: int, **fields: Value) -> Record:
    """Return a whole row of ITEMS; fields that are not given are None."""
    return {"id": key, "n": None, "tag": None, "note": None, "rank": None, "cost": None, **fields}


def grid_rows() -> list[Record]:
    """Return 4 x 4 x 2 rows of GRID, in key order: k1 and k2 from 0 to 3, k3 of "a" and "b"."""
    return [
        {"k1": k1, "k2": k2, "k3": k3, "v": (k1 * k2) % 5, "color": ["red", "green", None][(k1 + k2) % 3]}
        for k1 in range(4)
        for k2 in range(4)
        for k3 in ("a", "b")
    ]


def keys(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return the keys of rows, in their order."""
    return [row.key for row in rows]


def plain(rows: Iterable[Row]) -> list[Record]:
    """Return rows as dictionaries, in their order."""
    return [dict(row) for row in rows]
