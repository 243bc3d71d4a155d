"""`SharedSnapshot`: plans of several tables that see one state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from ._aggregates import Aggregation
from ._bulk import ScanPlan
from ._filters import Filter
from ._operations import PlanScan, consumed
from ._ranges import Range

_ALL = Range()


class SharedSnapshot(ABC):
    """One state of all tables, from which any number of scans are planned: a commit is visible to all or to none.

    The first plan takes the snapshot; before that, or if the first plan fails, nothing is held. The snapshot is freed
    once it and all its plans are closed: by `close`, at the end of the `with` block, or when it is collected. Closing
    the storage closes the snapshot and its plans. Safe to share between threads, which plan one after the other.
    """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the snapshot takes no further plans; those that it has may be open."""

    def plan_scan(
        self,
        table: str,
        *,
        range: Range = _ALL,
        where: Filter | None = None,
        columns: Iterable[str] | None = None,
        splits: int = 1,
        aggregate: Aggregation | None = None,
    ) -> ScanPlan:
        """Divide a scan of the snapshot, with the arguments and errors of `Storage.plan_scan`.

        The plan is closed as any other; that frees the snapshot only if it was the last to need it. Until then, copies
        of a closed plan's splits in other processes may be readable, and a schema change of the table may wait.

        Raises
        ------
        TransactionClosedError
            If the snapshot was closed.
        TransactionConflictError
            If the table was created, changed or dropped since the snapshot was taken, or the store has lost the
            snapshot: a new one is needed. Nothing was planned, and the open plans stay. No plan sees a newer state.
            Rows that were written since, even by a job of mode overwrite, are not a conflict.
        """
        return self._plan_scan(PlanScan(table, range, where, consumed(columns), splits, aggregate))

    @abstractmethod
    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        """Implement `plan_scan`."""

    @abstractmethod
    def close(self) -> None:
        """Take no further plans, and leave the open ones as they are; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
