"""Writes of a table with a derived field, compared with a table without one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Round, Scale, compare
from structable.spi import Derived, Field, JsonField, Storage, Value, connect

from .tables import AREA, TABLE, document


def measure(url: str, scale: Scale) -> Iterator[Measurement]:
    """Measure upserts of documents in transactions of their own."""
    plain = TABLE.evolve(name="plain", fields=[*TABLE.fields, Field.long("n")])
    derived = plain.evolve(name="derived", rules=[Derived("n", "body", JsonField(("n",), "long"), ready=True)])
    with connect(url) as storage:
        storage.admin.create(plain)
        storage.admin.create(derived)
        contender = Contender("upsert of a table with a JsonField, LevelDB", _upserts(storage, "derived", scale), 1.6)
        floor = _upserts(storage, "plain", scale)
        yield from compare(AREA, "the same without a rule, n left out", floor, [contender], scale.rounds)


def _upserts(storage: Storage, table: str, scale: Scale) -> Round:
    dice = random.Random(7)
    rows: list[dict[str, Value]] = [
        {"id": number, "body": document(number)}
        for number in (dice.randrange(scale.rows) for _ in range(scale.samples // 4))
    ]

    def work() -> float:
        view = storage.table(table)
        begun = perf_counter()
        for row in rows:
            view.upsert(row)
        return (perf_counter() - begun) / len(rows)

    return work
