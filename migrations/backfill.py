"""`Backfill`: the parts of an operation, which are made once, filled by a mapper, and verified."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeAlias

from structable.spi import Range, TableNotFoundError, Transaction, Value

from .batches import INDEX_PART
from .clocks import Clocks
from .errors import MigrationError
from .fills import Fill
from .history import History
from .lease import RunnerLease, check_epoch
from .part_filler import Filling, PartFiller
from .parts import Part, cut
from .throttle import Throttle
from .verification import Verified, verify

__all__ = ["Backfill", "Mapper", "Stopped"]

Mapper: TypeAlias = Callable[[Callable[[int], int], Iterable[int]], Iterable[int]]
"""Calls a function with each number, like `map`, in any order, anywhere; the function is picklable."""


class Stopped(MigrationError):
    """The runner was told to stop; the revision goes on with `resume`."""


class Backfill:
    """Fills tables for a runner.

    Parameters
    ----------
    history : History
        The store.
    lease : RunnerLease
        The runner's.
    clocks : Clocks
        The clocks.
    folder : Path
        The folder of revisions.
    throttle : Throttle
        The limits.
    mapper : callable or None
        Fills parts elsewhere; None: threads of this process do.
    ended : Event
        Ends a fill after the batches that run.
    """

    def __init__(
        self,
        history: History,
        lease: RunnerLease,
        clocks: Clocks,
        folder: Path,
        throttle: Throttle,
        mapper: Mapper | None,
        ended: threading.Event,
    ) -> None:
        self._history = history
        self._storage = history.storage
        self._lease = lease
        self._clocks = clocks
        self._folder = folder
        self._throttle = throttle
        self._mapper = mapper
        self._ended = ended

    def fill(self, revision: int, operation: int, fill: Fill) -> None:
        """Fill what is not filled yet.

        Raises
        ------
        StructableError
            The first error of a part; other parts may have gone further meanwhile.
        """
        parts = self._parts(revision, operation, fill)
        waiting = [number for number, done in parts if not done]
        if not waiting:
            return
        filling = Filling(self._history, fill, self._throttle, self._clocks.clock)
        filling.ended = self._ended
        name = uuid.uuid4().hex
        filler = PartFiller.of(name, filling, revision, operation, self._lease.epoch, self._folder)
        if self._mapper is not None:
            for _ in self._mapper(filler, waiting):
                pass
        elif self._throttle.threads == 1:
            for number in waiting:
                filler(number)
        else:
            self._by_threads(filler, waiting)
        if self._ended.is_set():
            raise Stopped("the runner was stopped")
        left = [number for number, done in self._parts(revision, operation, fill) if not done]
        if left:
            raise MigrationError(
                f"the mapper did not fill {len(left)} parts of table {fill.table!r}; resume to fill them"
            )

    def _by_threads(self, filler: PartFiller, waiting: list[int]) -> None:
        failed = threading.Event()
        with ThreadPoolExecutor(self._throttle.threads, "structable fill") as pool:
            futures = [pool.submit(lambda number: failed.is_set() or filler(number), number) for number in waiting]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                failed.set()
                self._ended.set()
                raise

    def _parts(self, revision: int, operation: int, fill: Fill) -> list[tuple[int, bool]]:
        """Return the parts by number, and whether each is done; they are made first, once."""
        rows = self._storage.run(lambda tx: tasks_of(tx, self._history, revision, operation), read_only=True)
        if rows:
            return rows
        try:
            spec = self._storage.admin.get_specification(fill.table)
        except TableNotFoundError:
            raise MigrationError(f"table {fill.table!r}, which revision {revision} changes, does not exist") from None
        if spec.keyless:
            raise MigrationError(f"table {fill.table!r} has no primary key, by which its rows are changed one by one")
        parts = cut(self._storage, spec)

        def make(tx: Transaction) -> list[tuple[int, bool]]:
            self._lease.hold(tx)
            self._history.tasks(tx).insert_many(
                [_task(revision, operation, number, part, self._clocks.clock()) for number, part in enumerate(parts)]
            )
            return [(number, False) for number in range(len(parts))]

        return self._storage.run(make)

    def verify(self, revision: int, operation: int, fill: Fill) -> Verified:
        """Look at each row, and whether it agrees with its rule.

        Raises
        ------
        VerificationError
            If a row does not.
        """
        parts = self._storage.run(lambda tx: part_keys(tx, self._history, revision, operation), read_only=True)
        epoch = self._lease.epoch
        found = verify(self._storage, fill, parts, lambda tx: check_epoch(tx, self._history, epoch), self._ended)
        if self._ended.is_set():
            raise Stopped("the runner was stopped")
        return found


def _task(revision: int, operation: int, number: int, part: Part, at: dt.datetime) -> dict[str, Value]:
    counts = dict.fromkeys(("seen", "changed", "failed", "conflicts"), 0)
    key: dict[str, Value] = {"revision": revision, "operation": operation, "part": number}
    return {**key, "begin": part.begin, "end": part.end, **counts, "done": False, "updated": at}


def tasks_of(tx: Transaction, history: History, revision: int, operation: int) -> list[tuple[int, bool]]:
    """Return the numbers of the parts of an operation, and whether each is done."""
    with history.tasks(tx).scan(Range.prefix((revision, operation)), columns=["done"]) as rows:
        return [(row.part, bool(row.done)) for row in rows if row.part != INDEX_PART]


def part_keys(tx: Transaction, history: History, revision: int, operation: int) -> list[Part]:
    """Return the parts of an operation."""
    with history.tasks(tx).scan(Range.prefix((revision, operation)), columns=["begin", "end"]) as rows:
        return [Part(row.begin, row.end) for row in rows if row.part != INDEX_PART]
