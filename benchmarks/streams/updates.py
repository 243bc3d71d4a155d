"""The partial updates that are measured on every store."""

from __future__ import annotations

import random

from benchmarks.measuring import Scale
from benchmarks.rows import Row, make_rows

AREA = "streams"
_MANY = 1_000


def chosen_updates(chance: random.Random, scale: Scale) -> list[Row]:
    """Return new values of two fields of 1,000 rows of the table, in random order."""
    rows = list(make_rows(scale.rows))
    return [
        {
            "host": row["host"],
            "started": row["started"],
            "bytes": chance.getrandbits(40),
            "attempts": chance.randint(0, 99),
        }
        for row in chance.sample(rows, min(_MANY, len(rows)))
    ]
