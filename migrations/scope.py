"""`RunnerScope`: the state that a runner, its schema changes and its backfills share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .errors import MigrationError
from .history import History
from .lease import Clocks, RunnerLease, check_epoch
from .throttle import Throttle

Mapper: TypeAlias = Callable[[Callable[[int], int], Iterable[int]], Iterable[int]]
"""Calls a function with each number, like `map`, in any order, anywhere; the function is picklable."""


@dataclass(frozen=True, slots=True)
class RunnerScope:
    """The state that a runner, its schema changes and its backfills share.

    Parameters
    ----------
    history : History
        The store, which has the state tables.
    folder : Path
        The folder of revisions.
    lease : RunnerLease
        The held lease.
    clocks : Clocks
        The clocks.
    throttle : Throttle
        Limits of backfills.
    mapper : callable or None
        Fills parts elsewhere; None: threads of this process fill them.
    ended : Event
        Ends the work after the running batches.
    """

    history: History
    folder: Path
    lease: RunnerLease
    clocks: Clocks
    throttle: Throttle
    mapper: Mapper | None
    ended: threading.Event

    def check(self) -> None:
        """Check before a change of tables, which cannot check it, that the lease is held and no stop was requested.

        Raises
        ------
        MigrationError
            If the lease was lost, or a stop was requested.
        """
        if self.ended.is_set():
            raise Stopped("the runner was stopped")
        self.history.storage.run(lambda tx: check_epoch(tx, self.history, self.lease.epoch), read_only=True)


class Stopped(MigrationError):
    """The runner was stopped; `resume` continues the revision."""
