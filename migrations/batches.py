"""One batch of a part: a snapshot transaction that changes rows and moves the cursor, so that none is done twice."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from structable.spi import InvalidFieldError, Row, StructableError, StructuredTable, Transaction, Value

from .errors import MigrationError
from .fills import Fill
from .history import History
from .lease import Clock, check_epoch
from .parts import range_of_texts, text_of_key

INDEX_PART = -1
"""The part whose row counts the rows that an index covers while it is built."""
MADE_PART = -2
"""The part whose row lists, as JSON in `begin`, the things that the store lacked before an operation."""
MOST_ROWS = 5_000
MOST_BYTES = 4 * 1024**2
_UPDATED = 500


class TaskKey(NamedTuple):
    """The key of a part's row in the table of tasks."""

    revision: int
    operation: int
    part: int


def task_of(
    key: TaskKey,
    at: dt.datetime,
    *,
    begin: str | None = None,
    end: str | None = None,
    seen: int = 0,
    done: bool = False,
) -> dict[str, Value]:
    """Return the row of a new task."""
    counts = {"seen": seen, "changed": 0, "failed": 0, "conflicts": 0}
    return {**key._asdict(), "begin": begin, "end": end, **counts, "done": done, "updated": at}


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch.

    Parameters
    ----------
    seen, changed, failed : int
        Rows that were read, that were changed, and for which no value fits.
    done : bool
        Whether the part has no further rows.
    opening : float
        The seconds until the transaction could read its first row.
    """

    seen: int
    changed: int
    failed: int
    done: bool
    opening: float = 0.0


def do_batch(
    history: History, key: TaskKey, fill: Fill, *, rows: int, lost: int, epoch: int, clock: Clock
) -> BatchResult:
    """Process the next rows of a part, at most `rows` and 4 MiB, in one transaction.

    Parameters
    ----------
    lost : int
        Rows whose changes conflicts have undone since the last batch, counted with this one.
    epoch : int
        The runner's epoch; nothing is written without its lease.

    Raises
    ------
    TransactionConflictError
        If a user or another runner changed the same rows or part first; nothing was written.
    MigrationError
        If the lease was lost; or with the row's key, if a row cannot be changed.
    """
    begun = time.monotonic()
    with history.storage.transaction() as tx:
        check_epoch(tx, history, epoch)
        tasks = history.tasks(tx)
        task = tasks.read(key)
        if task is None:
            raise MigrationError(f"the store has no part {key.part} of operation {key.operation}; run 'up' again")
        opening = time.monotonic() - begun
        if task.done:
            return BatchResult(0, 0, 0, True, opening)
        batch, cursor = transform(tx, fill, task, rows)
        tasks.update(
            {
                **key._asdict(),
                "cursor": task.cursor if cursor is None else cursor,
                "seen": task.seen + batch.seen,
                "changed": task.changed + batch.changed,
                "failed": task.failed + batch.failed,
                "conflicts": task.conflicts + lost,
                "done": batch.done,
                "updated": clock(),
            }
        )
    return replace(batch, opening=opening)


def transform(tx: Transaction, fill: Fill, task: Row, rows: int) -> tuple[BatchResult, str | None]:
    """Change the next rows of a part in a transaction; return the counts, and the last row's key as a text."""
    table = fill.open(tx)
    spec = table.specification
    part = range_of_texts(spec, task.begin, task.end, task.cursor)
    names = spec.primary_key
    large: list[int] | None = None
    seen = failed = size = 0
    changes: list[dict[str, Value]] = []
    row: Row | None = None
    with fill.scan(table, part, rows) as found:
        for row in found:
            changed, unfit = changed_row(fill, row, names)
            seen += 1
            failed += unfit
            if changed is not None:
                changes.append(changed)
            if large is None:
                large = [place for place, name in enumerate(row) if not spec.field(name).type.width]
            values = row.astuple()
            for place in large:
                value = values[place]
                if isinstance(value, str | bytes):
                    size += len(value)
            if size > MOST_BYTES:
                break
        else:
            size = 0
    for begin in range(0, len(changes), _UPDATED):
        update(fill, table, changes[begin : begin + _UPDATED])
    done = size <= MOST_BYTES and seen < rows
    return BatchResult(seen, len(changes), failed, done), None if row is None else text_of_key(spec, row.key)


def changed_row(fill: Fill, row: Row, key: Sequence[str]) -> tuple[dict[str, Value] | None, bool]:
    """Return the key and changes of a row, or None, and whether no value fits it."""
    try:
        changes, failed = fill.change(row)
    except (Exception, SystemExit) as error:  # whatever the function of a revision raises
        raise refused(fill, row.key, error) from error
    if changes is None:
        return None, failed
    return {**dict(zip(key, row.key, strict=True)), **changes}, failed


def update(fill: Fill, table: StructuredTable, changes: list[dict[str, Value]]) -> None:
    """Change rows; MigrationError with the key of one that cannot have its new values."""
    try:
        table.update_many(changes)
    except InvalidFieldError:
        for one in changes:
            try:
                table.update_many([one])
            except InvalidFieldError as error:
                key = tuple([one[name] for name in table.specification.primary_key])
                raise refused(fill, key, error) from error
        raise


def refused(fill: Fill, key: tuple[Value, ...], error: BaseException) -> MigrationError:
    """Return the error for a row that cannot be changed, with its key."""
    what = str(error) if isinstance(error, StructableError) else f"{type(error).__name__}: {error}"
    return MigrationError(f"table {fill.table!r}, row {key!r}: {what}")
