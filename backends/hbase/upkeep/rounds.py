"""A round of the janitor: how long cells have been unchanged, the work that was found, and the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from structable.backends.hbase.txn.status import Status


class LastSeen:
    """The last known content of other processes' cells, and how long it has been unchanged by this process's clock."""

    def __init__(self) -> None:
        self._cells: dict[bytes, tuple[bytes, float]] = {}
        self._before: dict[bytes, tuple[bytes, float]] = {}

    def unchanged_for(self, name: bytes, content: bytes) -> float:
        """Return how many seconds a cell has had this content."""
        now = time.monotonic()
        # A round moves cells from one mapping to the other, so that the many cells are not in memory twice.
        seen = self._before.pop(name, None) or self._cells.get(name)
        if seen is None or seen[0] != content:
            seen = content, now
        self._cells[name] = seen
        return now - seen[1]

    @contextmanager
    def round(self) -> Iterator[None]:
        """Look at all existing cells in the `with` block; cells not seen in it are forgotten after it."""
        self._before, self._cells = self._cells, {}
        try:
            yield
        except BaseException:
            self._cells |= self._before
            raise
        finally:
            self._before = {}


@dataclass(slots=True)
class RoundReport:
    """The findings and actions of a round."""

    # Records by state, as found
    pending: int = 0
    aborted: int = 0
    unfinalised: int = 0
    finalised: int = 0
    # Live processes, processes declared dead, pinned snapshots
    sessions: int = 0
    dead_sessions: int = 0
    plans: int = 0
    clock: int = 0  # the newest timestamp
    safe: int = 0  # the oldest timestamp that can still be read
    repaired: int = 0  # transactions of other processes aborted or finalised
    removed: int = 0  # records removed with the versions they replaced


@dataclass(slots=True)
class RoundWork:
    """The work of a round; most records only wait for their time and are not in it."""

    least: int  # the smallest timestamp at which any process may still read or above which it may commit
    pending: list[bytes] = field(default_factory=list)  # transactions with an expired lease, as in `unfinalised`
    unfinalised: list[tuple[bytes, Status]] = field(default_factory=list)
    replacing: list[tuple[int, bytes]] = field(default_factory=list)
    """Commit timestamp and id of each transaction whose replaced versions may be removed."""
    first: int = 2**64  # the smallest commit timestamp that must wait; all later commits wait for it
    aborted: list[bytes] = field(default_factory=list)  # aborted transactions whose writes can no longer arrive
