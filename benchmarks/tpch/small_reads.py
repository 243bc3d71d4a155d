"""Queries that need a few rows of a large table: how much longer they take than one that reads none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.measuring import Measurement

from .contests import AREA, timed

_EMPTY = "select id from range(0, 1, 1, 1)"
_LEAST = 0.001
"""A lower bound of a query's milliseconds: on a busy machine a query can end before the empty one."""


def small_reads(
    store: str, session: SparkSession, files: Path, rounds: int, *, goal: float | None = None
) -> Iterator[Measurement]:
    """Measure a row by its key, and ten rows, in milliseconds above a query of one task that reads no store."""
    keys = pq.read_table(files / "orders.parquet", columns=["o_orderkey"]).column(0)
    key = keys[len(keys) // 2].as_py()
    texts = {
        f"row by its key, {store}": (f"select * from orders where o_orderkey = {key}", 1),
        f"limit 10, {store}": ("select * from lineitem limit 10", 10),
    }
    for name, (text, wanted) in texts.items():
        above = []
        for _ in range(1 + rounds):
            empty, _rows = timed(session, _EMPTY)
            mine, rows = timed(session, text)
            assert rows == wanted
            above.append(max((mine - empty) / 1e3, _LEAST))
        above = above[1:]
        middle, spread = median(above), (max(above) - min(above)) / median(above)
        against = "what it takes above an empty query"
        yield Measurement(AREA, name, float("nan"), middle, middle, goal, spread, against, unit="ms")
