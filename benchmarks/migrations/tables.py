"""The table and the revision that are measured: the field `n` of a JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from structable.migrations.backfill import Backfill
from structable.migrations.fills import Fill
from structable.spi import Field, Storage, TableSpecification

AREA = "migrations"
TABLE = TableSpecification("documents", [Field.long("id"), Field.string("body"), Field.long("hits")], ["id"])
_BATCH = 5_000


def document(number: int) -> str:
    """Return the document of a row."""
    return json.dumps({"n": number * 3, "name": f"customer {number}", "tags": ["a", "b"]})


def make(storage: Storage, count: int) -> None:
    """Drop the table and make it again."""
    storage.admin.drop(TABLE.name)
    for table in ("revisions", "tasks", "clients", "lease"):
        storage.admin.drop(f"structable_{table}")
    storage.admin.create(TABLE)
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(count, begin + _BATCH))
        storage.table(TABLE.name).upsert_many({"id": one, "body": document(one), "hits": 0} for one in numbers)


def revision(folder: Path) -> Path:
    """Write the revision, once, and return its folder."""
    path = folder / "revisions"
    path.mkdir(exist_ok=True)
    (path / "0001_n.py").write_text(
        'def up(op):\n    n = op.json_field(("n",), "long")\n'
        '    op.add_field("documents", op.long("n"), derive=n, source="body")\n'
    )
    return path


@contextmanager
def fills_timed() -> Iterator[list[float]]:
    """Yield the seconds that each fill takes while the block runs, without what comes before and after it."""
    seconds: list[float] = []
    original = Backfill.fill

    def timed(self: Backfill, revision: int, operation: int, fill: Fill) -> None:
        begun = perf_counter()
        original(self, revision, operation, fill)
        seconds.append(perf_counter() - begun)

    Backfill.fill = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Backfill.fill = original  # type: ignore[method-assign]
