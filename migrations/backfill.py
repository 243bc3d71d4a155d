"""`Backfill`: the parts of an operation, which are made once, filled by a mapper, and verified."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from structable.spi import Range, Row, Storage, Transaction, Value

from .batches import TaskKey, task_of
from .errors import MigrationError, VerificationError
from .fills import Fill
from .lease import check_epoch
from .part_filler import Filling, PartFiller
from .parts import Part, cut, range_of_texts, text_of_key
from .schema_calls import SchemaCalls
from .scope import RunnerScope, Stopped

_ROWS = 2_000
_SAMPLES = 20


class Backfill:
    """Fills tables for a runner.

    Parameters
    ----------
    scope : RunnerScope
        The state of the runner.
    """

    def __init__(self, scope: RunnerScope) -> None:
        self._scope = scope
        self._history = scope.history
        self._storage = scope.history.storage
        self._lease = scope.lease
        self._ended = scope.ended

    def fill(self, revision: int, operation: int, fill: Fill) -> None:
        """Fill the parts that are not filled yet.

        Raises
        ------
        StructableError
            The first error of a part; other parts may have advanced.
        """
        waiting = self._waiting(revision, operation, fill)
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
        left = self._waiting(revision, operation, fill)
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

    def _waiting(self, revision: int, operation: int, fill: Fill) -> list[int]:
        """Return the numbers of the parts that are not done; create all parts first, once."""
        rows = self._tasks(revision, operation)
        if rows:
            return [row.part for row in rows if not row.done]
        spec = SchemaCalls(self._scope, revision).require(fill.table)
        if spec.keyless:
            raise MigrationError(f"table {fill.table!r} has no primary key, by which rows are filled; make a new table")
        now = self._scope.clocks.clock()
        tasks = [
            task_of(TaskKey(revision, operation, number), now, begin=part.begin, end=part.end)
            for number, part in enumerate(cut(self._storage, spec))
        ]

        def make(tx: Transaction) -> None:
            self._lease.hold(tx)
            self._history.tasks(tx).insert_many(tasks)

        self._storage.run(make)
        return list(range(len(tasks)))

    def _tasks(self, revision: int, operation: int) -> list[Row]:
        """Return the rows of the parts of an operation."""

        def read(tx: Transaction) -> list[Row]:
            part = Range.prefix((revision, operation))
            with self._history.tasks(tx).scan(part, columns=["begin", "end", "done"]) as rows:
                return [row for row in rows if row.part >= 0]

        return self._storage.run(read, read_only=True)

    def verify(self, revision: int, operation: int, fill: Fill) -> None:
        """Check that every row agrees with its rule.

        Raises
        ------
        VerificationError
            If a row does not.
        """
        parts = [Part(row.begin, row.end) for row in self._tasks(revision, operation)]
        epoch = self._lease.epoch
        verify(self._storage, fill, parts, lambda tx: check_epoch(tx, self._history, epoch), self._ended)
        if self._ended.is_set():
            raise Stopped("the runner was stopped")


def verify(
    storage: Storage,
    fill: Fill,
    parts: Iterable[Part],
    check: Callable[[Transaction], None],
    ended: threading.Event,
) -> None:
    """Check all rows of some parts.

    Parameters
    ----------
    check : callable
        Is called in each transaction, and raises if the lease was lost.
    ended : Event
        Ends it early.

    Raises
    ------
    VerificationError
        If a row differs from the rule.
    """
    count = 0
    samples: list[str] = []
    for part in parts:
        cursor: str | None = None
        while not ended.is_set():
            found, cursor = _differing(storage, fill, part, cursor, check)
            count += len(found)
            samples += found[: _SAMPLES - len(samples)]
            if cursor is None:
                break
    if count:
        raise VerificationError(fill.table, fill.verified or "", count, samples)


def _differing(
    storage: Storage, fill: Fill, part: Part, cursor: str | None, check: Callable[[Transaction], None]
) -> tuple[list[str], str | None]:
    """Return the differences in the next rows, and the cursor behind them, or None at the end."""

    def look(tx: Transaction) -> tuple[list[str], str | None]:
        check(tx)
        table = fill.open(tx)
        spec, field = table.specification, fill.verified or ""
        found: list[str] = []
        last: tuple[Value, ...] | None = None
        seen = 0
        with fill.scan(table, range_of_texts(spec, part.begin, part.end, cursor), _ROWS) as rows:
            for row in rows:
                last, changes = row.key, fill.change(row).changes
                seen += 1
                if changes is not None:
                    found.append(f"key {last!r}: stored {row[field]!r}, the rule gives {changes.get(field)!r}")
        return found, None if last is None or seen < _ROWS else text_of_key(spec, last)

    return storage.run(look, read_only=True)
