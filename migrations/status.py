"""`RevisionStatus`: the progress of a revision, as operators see it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from structable.spi import Finding, FindingLevel, Range, Row, Storage, StructableError, Transaction

from .batches import INDEX_PART, MADE_PART
from .history import History, RevisionRow
from .lease import running_since
from .operations import AddField, Operation, RenameField, Rewrite
from .states import REVISIONS, TASKS, State


@dataclass(frozen=True, slots=True)
class RevisionStatus:
    """A revision in a store.

    Parameters
    ----------
    number : int
        Its number.
    name : str
        Its slug.
    state : State
        Its state.
    resumes : State
        The state itself; for a paused revision, the state that it resumes in.
    seen, changed, failed, conflicts : int
        The numbers of rows that were read, that were changed, that are null because a JSON document has no fitting
        value, and whose changes a conflict undid.
    indexed : int or None
        The number of rows in the index built last, while the revision is not READY.
    total : int or None
        The approximate number of rows to fill; None if it is unknown.
    rate : float or None
        Rows a second.
    runner, error : str or None
        Its runner, and the error that stopped it.
    started, finished : datetime or None
        The times at which it began and became READY or DONE.
    contracts : bool
        Whether its contract removes anything.
    """

    number: int
    name: str
    state: State
    resumes: State
    seen: int = 0
    changed: int = 0
    failed: int = 0
    conflicts: int = 0
    indexed: int | None = None
    total: int | None = None
    rate: float | None = None
    runner: str | None = None
    error: str | None = None
    started: dt.datetime | None = None
    finished: dt.datetime | None = None
    contracts: bool = False

    @property
    def share(self) -> float | None:
        """The share of the rows that is filled, 0 to 1; None if it is unknown, or nothing is filled now."""
        if self.resumes is not State.FILLING or not self.total:
            return None
        return min(1.0, self.seen / self.total)

    @property
    def remaining(self) -> float | None:
        """The approximate number of seconds until the fill ends."""
        if self.share is None or not self.rate or self.total is None:
            return None
        return max(0, self.total - self.seen) / self.rate

    @property
    def progress(self) -> str:
        """The state, and during a fill its share: "FILLING 41 %"."""
        share = "" if self.share is None else f" {int(self.share * 100)} %"
        paused = "PAUSED in " if self.state is State.PAUSED else ""
        return f"{paused}{self.resumes}{share}"

    def to_document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        return {
            "revision": self.number,
            "name": self.name,
            "state": str(self.state),
            "resumes": str(self.resumes) if self.state is State.PAUSED else None,
            "rows": self.seen,
            "total": self.total,
            "changed": self.changed,
            "failed": self.failed,
            "conflicts": self.conflicts,
            "indexed": self.indexed,
            "rows_per_second": self.rate,
            "runner": self.runner,
            "error": self.error,
            "started": None if self.started is None else self.started.isoformat(),
            "finished": None if self.finished is None else self.finished.isoformat(),
        }


def status_of(history: History, row: RevisionRow) -> RevisionStatus:
    """Return the status of a revision that has begun."""

    def counted(tx: Transaction) -> tuple[list[Row], dt.datetime | None]:
        return [one for one in history.tasks_of(tx, row.number) if one.part != MADE_PART], running_since(tx, history)

    found, since = history.storage.run(counted, read_only=True)
    tasks = [one for one in found if one.part != INDEX_PART]
    indexes = [one for one in found if one.part == INDEX_PART]
    seen = sum(one.seen for one in tasks)
    rate = None
    if row.started is not None and row.resumes is State.FILLING:
        # A runner of before may have ended long ago. The parts that it left unfinished, one a thread, count whole.
        begun = max(row.started, since or row.started)
        recent = [one for one in tasks if one.updated >= begun]
        seconds = (max(one.updated for one in recent) - begun).total_seconds() if recent else 0
        rate = (sum(one.seen for one in recent) / seconds or None) if seconds > 0 else None
    return RevisionStatus(
        row.number,
        row.name,
        row.state,
        row.resumes,
        seen,
        sum(one.changed for one in tasks),
        sum(one.failed for one in tasks),
        sum(one.conflicts for one in tasks),
        max(indexes, key=lambda one: one.updated).seen if indexes and not row.resumes.ready else None,
        _total(history.storage, row) if row.resumes is State.FILLING else None,
        rate,
        row.runner,
        row.error,
        row.started,
        row.finished,
        bool(row.operations.contracts),
    )


def _total(storage: Storage, row: RevisionRow) -> int | None:
    filled = [table for table in map(_filled_table, row.operations.up) if table is not None]
    try:
        return sum(storage.statistics(table).rows for table in filled)
    except StructableError:
        return None


def _filled_table(operation: Operation) -> str | None:
    match operation:
        case RenameField(table) | Rewrite(table):
            return table
        case AddField(table, derive=derive, default=default) if derive is not None or default is not None:
            return table
    return None


def filled_share(tx: Transaction, table: str, field: str) -> float | None:
    """Return the share of a table's parts in which a derived field is filled; None if no revision fills it."""
    with tx.table(REVISIONS.name).scan() as rows:
        unfinished = [row for row in map(RevisionRow.of, rows) if not row.resumes.ready]
    for row in unfinished:
        for position, operation in enumerate(row.operations.up):
            if isinstance(operation, AddField) and (operation.table, operation.field.name) == (table, field):
                with tx.table(TASKS.name).scan(Range.prefix((row.number, position)), columns=["done"]) as tasks:
                    done = [bool(one.done) for one in tasks if one.part >= 0]
                return sum(done) / len(done) if done else 0.0
    return None


def paused_revisions(storage: Storage) -> Iterator[Finding]:
    """Yield the paused revisions for `doctor`, by the state tables found in the store, whichever package made them."""
    for name in storage.admin.list():
        if not (name.startswith("structable_") and name.endswith("revisions")):
            continue
        resume = "'structable migrate resume'" if name == REVISIONS.name else "the command again that began it"
        with storage.table(name).scan(columns=["name", "state", "error"]) as rows:
            for row in rows:
                if row.state == "PAUSED":
                    text = f"{row.name} is paused: {row.error}; mend that, then run {resume}"
                    yield Finding(FindingLevel.PROBLEM, f"revision {row.revision}", text)
