"""The table of counters, whose merges commute, and its rows."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rows import Row, make_rows
from structable.spi import Field, TableSpecification

AREA = "merges"
PLAIN = TableSpecification(
    "plain",
    [
        Field.string("host"),
        Field.long("started"),
        Field.long("bytes"),
        Field.int("attempts"),
        Field.double("cost"),
        Field.boolean("done"),
    ],
    ["host", "started"],
)
"""A table of the same fields without a merge engine."""

COUNTERS = PLAIN.evolve(
    name="counters",
    options={
        "merge-engine": "aggregation",
        "fields.bytes.aggregate-function": "sum",
        "fields.attempts.aggregate-function": "count",
        "fields.cost.aggregate-function": "max",
        "fields.done.aggregate-function": "bool_or",
    },
)


def make_counters(count: int) -> Iterator[Row]:
    """Yield rows in key order, whose sums fit however often they are merged."""
    for row in make_rows(count):
        number = row["bytes"]
        assert isinstance(number, int)
        yield {**{name: row[name] for name in PLAIN.field_names}, "bytes": number >> 22, "attempts": 1}
