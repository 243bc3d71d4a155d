"""Tables and rows that the tests of the command use."""

import datetime as dt
import math
from decimal import Decimal

from structable.spi import Field, TableSpecification, Value

RUNS = TableSpecification(
    "runs",
    fields=[
        Field.string("app"),
        Field.long("started"),
        Field.int("attempt"),
        Field.string("status"),
        Field.double("cost"),
        Field.bytes("payload"),
    ],
    primary_key=["app", "started", "attempt"],
    indexes=["status"],
)
RUNS_ROWS: list[dict[str, Value]] = [
    {"app": "etl", "started": 10, "attempt": 1, "status": "FAILED", "cost": 1.5, "payload": b"\x00\xff"},
    {"app": "etl", "started": 10, "attempt": 2, "status": "RUNNING", "cost": None, "payload": None},
    {"app": "etl", "started": -3, "attempt": 1, "status": None, "cost": 0.25, "payload": b""},
    {"app": "web", "started": 7, "attempt": 1, "status": "RUNNING", "cost": 3.0, "payload": b"x"},
]

EVERYTHING = TableSpecification(
    "everything",
    fields=[
        Field.string("k"),
        Field.boolean("truth"),
        Field.byte("b"),
        Field.short("s"),
        Field.int("i"),
        Field.long("l"),
        Field.float("f"),
        Field.double("d"),
        Field.decimal("money", 20, 4),
        Field.string("text"),
        Field.bytes("raw"),
        Field.date("day"),
        Field.timestamp("at"),
        Field.timestamp_ntz("local"),
    ],
    primary_key=["k"],
    indexes=["l", "text"],
)
NULLS: dict[str, Value] = dict.fromkeys(field.name for field in EVERYTHING.value_fields)
TEXTS = ["", " ", "null", "NULL", "NaN", '"', '""', "a,b", "a\nb", "a\r\nb\r", "\t", "é\u2028\U0001f600", "'", "\\N"]
ROWS: list[dict[str, Value]] = [
    {"k": "all null", **NULLS},
    {
        "k": "least",
        "truth": False,
        "b": -128,
        "s": -(2**15),
        "i": -(2**31),
        "l": -(2**63),
        "f": -3.4028234663852886e38,
        "d": -math.inf,
        "money": Decimal("-9999999999999999.9999"),
        "text": "",
        "raw": b"",
        "day": dt.date.min,
        "at": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        "local": dt.datetime.min,
    },
    {
        "k": "most",
        "truth": True,
        "b": 127,
        "s": 2**15 - 1,
        "i": 2**31 - 1,
        "l": 2**63 - 1,
        "f": 0.10000000149011612,
        "d": math.inf,
        "money": Decimal("0.0001"),
        "text": "ordinary",
        "raw": bytes(range(256)),
        "day": dt.date.max,
        "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        "local": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    },
    {"k": "not a number", **NULLS, "f": math.nan, "d": math.nan, "money": Decimal("0.0000")},
    {"k": "small", **NULLS, "f": 1.401298464324817e-45, "d": 5e-324},
    {"k": "third", **NULLS, "f": 16777216.0, "d": 1 / 3},
    *({"k": f"text {number:02}", **NULLS, "text": text} for number, text in enumerate(TEXTS)),
]
