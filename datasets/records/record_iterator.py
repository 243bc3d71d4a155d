"""`RecordIterator`, the result of a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from structable.spi import Row, RowIterator

from .annotations import Record

__all__ = ["RecordIterator"]

R = TypeVar("R", bound=Record)


class RecordIterator(Iterator[R], Generic[R]):
    """Records of one snapshot; close it, leave its `with` block or exhaust it to release its snapshot.

    Raises
    ------
    RecordShapeError
        From `next`, for a row that does not fit; the records after it can still be read.
    TransactionClosedError
        From `next`, once the iterator was closed or its transaction ended.
    """

    __slots__ = ("_records", "_rows")

    def __init__(self, rows: RowIterator, decode: Callable[[Row], R]) -> None:
        self._rows = rows
        self._records = map(decode, rows)

    def __iter__(self) -> Iterator[R]:  # so that a loop makes no call of ours for each row
        return self._records

    def __next__(self) -> R:
        return next(self._records)

    def close(self) -> None:
        """Release the snapshot; idempotent."""
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
