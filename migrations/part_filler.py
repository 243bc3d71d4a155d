"""`PartFiller`: fills one part to its end, in this process or another one, as mappers call it."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, TransactionConflictError, connect

from . import batches
from .batches import TaskKey
from .errors import MigrationError
from .fills import Fill, fill_of
from .history import History
from .lease import Clock, Clocks
from .throttle import BatchSize, Pace, Throttle

_UNAVAILABLE = 30.0
"""Seconds for which a store may be unreachable before the revision pauses."""
_LONGEST_PAUSE = 1.0


class _Sizes(threading.local):
    """The size of batches that each thread has found best; it carries over from part to part."""

    def __init__(self, rows_per_second: float | None) -> None:
        self.size = BatchSize(rows_per_second)


class Filling:
    """The state shared by the threads of a process that fill one operation.

    Parameters
    ----------
    history : History
        The store.
    fill : Fill
        The effect on rows.
    throttle : Throttle
        The limits.
    clock : callable
        Returns the time.
    """

    def __init__(self, history: History, fill: Fill, throttle: Throttle, clock: Clock) -> None:
        self.history = history
        self.fill = fill
        self.throttle = throttle
        self.clock = clock
        self.pace = Pace(throttle.rows_per_second)
        self.ended = threading.Event()
        self.process = os.getpid()
        self._sizes = _Sizes(throttle.rows_per_second)

    def part(self, key: TaskKey, epoch: int) -> None:
        """Fill a part to its end, unless `ended` is set."""
        size = self._sizes.size
        lost = conflicts = 0
        away: float | None = None
        while not self.ended.is_set():
            begun = time.monotonic()
            try:
                batch = batches.do_batch(
                    self.history, key, self.fill, rows=size.rows, lost=lost, epoch=epoch, clock=self.clock
                )
            except TransactionConflictError as error:
                lost += size.rows
                conflicts += 1
                size.conflicted()
                if conflicts >= self.throttle.max_conflicts:
                    raise MigrationError(
                        f"table {self.fill.table!r}: a batch conflicted {conflicts} times in a row ({error}); resume "
                        "when fewer programs write, or with more max_conflicts"
                    ) from error
                self._pause(conflicts)
            except (StorageUnavailableError, CommitOutcomeUnknownError) as error:
                # The part's cursor shows whether the batch was committed.
                away = begun if away is None else away
                lasting = isinstance(error, StorageUnavailableError) and error.lasting
                if lasting or self.history.storage.closed or time.monotonic() - away > _UNAVAILABLE:
                    raise
                self._pause(8)
            else:
                size.took(batch.seen, time.monotonic() - begun, batch.opening)
                lost = conflicts = 0
                away = None
                self.pace.spend(batch.seen, self.ended)
                if batch.done:
                    return

    def _pause(self, times: int) -> None:
        self.ended.wait(random.uniform(0, min(_LONGEST_PAUSE, 0.002 * 2.0 ** min(times, 10))))


_fillings: weakref.WeakValueDictionary[str, Filling] = weakref.WeakValueDictionary()
"""The fills of this process's runners by name; a fork inherits them, and opens a connection of its own instead."""


@dataclass(frozen=True, slots=True)
class PartFiller:
    """Fills the part of a number; picklable: another process connects to the store by its URL.

    Parameters
    ----------
    name : str
        The name of the runner's `Filling`, which the runner's own process uses.
    url : str
        The store's URL.
    revision, operation : int
        The operation.
    epoch : int
        The runner's epoch.
    throttle : Throttle
        The limits.
    folder : str
        The folder of revisions; functions are imported from its parent first.
    prefix : str
        The prefix of the state tables' names.
    """

    name: str
    url: str
    revision: int
    operation: int
    epoch: int
    throttle: Throttle
    folder: str
    prefix: str

    @classmethod
    def of(cls, name: str, filling: Filling, revision: int, operation: int, epoch: int, folder: Path) -> PartFiller:
        """Return the filler of an operation, whose runner keeps `filling`."""
        _fillings[name] = filling
        return cls(
            name,
            filling.history.storage.url,
            revision,
            operation,
            epoch,
            filling.throttle,
            str(folder),
            filling.history.prefix,
        )

    def __call__(self, part: int) -> int:
        """Fill a part to its end, and return its number."""
        key = TaskKey(self.revision, self.operation, part)
        filling = _fillings.get(self.name)
        if filling is not None and filling.process == os.getpid():
            filling.part(key, self.epoch)
            return part
        with connect(self.url, create=False) as storage:
            if not storage.capabilities.multi_process:
                raise MigrationError(f"{storage.url} lives in one process; it is filled by threads")
            history = History(storage, self.prefix)
            operations = history.require(self.revision).operations
            fill = fill_of(operations.at(self.operation), Path(self.folder))
            assert fill is not None
            Filling(history, fill, self.throttle, Clocks.given(None, time.monotonic).clock).part(key, self.epoch)
        return part
