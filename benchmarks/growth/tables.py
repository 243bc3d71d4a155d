"""The tables that grow: one with an index whose values have ten rows each, and one with a change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from structable.spi import Field, Storage, TableSpecification, WriteMode
from structable.spi.arrow import arrow_schema

GROWN = TableSpecification(
    "grown",
    fields=[Field.long("id"), Field.string("text"), Field.long("group"), Field.long("number")],
    primary_key=["id"],
    indexes=["group"],
)
FED = TableSpecification(
    "fed",
    fields=[Field.long("id"), Field.long("number")],
    primary_key=["id"],
    options={"changelog-producer": "lookup"},
)

ALIKE = 10
"""Rows of one value of the index; their keys lie far apart."""
_STEP = 7_919
_CHANGED = 10  # of so many rows one is in the table with the feed
_BATCH = 10_000


def groups_of(rows: int) -> int:
    """Return the number of values in the index."""
    return rows // ALIKE


def changes_of(rows: int) -> int:
    """Return the number of rows, and of changes, in the table with the feed."""
    return rows // _CHANGED


def load(storage: Storage, rows: int) -> None:
    """Create both tables and fill them, one write job each."""
    for spec, mode, batches in ((GROWN, WriteMode.OVERWRITE, _grown(rows)), (FED, WriteMode.INSERT, _fed(rows))):
        storage.admin.create(spec)
        job = storage.begin_write(spec.name, mode=mode, job_id=f"load {spec.name}")
        storage.commit_write(job, [storage.stage(job, 0, 0, batches)])


def rows_of(rows: int) -> Iterator[tuple[int, str, int, int]]:
    """Yield the rows of the table with the index."""
    groups = groups_of(rows)
    return ((number, f"{number * _STEP:040}", number * _STEP % groups, number) for number in range(rows))


def _grown(rows: int) -> Iterator[pa.RecordBatch]:
    found = rows_of(rows)
    while some := list(islice(found, _BATCH)):
        yield _batch(GROWN, list(zip(*some, strict=True)))


def _fed(rows: int) -> Iterator[pa.RecordBatch]:
    for some in _numbers(changes_of(rows)):
        yield _batch(FED, [some, some])


def _numbers(count: int) -> Iterator[range]:
    for begin in range(0, count, _BATCH):
        yield range(begin, min(begin + _BATCH, count))


def _batch(spec: TableSpecification, columns: Sequence[Sequence[int | str]]) -> pa.RecordBatch:
    schema = arrow_schema(spec)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
