"""`Migrator`: takes a store through the revisions of a folder."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from structable.spi import Storage, StructableError, Transaction

from .errors import IrreversibleError, MigrationError, RevisionChangedError
from .folder import Folder, Revision
from .history import History, RevisionRow, added_after
from .lease import ENDING, Clock, Clocks, Monotonic, RunnerLease, owner_name, take_away
from .operations import Operation, needed, taken
from .plans import PlannedRevision, planned, rehearse
from .runner import Background, Runner
from .schema import require_no_older
from .scope import Mapper, RunnerScope
from .states import DEFAULT_PREFIX, State
from .status import RevisionStatus, status_of
from .steps import check_reversible
from .throttle import Throttle


class Migrator:
    """The revisions of a folder, and a store that follows them. Safe to share between threads.

    Parameters
    ----------
    storage : Storage
        The store.
    folder : str, Path or Folder
        The folder of revisions.
    parallel : callable, optional
        Fills the parts of tables in parallel, called like `map`; `structable.spark_bridge.spark_map(spark)` is one.
    clock : callable, optional
        Returns the time, an aware datetime; UTC now, if not given.
    monotonic : callable
        Returns seconds that never go back; the clock for leases, and for the beats of programs.
    prefix : str
        The prefix of the state tables' names; each folder of a store needs its own.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str | Path | Folder,
        *,
        parallel: Mapper | None = None,
        clock: Clock | None = None,
        monotonic: Monotonic = time.monotonic,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self.storage = storage
        self.folder = folder if isinstance(folder, Folder) else Folder(folder)
        self._mapper = parallel
        self._clocks = Clocks.given(clock, monotonic)
        self._history = History(storage, prefix)

    def plan(self, to: int | None = None) -> list[PlannedRevision]:
        """Return what `up` would do: operations, locks, rows and warnings. It changes nothing.

        Raises
        ------
        RevisionError, RevisionChangedError
            If the folder breaks a rule, or a script has changed since it began.
        """
        revisions, rows = self._known()
        return [
            planned(self.storage, one)
            for one in self._until(revisions, to)
            if one.number not in rows or not rows[one.number].state.ready
        ]

    def rehearse(self, to: int | None = None) -> list[str]:
        """Transform up to 1,000 rows of each table that `up` would fill, roll back, and return the results."""
        revisions, rows = self._known()
        found: list[str] = []
        before: list[Operation] = []
        for one in self._until(revisions, to):
            if one.number not in rows or not rows[one.number].state.ready:
                found += rehearse(self.storage, one, self.folder.path, before)
                before += one.operations.up
        return found

    def up(
        self, to: int | None = None, background: bool = False, *, throttle: Throttle | None = None
    ) -> Background | None:
        """Take the store to a revision, or to the newest: each revision to READY, or to DONE if it has no contract.

        A revision whose runner was killed continues where it stopped.

        Parameters
        ----------
        to : int, optional
            The last revision.
        background : bool
            Run in a daemon thread, which is returned.
        throttle : Throttle, optional
            Limits of backfills.

        Raises
        ------
        MigrationLockedError
            If another runner works on the store.
        MigrationError
            If a revision is PAUSED: remove the cause, and `resume`. Also if one is REVERTING.
        StructableError
            The error that stopped a revision, which is PAUSED now.
        """
        return self._start(lambda ended: self._up(to, throttle or Throttle(), ended, resume=False), background)

    def resume(self, background: bool = False, *, throttle: Throttle | None = None) -> Background | None:
        """Continue the PAUSED revision, then those that have not begun; otherwise like `up`."""
        return self._start(lambda ended: self._up(None, throttle or Throttle(), ended, resume=True), background)

    def pause(self) -> int | None:
        """Let the runner, in any process, stop after its running batches; return the revision that is then PAUSED."""

        def stop(tx: Transaction) -> int | None:
            for row in self._history.all_in(tx).values():
                if row.state.moving:
                    take_away(tx, self._history)
                    self._history.move(
                        tx,
                        row.number,
                        State.PAUSED,
                        runner=row.runner,
                        at=self._clocks.clock(),
                        resumes=row.state,
                        error=f"paused by {owner_name()}",
                    )
                    return row.number
            return None

        return self.storage.run(stop) if self._history.exists else None

    def contract(self, revision: int, force: bool = False) -> str | None:
        """Remove the things that only code older than a revision needs, and the things that the revision drops.

        Programs of older revisions can no longer start. A second call drops retired tables once their days are over.

        Parameters
        ----------
        revision : int
            The revision, which must be READY, with all earlier ones contracted.
        force : bool
            Do not check for live older programs.

        Returns
        -------
        str or None
            The time until which retired tables are kept; None if the revision is DONE.

        Raises
        ------
        LiveClientsError
            If programs of older revisions are alive: nothing was removed, and older programs may start again.
        MigrationError
            If the revision is not READY, or an earlier one was not contracted.
        """
        with self._leased() as lease:
            self._check_contractable(revision)
            row = self._history.require(revision)
            if row.state is State.DONE:
                return None
            if row.state is State.READY:
                self.storage.run(lambda tx: self._set_minimum(tx, lease, revision))
                try:
                    if not force:
                        require_no_older(self._history, revision, self._clocks)
                except BaseException:  # including Ctrl-C
                    with contextlib.suppress(StructableError):  # the next contract, or `down`, lowers it
                        self.storage.run(lambda tx: self._set_minimum(tx, lease), deadline=ENDING)
                    raise
            until = self._runner(lease, Throttle(), threading.Event()).contract(revision)
        if until is None:
            return None
        return f"tables that revision {revision} drops are kept until {until:%Y-%m-%d %H:%M} UTC"

    def down(self, to: int, *, throttle: Throttle | None = None) -> None:
        """Undo the revisions after `to`, the newest first, and delete their additions, with all values.

        Raises
        ------
        IrreversibleError
            If one of them was contracted, or its script has no `down` and needs one; nothing was undone.
        """
        if isinstance(to, bool) or not isinstance(to, int) or to < 0:
            raise MigrationError(f"down to {to!r} is not possible; it must be the number of a revision, or 0")
        with self._leased() as lease:
            rows = [row for number, row in sorted(self._history.all().items(), reverse=True) if number > to]
            undone = [row for row in rows if row.state is not State.PENDING]
            for row in undone:
                contracted = row.state in (State.CONTRACTING, State.DONE) and row.operations.contracts
                if contracted:
                    raise IrreversibleError(
                        f"revision {row.number} was contracted: what it took away cannot be brought back; write a new "
                        "revision"
                    )
                tasks = self.storage.run(partial(self._history.tasks_of, number=row.number), read_only=True)
                check_reversible(row.number, row.operations, tasks)
            self.storage.run(lambda tx: self._set_minimum(tx, lease))  # a killed contract may have raised it
            runner = self._runner(lease, throttle or Throttle(), threading.Event())
            for row in undone:
                runner.revert(row.number)

    def status(self) -> list[RevisionStatus]:
        """Return the status of each revision of the folder and of the store, by number."""
        found = {
            one.number: RevisionStatus(one.number, one.name, State.PENDING, State.PENDING)
            for one in self.folder.revisions()
        }
        for number, row in self._history.all().items():
            if row.state is not State.PENDING or number not in found:
                found[number] = status_of(self._history, row)
        return [found[number] for number in sorted(found)]

    def stamp(self, revision: int) -> None:
        """Record that a new store has every revision up to one, contracted, without running anything.

        Raises
        ------
        MigrationError
            If a revision has begun already.
        """
        revisions = self._until(self.folder.revisions(), revision)
        if not revisions or revisions[-1].number != revision:
            raise MigrationError(f"the folder {self.folder.path} has no revision {revision}")
        with self._leased() as lease:

            def record(tx: Transaction) -> None:
                lease.hold(tx)
                begun = self._history.all_in(tx)
                for one in revisions:
                    if one.number in begun and begun[one.number].state not in (State.PENDING, State.DONE):
                        raise MigrationError(
                            f"revision {one.number} is {begun[one.number].state}; only new stores are stamped"
                        )
                    if one.number not in begun or begun[one.number].state is State.PENDING:
                        self._history.begin(tx, one, lease.owner, self._clocks.clock(), State.DONE)
                self._history.set_minimum(tx, self._history.contracted(tx))

            self.storage.run(record)

    def _start(self, work: Callable[[threading.Event], None], background: bool) -> Background | None:
        if background:
            return Background(work)
        work(threading.Event())
        return None

    def _up(self, to: int | None, throttle: Throttle, ended: threading.Event, *, resume: bool) -> None:
        revisions = self._until(self.folder.revisions(), to)
        with self._leased() as lease:
            rows = self._checked(revisions)
            runner = self._runner(lease, throttle, ended)
            for number in sorted({one.number for one in revisions} | {n for n in rows if to is None or n <= to}):
                if ended.is_set():
                    return
                row = rows.get(number)
                state = State.PENDING if row is None else row.state
                if state is State.REVERTING:
                    raise MigrationError(
                        f"revision {number} is being reverted; run 'structable migrate down' to its end"
                    )
                if state is State.PAUSED and not resume:
                    assert row is not None
                    raise MigrationError(
                        f"revision {number} is paused: {row.error}; mend that, and resume; or undo "
                        f"it by 'structable migrate down {number - 1}', and correct its script"
                    )
                if state is State.PENDING:
                    one = next((one for one in revisions if one.number == number), None)
                    if one is None:
                        continue  # reverted, and no longer in the folder
                    runner.begin(one)
                if not state.ready:
                    runner.advance(number)

    def _runner(self, lease: RunnerLease, throttle: Throttle, ended: threading.Event) -> Runner:
        scope = RunnerScope(self._history, self.folder.path, lease, self._clocks, throttle, self._mapper, ended)
        return Runner(scope)

    def _leased(self) -> RunnerLease:
        self._history.create()
        return RunnerLease(self._history, self._clocks)

    def _known(self) -> tuple[list[Revision], dict[int, RevisionRow]]:
        revisions = self.folder.revisions()
        return revisions, self._checked(revisions)

    def _until(self, revisions: list[Revision], to: int | None) -> list[Revision]:
        if to is not None and not any(one.number == to for one in revisions):
            raise MigrationError(f"the folder {self.folder.path} has no revision {to}; it has {len(revisions)}")
        return [one for one in revisions if to is None or one.number <= to]

    def _checked(self, revisions: list[Revision]) -> dict[int, RevisionRow]:
        """Return the store's revisions; raise RevisionChangedError if a script has changed since it began."""
        rows = self._history.all()
        for one in revisions:
            row = rows.get(one.number)
            if row is not None and row.state is not State.PENDING and row.digest != one.operations.digest:
                raise RevisionChangedError(one.number, str(one.file))
        return rows

    def _check_contractable(self, revision: int) -> None:
        rows = self._history.all()
        row = rows.get(revision)
        if row is None or not row.state.ready:
            state = State.PENDING if row is None else row.state
            raise MigrationError(f"revision {revision} is {state}; it can be contracted once it is READY")
        for number, earlier in sorted(rows.items()):
            if number < revision and earlier.state not in (State.CONTRACTING, State.DONE):
                raise MigrationError(f"revision {number} is {earlier.state}; contract it before revision {revision}")
        dropped = {what for operation in row.operations.contracts for what in taken(operation)}
        dropped -= added_after(rows, revision)
        dropped |= {what[:2] for what in dropped}
        for number, later in sorted(rows.items()):
            if number > revision and not later.state.ready and later.state is not State.PENDING:
                for operation in later.operations.up:
                    if not dropped.isdisjoint(needed(operation)):
                        raise MigrationError(
                            f"revision {number} is {later.state}, and '{operation}' needs what revision {revision} "
                            "drops; run 'structable migrate up' to its end before"
                        )

    def _set_minimum(self, tx: Transaction, lease: RunnerLease, revision: int = 0) -> None:
        """Set the oldest revision whose programs may run to the newest contracted one, or to a later one."""
        lease.hold(tx)
        self._history.set_minimum(tx, max(revision, self._history.contracted(tx)))
