"""Counts the different keys of a file, that is, the rows that a job writes: two lines may share a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structable.spi import TableSpecification

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeyCount"]

_BYTES = 64 * 1024 * 1024


class KeyCount:
    """Counts rows, and different keys as long as they fit in 64 MiB."""

    def __init__(self, spec: TableSpecification) -> None:
        self._key = list(spec.primary_key)
        self._batches: list[pa.RecordBatch] | None = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch, which holds all key columns."""
        self.rows += batch.num_rows
        if self._batches is not None:
            keys = batch.select(self._key)
            self._bytes += keys.nbytes
            self._batches.append(keys)
            if self._bytes > _BYTES:
                self._batches = None

    def different(self) -> int | None:
        """Return the number of different keys; None if there are too many to compare."""
        import pyarrow as pa

        if self._batches is None:
            return None
        return pa.Table.from_batches(self._batches).group_by(self._key).aggregate([]).num_rows if self._batches else 0
