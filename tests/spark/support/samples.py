"""Tables and rows of the tests."""

import datetime as dt
from decimal import Decimal

from structable.spi import Field, Storage, TableSpecification, Value

RUNS = TableSpecification(
    "runs",
    [Field.string("app"), Field.long("started"), Field.string("status"), Field.double("cost")],
    primary_key=["app", "started"],
    indexes=["status"],
)

EVERYTHING = TableSpecification(
    "everything",
    [
        Field.string("name"),
        Field.long("number"),
        Field.boolean("flag"),
        Field.byte("tiny"),
        Field.short("small"),
        Field.int("medium"),
        Field.long("large"),
        Field.float("single"),
        Field.double("wide"),
        Field.decimal("price", 10, 2),
        Field.decimal("huge", 38, 10),
        Field.string("text"),
        Field.bytes("raw"),
        Field.date("day"),
        Field.timestamp("instant"),
        Field.timestamp_ntz("local"),
    ],
    primary_key=["name", "number"],
    indexes=["medium", "text"],
)

UTC = dt.UTC

ROWS: list[dict[str, Value]] = [
    {
        "name": "",
        "number": -(2**63),
        "flag": False,
        "tiny": -128,
        "small": -(2**15),
        "medium": -(2**31),
        "large": -(2**63),
        "single": float("-inf"),
        "wide": float("-inf"),
        "price": Decimal("-99999999.99"),
        "huge": Decimal("-9999999999999999999999999999.9999999999"),
        "text": "",
        "raw": b"",
        "day": dt.date(1, 1, 1),
        "instant": dt.datetime(1, 1, 1, tzinfo=UTC),
        "local": dt.datetime(1, 1, 1),
    },
    {
        "name": "a",
        "number": -1,
        "flag": True,
        "tiny": 127,
        "small": 2**15 - 1,
        "medium": 2**31 - 1,
        "large": 2**63 - 1,
        "single": float("inf"),
        "wide": float("inf"),
        "price": Decimal("99999999.99"),
        "huge": Decimal("9999999999999999999999999999.9999999999"),
        "text": "z\u00e9\U0001f600",
        "raw": b"\x00\xff\x00",
        "day": dt.date(9999, 12, 31),
        "instant": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    },
    {
        "name": "a",
        "number": 0,
        "flag": True,
        "tiny": 0,
        "small": 0,
        "medium": 0,
        "large": 0,
        "single": 0.0,
        "wide": -0.0,
        "price": Decimal("0.00"),
        "huge": Decimal("0.0000000000"),
        "text": "abc",
        "raw": b"abc",
        "day": dt.date(1582, 10, 10),
        "instant": dt.datetime(1582, 10, 10, 12, tzinfo=UTC),
        "local": dt.datetime(1582, 10, 10, 12),
    },
    {
        "name": "a",
        "number": 1,
        "flag": False,
        "tiny": 1,
        "small": 1,
        "medium": 1,
        "large": 1,
        "single": 0.10000000149011612,
        "wide": 5e-324,
        "price": Decimal("1.50"),
        "huge": Decimal("0.0000000001"),
        "text": "abd\x01",
        "raw": b"abd\x80",
        "day": dt.date(2020, 2, 29),
        "instant": dt.datetime(2020, 2, 29, 8, 30, 15, 123456, UTC),
        "local": dt.datetime(2020, 2, 29, 8, 30, 15, 123456),
    },
    {"name": "b", "number": 7, "single": float("nan"), "wide": float("nan"), "text": "a'b\"c\\d%_"},
    {"name": "\U0001f600", "number": 8, "single": -0.0, "wide": 0.0},
    {"name": "\uffff", "number": 9},
]


def runs(count: int, *, first: int = 0, app: str = "etl") -> list[dict[str, Value]]:
    return [
        {"app": app, "started": number, "status": "OK" if number % 3 else None, "cost": number / 4}
        for number in range(first, first + count)
    ]


def create_runs(storage: Storage, count: int) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(runs(count))
