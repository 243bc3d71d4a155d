"""`History`: the revisions that a store knows, how their states change, and the tables that keep them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from structable.spi import (
    Range,
    Row,
    Storage,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    Transaction,
    Value,
)

from .errors import MigrationError
from .folder import Revision
from .operations import RevisionOperations, What, added, taken
from .states import CLIENTS, DEFAULT_PREFIX, LEASE, REVISIONS, STATE_TABLES, TASKS, State

MINIMUM = ("", "minimum")
"""The key, in the table of clients, of the oldest revision that is still served; each announcement writes it."""


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A revision as the store knows it.

    Parameters
    ----------
    number : int
        Its number.
    name, digest : str
        Its slug, and the digest of its operations.
    state : State
        Its state.
    resumes : State
        The state itself; for a paused revision, the state that it resumes in.
    runner, error : str or None
        Its last runner, and the error that stopped it.
    started, finished : datetime or None
        The times at which it began and became READY or DONE.
    text : str
        Its operations, as they were stored.
    """

    number: int
    name: str
    digest: str
    state: State
    resumes: State
    runner: str | None
    error: str | None
    started: dt.datetime | None
    finished: dt.datetime | None
    text: str

    @property
    def operations(self) -> RevisionOperations:
        """The operations of the revision."""
        return RevisionOperations.from_text(self.text)

    @classmethod
    def of(cls, row: Row) -> RevisionRow:
        """Return the revision of a row of the store."""
        state = State(row.state)
        resumes = state if row.resumes is None else State(row.resumes)
        return cls(
            row.revision,
            row.name,
            row.digest,
            state,
            resumes,
            row.runner,
            row.error,
            row.started,
            row.finished,
            row.operations,
        )


class History:
    """The revisions of one folder in a store. Methods that take a transaction work in it.

    Parameters
    ----------
    storage : Storage
        The store.
    prefix : str
        The prefix of its tables' names; each folder whose tables are in the store needs its own.
    """

    def __init__(self, storage: Storage, prefix: str = DEFAULT_PREFIX) -> None:
        self.storage = storage
        self.prefix = prefix

    def create(self) -> None:
        """Make the tables that the store lacks."""
        for table in STATE_TABLES:
            self.storage.admin.create_or_update(table.evolve(name=self._name(table)))

    @property
    def exists(self) -> bool:
        """Whether the store has all tables."""
        return all(self.storage.admin.exists(self._name(table)) for table in STATE_TABLES)

    def _name(self, table: TableSpecification) -> str:
        return self.prefix + table.name.removeprefix(DEFAULT_PREFIX)

    def revisions(self, tx: Transaction) -> StructuredTable:
        """Return the table of revisions."""
        return tx.table(self._name(REVISIONS))

    def tasks(self, tx: Transaction) -> StructuredTable:
        """Return the table of parts that are filled."""
        return tx.table(self._name(TASKS))

    def clients(self, tx: Transaction) -> StructuredTable:
        """Return the table of programs."""
        return tx.table(self._name(CLIENTS))

    def lease(self, tx: Transaction) -> StructuredTable:
        """Return the table of the runner's lease."""
        return tx.table(self._name(LEASE))

    def all(self) -> dict[int, RevisionRow]:
        """Return all revisions by number, in a transaction of its own; empty for a store without the tables."""
        try:
            return self.storage.run(self.all_in, read_only=True)
        except TableNotFoundError:
            return {}

    def all_in(self, tx: Transaction) -> dict[int, RevisionRow]:
        """Return all revisions by number."""
        with self.revisions(tx).scan() as rows:
            return {row.revision: RevisionRow.of(row) for row in rows}

    def require(self, number: int) -> RevisionRow:
        """Return a revision, in a transaction of its own.

        Raises
        ------
        MigrationError
            If it has not begun.
        """
        row = self.all().get(number)
        if row is None:
            raise MigrationError(f"revision {number} has not begun in this store; run 'structable migrate up'")
        return row

    def tasks_of(self, tx: Transaction, number: int) -> list[Row]:
        """Return the tasks of a revision."""
        with self.tasks(tx).scan(Range.prefix((number,))) as rows:
            return list(rows)

    def begin(self, tx: Transaction, revision: Revision, runner: str | None, at: dt.datetime, state: State) -> None:
        """Store a revision's operations, and its first state."""
        self.revisions(tx).replace(
            {
                "revision": revision.number,
                "name": revision.name,
                "digest": revision.operations.digest,
                "operations": revision.operations.to_text(),
                "state": state,
                "runner": runner,
                "started": at,
                "finished": at if state is State.DONE else None,
            }
        )

    def move(
        self,
        tx: Transaction,
        number: int,
        state: State,
        *,
        runner: str | None,
        at: dt.datetime,
        resumes: State | None = None,
        error: str | None = None,
    ) -> None:
        """Give a revision another state."""
        changes: dict[str, Value] = {
            "revision": number,
            "state": state,
            "resumes": resumes,
            "runner": runner,
            "error": error,
        }
        if state in (State.READY, State.DONE):
            changes["finished"] = at
        self.revisions(tx).update(changes)

    def minimum(self, tx: Transaction) -> int:
        """Return the oldest revision whose programs may run: the newest contracted one, or 0."""
        row = self.clients(tx).read(MINIMUM)
        return 0 if row is None else int(row.revision)

    def set_minimum(self, tx: Transaction, revision: int) -> None:
        """Set the oldest revision whose programs may run; conflicts with each announcement of a program."""
        self.clients(tx).upsert({"application": MINIMUM[0], "instance": MINIMUM[1], "revision": revision})

    def contracted(self, tx: Transaction) -> int:
        """Return the newest revision whose contract has begun to remove something, or 0."""
        begun = (State.CONTRACTING, State.DONE)
        found = (one.number for one in self.all_in(tx).values() if one.state in begun and one.operations.contracts)
        return max(found, default=0)


def added_after(rows: Mapping[int, RevisionRow], number: int) -> set[What]:
    """Return what later revisions that have begun add; an earlier revision that drops such a name keeps it."""
    later = (row for row in rows.values() if row.number > number and row.state is not State.PENDING)
    return {what for row in later for operation in row.operations.up for what in added(operation)}


def taken_before(rows: Mapping[int, RevisionRow], number: int) -> dict[What, int]:
    """Return the things that contracts of earlier revisions took away and none of these revisions added again."""
    gone: dict[What, int] = {}
    for row in sorted(rows.values(), key=lambda row: row.number):
        if row.number < number and row.state is not State.PENDING:
            operations = row.operations
            for operation in operations.up:
                for what in added(operation):
                    gone.pop(what, None)
            if row.state in (State.CONTRACTING, State.DONE):
                gone.update((what, row.number) for operation in operations.contracts for what in taken(operation))
    return gone
