"""`RunnerScope`: what a runner and its backfills share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .clocks import Clocks
from .history import History
from .lease import RunnerLease
from .throttle import Throttle

__all__ = ["Mapper", "RunnerScope"]

Mapper: TypeAlias = Callable[[Callable[[int], int], Iterable[int]], Iterable[int]]
"""Calls a function with each number, like `map`, in any order, anywhere; the function is picklable."""


@dataclass(frozen=True, slots=True)
class RunnerScope:
    """The state that a runner and its backfills share.

    Parameters
    ----------
    history : History
        The store, which has the state tables.
    folder : Path
        The folder of revisions.
    lease : RunnerLease
        The lease, which is held.
    clocks : Clocks
        The clocks.
    throttle : Throttle
        Limits of backfills.
    mapper : callable or None
        Fills parts elsewhere; None: threads of this process do.
    ended : Event
        Ends the work after the batches that run.
    """

    history: History
    folder: Path
    lease: RunnerLease
    clocks: Clocks
    throttle: Throttle
    mapper: Mapper | None
    ended: threading.Event
