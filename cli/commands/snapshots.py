"""The rows of a table as batches: from one snapshot, by the store's parallel scan if it has one, or from a log."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from structable.spi import Filter, Range, SharedSnapshot, Storage, TableSpecification, UnsupportedOperationError

from .scans import chunks

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["snapshot_batches", "whole_batches", "whole_count"]

_SPLITS = 32
_ALL = Range.all()


def snapshot_batches(
    storage: Storage,
    table: str,
    columns: Sequence[str],
    *,
    range_: Range = _ALL,
    where: Filter | None = None,
    unordered: bool = False,
    snapshot: SharedSnapshot | None = None,
) -> Generator[tuple[float | None, pa.RecordBatch], None, None]:
    """Yield the batches of one snapshot, each with the fraction read before it, if known; in key order, or in any.

    The generator holds the snapshot: close it.
    """
    try:
        plan = (snapshot or storage).plan_scan(table, range=range_, where=where, columns=columns, splits=_SPLITS)
    except UnsupportedOperationError:
        plan = None  # a single-process store, whose scan is also a snapshot
    if plan is not None:
        with plan:
            if plan.ordered or unordered:
                for number, split in enumerate(plan.splits):
                    for batch in storage.read_split(split):
                        yield number / len(plan.splits), batch
                return
    from structable.spi.arrow import rows_to_batches

    view = storage.table(table)
    with view.scan(range_, where=where, columns=columns) as rows:
        for chunk in chunks(rows):
            for batch in rows_to_batches(view.specification, chunk, columns):
                yield None, batch


def whole_batches(
    storage: Storage, spec: TableSpecification, snapshot: SharedSnapshot | None = None
) -> Generator[tuple[float | None, pa.RecordBatch], None, None]:
    """Yield all rows of a table like `snapshot_batches`, in any order; for a log, the rows in its feed, in order."""
    columns = spec.field_names
    if not spec.table_options.log:
        yield from snapshot_batches(storage, spec.name, columns, unordered=True, snapshot=snapshot)
        return
    plan = storage.changes(spec.name).plan(columns=columns, splits=_SPLITS)
    for number, split in enumerate(plan.splits):
        for batch in storage.read_split(split):
            yield number / len(plan.splits), batch.select(columns)


def whole_count(storage: Storage, spec: TableSpecification) -> int:
    """Return the number of rows of a table; for a log, the number of rows in its feed."""
    if not spec.table_options.log:
        return storage.table(spec.name).count()
    with storage.changes(spec.name).read(columns=spec.field_names[:1]) as changes:
        return sum(1 for _ in changes)
