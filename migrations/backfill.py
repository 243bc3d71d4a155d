"""`Backfill`: the parts of an operation, which are made once, filled by a mapper, and verified."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from structable.spi import Range, TableNotFoundError, Transaction

from .batches import TaskKey, task_of
from .errors import MigrationError
from .fills import Fill
from .history import History
from .lease import check_epoch
from .part_filler import Filling, PartFiller
from .parts import Part, cut
from .runner_scope import RunnerScope
from .verification import Verified, verify

__all__ = ["Backfill", "Stopped"]


class Stopped(MigrationError):
    """The runner was stopped; the revision goes on with `resume`."""


class Backfill:
    """Fills tables for a runner.

    Parameters
    ----------
    scope : RunnerScope
        What it works with.
    """

    def __init__(self, scope: RunnerScope) -> None:
        self._scope = scope
        self._history = scope.history
        self._storage = scope.history.storage
        self._lease = scope.lease
        self._ended = scope.ended

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
        filling = Filling(self._history, fill, self._scope.throttle, self._scope.clocks.clock)
        filling.ended = self._ended
        name = uuid.uuid4().hex
        filler = PartFiller.of(name, filling, revision, operation, self._lease.epoch, self._scope.folder)
        if self._scope.mapper is not None:
            for _ in self._scope.mapper(filler, waiting):
                pass
        elif min(self._scope.throttle.threads, len(waiting)) == 1:
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
        with ThreadPoolExecutor(self._scope.throttle.threads, "structable fill") as pool:
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
            raise MigrationError(
                f"table {fill.table!r}, which revision {revision} changes, does not exist; create it before"
            ) from None
        if spec.keyless:
            raise MigrationError(f"table {fill.table!r} has no primary key, by which rows are filled; make a new table")
        parts = cut(self._storage, spec)
        now = self._scope.clocks.clock()
        tasks = [
            task_of(TaskKey(revision, operation, number), now, begin=part.begin, end=part.end)
            for number, part in enumerate(parts)
        ]

        def make(tx: Transaction) -> list[tuple[int, bool]]:
            self._lease.hold(tx)
            self._history.tasks(tx).insert_many(tasks)
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


def tasks_of(tx: Transaction, history: History, revision: int, operation: int) -> list[tuple[int, bool]]:
    """Return the numbers of the parts of an operation, and whether each is done."""
    with history.tasks(tx).scan(Range.prefix((revision, operation)), columns=["done"]) as rows:
        return [(row.part, bool(row.done)) for row in rows if row.part >= 0]


def part_keys(tx: Transaction, history: History, revision: int, operation: int) -> list[Part]:
    """Return the parts of an operation."""
    with history.tasks(tx).scan(Range.prefix((revision, operation)), columns=["begin", "end"]) as rows:
        return [Part(row.begin, row.end) for row in rows if row.part >= 0]
