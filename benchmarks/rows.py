"""The rows of all benchmarks, and a compact raw form of them for the floors.

The key is a string of 12 characters and a long; the values are two strings of 20, a long, an int, a double and a
boolean: 21 and 65 bytes raw. Each host has 100 rows, so that prefixes are meaningful. `status` has 1,000 values in
random order: it is the indexed field, if there is one.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from structable.spi import Field, TableSpecification, Value

BATCH = 1_000
"""Rows per write batch or commit, wherever rows are loaded."""

TABLE = "runs"
Row = dict[str, Value]

_PER_HOST = 100
_STATUSES = 1_000
_FIRST = 1_700_000_000_000
_HEADER = struct.Struct("<qid?HH")
_LONG = struct.Struct(">Q")


def specification(*, index: bool = False) -> TableSpecification:
    """Return the benchmark's table."""
    return TableSpecification(
        TABLE,
        fields=[
            Field.string("host"),
            Field.long("started"),
            Field.string("status"),
            Field.string("path"),
            Field.long("bytes"),
            Field.int("attempts"),
            Field.double("cost"),
            Field.boolean("done"),
        ],
        primary_key=["host", "started"],
        indexes=["status"] if index else [],
    )


def statuses(count: int, seed: int) -> list[str]:
    """Return random values of `status`."""
    chosen = random.Random(seed)
    return [_status(chosen) for _ in range(count)]


def _status(chosen: random.Random) -> str:
    return f"status-{chosen.randrange(_STATUSES):013}"


def make_rows(count: int) -> Iterator[Row]:
    """Yield rows in key order, always the same ones."""
    chosen = random.Random(2013)
    for number in range(count):
        yield {
            "host": f"host-{number // _PER_HOST:07}",
            "started": _FIRST + number,
            "status": _status(chosen),
            "path": f"/var/{chosen.randrange(10**15):015}",
            "bytes": chosen.getrandbits(62),
            "attempts": chosen.getrandbits(31),
            "cost": chosen.random(),
            "done": number % 3 == 0,
        }


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists of `BATCH`."""
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


def row_key(row: Row) -> tuple[Value, ...]:
    """Return the key of a row."""
    return row["host"], row["started"]


def raw_key(row: Row) -> bytes:
    """Return a row's key in a handwritten encoding for LevelDB itself."""
    host, started = row["host"], row["started"]
    assert isinstance(host, str)
    assert isinstance(started, int)
    return host.encode() + b"\0" + _LONG.pack(started + (1 << 63))


def raw_value(row: Row) -> bytes:
    """Return a row's values, likewise."""
    status, path = row["status"], row["path"]
    assert isinstance(status, str)
    assert isinstance(path, str)
    one, other = status.encode(), path.encode()
    return _HEADER.pack(row["bytes"], row["attempts"], row["cost"], row["done"], len(one), len(other)) + one + other


def raw_entry(status: str, key: bytes) -> bytes:
    """Return the key of an index entry, likewise; its value is one byte."""
    return b"i" + status.encode() + b"\0" + key
