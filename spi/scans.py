"""`RowIterator`, the result of a scan, and `ScanExplanation`, the path that a scan would take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from .rows import Row

__all__ = ["RowIterator", "ScanExplanation"]


class RowIterator(Iterator[Row], ABC):
    """Rows of one snapshot; close it, leave its `with` block or exhaust it to release its snapshot.

    Raises
    ------
    TransactionClosedError
        From `next`, once the iterator was closed or its transaction ended.
    """

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release the snapshot; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ScanExplanation:
    """How a scan would run. `str` names the path for people; the fields are for programs.

    Parameters
    ----------
    table : str
        The table.
    path : str
        "empty", "key lookup", "key range scan", "index scan" or "full scan".
    index : str or None
        The indexed field that an index scan reads.
    interval : str
        The interval of the key or of the index that is read, for people.
    pushed_down : str or None
        The part of the filter that the path itself answers.
    residual : str or None
        The part of the filter that is evaluated on each row that was read.
    order : str
        The source of the order: "by the path", or "sorted in memory by ...".
    notes : tuple of str
        Further remarks of the backend.
    """

    table: str
    path: str
    index: str | None = None
    interval: str = ""
    pushed_down: str | None = None
    residual: str | None = None
    order: str = "by the path"
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" on {self.index}" if self.index else ""
        lines = [f"{self.path}{where} of {self.table}" + (f", {self.interval}" if self.interval else "")]
        if self.pushed_down:
            lines.append(f"  pushed down: {self.pushed_down}")
        if self.residual:
            lines.append(f"  evaluated on each row: {self.residual}")
        lines.append(f"  order: {self.order}")
        lines.extend(f"  {note}" for note in self.notes)
        return "\n".join(lines)
