"""`HeldSnapshot`: a `SharedSnapshot` whose state is freed when no plan needs it any more."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from structable.spi import ScanPlan, SharedSnapshot, SnapshotHold, TransactionClosedError
from structable.spi.authors import PlanScan


class _Members:
    """The users of a state, which is freed when the last one leaves.

    Nothing waits for a lock: the garbage collector may make a user leave at any moment, in any thread.
    """

    def __init__(self) -> None:
        self._members: set[object] = set()
        self._release: list[Callable[[], None]] = []

    def join(self) -> Callable[[], None]:
        """Return a function to call on leaving; idempotent."""
        member = object()
        self._members.add(member)
        return partial(self._leave, member)

    def hold(self, release: Callable[[], None]) -> None:
        """Set the function that frees the state. The caller must be a member."""
        self._release.append(release)

    def _leave(self, member: object) -> None:
        self._members.discard(member)
        if not self._members:
            try:
                release = self._release.pop()  # atomic: two may be the last at once
            except IndexError:
                return
            release()


class HeldSnapshot(SharedSnapshot):
    """The common part of all stores: counts the users of the state, and makes one plan at a time.

    `keep` is called with every hold that the closing storage must close: this snapshot's own and its plans'.
    `require_open` raises if the storage was closed, or belongs to a process that forked this one.
    """

    def __init__(self, keep: Callable[[SnapshotHold], object], require_open: Callable[[], None]) -> None:
        self._keep = keep
        self._require_open = require_open
        self._members = _Members()
        self._own = SnapshotHold(self._members.join())
        self._planning = threading.RLock()
        keep(self._own)

    @property
    def closed(self) -> bool:
        return self._own.closed

    def close(self) -> None:
        self._own.close()

    def _plan_scan(self, request: PlanScan) -> ScanPlan:
        self._require_open()
        with self._planning:
            # Join first, so that an existing state stays.
            leave = self._members.join()
            try:
                if self._own.closed:
                    raise TransactionClosedError("the shared snapshot was closed: it takes no further plans")
                plan = self._plan(request, partial(_hold, leave))
                self._keep(plan.hold)
            except BaseException:
                leave()
                raise
        return plan

    @abstractmethod
    def _plan(self, request: PlanScan, hold: Callable[[Callable[[], None]], SnapshotHold]) -> ScanPlan:
        """Plan a scan. The first success passes the function that frees the state to `_members.hold`.

        `hold` makes the plan's hold from the function that frees only the plan.
        """


def _hold(leave: Callable[[], None], release: Callable[[], None]) -> SnapshotHold:
    return SnapshotHold(partial(_end, release, leave))


def _end(release: Callable[[], None], leave: Callable[[], None]) -> None:
    try:
        release()
    finally:
        leave()
