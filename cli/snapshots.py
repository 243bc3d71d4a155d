"""The rows of one snapshot of a table as batches, by the store's parallel scan if it has one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from structable.spi import Filter, Range, SharedSnapshot, Storage, UnsupportedOperationError

from .scans import chunks

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["snapshot_batches"]

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
        plan = None  # a store of a single process, whose scan is a snapshot as well
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
