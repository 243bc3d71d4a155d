"""`RowIterator`, the result of a scan, `ScanExplanation`, the path that it would take, and `PlannedScan`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from ._bulk import ScanPlan, ScanSplit
from ._notebooks import html_text
from ._operations import Scan
from ._rows import Row

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class PlannedScan(NamedTuple):
    """A plan of a scan, and the function that reads its splits."""

    plan: ScanPlan
    read_split: Callable[[ScanSplit], Iterator[RecordBatch]]


class _Scanned(Protocol):
    """The table that was scanned."""

    def _location(self) -> str: ...

    def _arrow_schema(self, scan: Scan) -> object: ...

    def _arrow_stream(self, scan: Scan, rows: RowIterator | None, requested_schema: object) -> object: ...


class RowIterator(Iterator[Row], ABC):
    """Rows of one snapshot; close it, leave its `with` block or exhaust it to release its snapshot.

    pandas, Polars, DuckDB and pyarrow read it by Arrow's PyCapsule interface as columns: exactly the requested ones. In
    the auto-commit view this reads the table again, from its first row, at a snapshot of its own that is not older than
    the scan's; in a transaction it takes the rows that are left.

    Raises
    ------
    TransactionClosedError
        From `next`, once the iterator was closed or its transaction ended.
    """

    __slots__ = ("_origin",)
    _origin: tuple[_Scanned, Scan]

    def __arrow_c_schema__(self) -> object:
        table, scan = self._origin
        return table._arrow_schema(scan)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table, scan = self._origin
        return table._arrow_stream(scan, self, requested_schema)

    def __repr__(self) -> str:
        origin = getattr(self, "_origin", None)
        return super().__repr__() if origin is None else f"<scan of table {origin[0]._location()}>"

    @abstractmethod
    def close(self) -> None:
        """Release the snapshot; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ScanExplanation:
    """The path that a scan would take. `str` describes it for people; the fields are for programs.

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

    def _repr_html_(self) -> str:
        return html_text(str(self))
