"""`Runner`: takes revisions from state to state under the lease, and pauses them when something stops it."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable

from structable.spi import Range, StructableError, Transaction

from . import steps
from .backfill import Backfill
from .batches import INDEX_PART, MADE_PART, TaskKey, task_of
from .errors import MigrationError, MigrationLockedError
from .fills import fill_of
from .folder import Revision, function_named
from .history import RevisionRow, added_after, taken_before
from .lease import ENDING
from .operations import FIRST_OF_DOWN, Operation, RunFunction, What, added
from .schema_calls import Report, SchemaCalls
from .scope import RunnerScope
from .states import State

_log = logging.getLogger("structable.migrations")
_REPORTS = 1.0
"""Seconds between two progress reports of an index build."""


class Runner:
    """Works on the revisions of a store while it holds the lease.

    Parameters
    ----------
    scope : RunnerScope
        The state of the runner.
    """

    def __init__(self, scope: RunnerScope) -> None:
        self._scope = scope
        self._history = scope.history
        self._storage = scope.history.storage
        self._folder = scope.folder
        self._lease = scope.lease
        self._clocks = scope.clocks
        self._backfill = Backfill(scope)

    def begin(self, revision: Revision) -> None:
        """Store a revision's operations, and that it has begun."""
        self._in_transaction(lambda tx, at: self._history.begin(tx, revision, self._lease.owner, at, State.EXPANDING))

    def advance(self, number: int) -> None:
        """Take a revision that has begun to READY, or to DONE if it has no contract.

        Raises
        ------
        StructableError
            The error that stopped it; the revision is PAUSED, unless the store is unreachable or the lease was lost.
        """
        row = self._history.require(number)
        operations = row.operations
        calls = SchemaCalls(self._scope, number)
        state = row.resumes
        try:
            self._take_over(row, state)
            if state is State.EXPANDING:
                steps.check_contract(calls, operations)
                waiting = steps.filled_fields(operations)
                for position, operation in enumerate(operations.up):
                    self._scope.check()
                    self._note(number, position, steps.lacking(calls, operation))
                    steps.expand(calls, operation, self._report_of(number, position), waiting)
                    if isinstance(operation, RunFunction):
                        self._call_once(number, position, operation)
                state = self._move(number, State.FILLING)
            if state is State.FILLING:
                self._fill(number, operations.up)
                state = self._move(number, State.VERIFYING)
            if state is State.VERIFYING:
                self._verify(number, operations.up)
                self._scope.check()
                steps.finish(calls, operations, lambda position: self._report_of(number, position))
                state = self._move(number, State.READY if operations.contracts else State.DONE)
        except BaseException as error:
            if not isinstance(error, MigrationLockedError):
                self._pause(number, state, error)
            raise

    def contract(self, number: int) -> dt.datetime | None:
        """Remove what only older code needs; return the time until which retired tables are kept, if any.

        The caller must have raised the minimum revision, and made sure that no older program is alive.
        """
        row = self._history.require(number)
        calls = SchemaCalls(self._scope, number)
        self._take_over(row, State.CONTRACTING)
        again = added_after(self._history.all(), number)
        kept: list[dt.datetime] = []
        for operation in row.operations.contracts:
            self._scope.check()
            until = steps.contract(calls, operation, self._clocks.clock(), again)
            if until is not None:
                kept.append(until)
        if kept:
            return max(kept)
        self._move(number, State.DONE)
        return None

    def revert(self, number: int) -> None:
        """Undo the expansion of a revision, from any state before its contract."""
        row = self._history.require(number)
        operations = row.operations
        calls = SchemaCalls(self._scope, number)
        self._take_over(row, State.REVERTING)
        for position, operation in enumerate(operations.down, FIRST_OF_DOWN):
            if isinstance(operation, RunFunction):
                self._call_once(number, position, operation)
        self._fill(number, operations.down, FIRST_OF_DOWN)
        taken = taken_before(self._history.all(), number)
        for position, operation in reversed([*enumerate(operations.up)]):
            self._scope.check()
            # The contract of an earlier revision kept these for this one.
            left = {what for what in added(operation) if what in taken and what[0] != "table"}
            steps.revert(calls, self._made(number, position) | left, taken)

        def end(tx: Transaction, at: dt.datetime) -> None:
            self._history.tasks(tx).delete_all(Range.prefix((number,)))
            self._history.move(tx, number, State.PENDING, runner=None, at=at)

        self._in_transaction(end)

    def _fill(self, number: int, operations: tuple[Operation, ...], first: int = 0) -> None:
        for position, operation in enumerate(operations, first):
            fill = fill_of(operation, self._folder)
            if fill is not None:
                self._backfill.fill(number, position, fill)

    def _verify(self, number: int, operations: tuple[Operation, ...]) -> None:
        for position, operation in enumerate(operations):
            fill = fill_of(operation, self._folder)
            if fill is not None and fill.verified is not None:
                self._backfill.verify(number, position, fill)

    def _call_once(self, number: int, position: int, operation: RunFunction) -> None:
        function = function_named(operation.function, self._folder)
        key = TaskKey(number, position, 0)

        def call(tx: Transaction, at: dt.datetime) -> None:
            tasks = self._history.tasks(tx)
            if tasks.read(key) is None:
                try:
                    function(tx)
                except StructableError:
                    raise  # the transaction is retried after a conflict
                except (Exception, SystemExit) as error:
                    raise MigrationError(f"{operation.function}: {type(error).__name__}: {error}") from error
                tasks.insert(task_of(key, at, done=True))

        self._in_transaction(call)

    def _note(self, number: int, position: int, lacking: set[What]) -> None:
        """Record, before an operation creates things, that the store lacked them, so that `down` may remove them."""
        if lacking:
            key = TaskKey(number, position, MADE_PART)
            made = json.dumps(sorted(self._made(number, position) | lacking))  # a killed runner has created some
            self._in_transaction(lambda tx, at: self._history.tasks(tx).upsert(task_of(key, at, begin=made, done=True)))

    def _made(self, number: int, position: int) -> set[What]:
        key = TaskKey(number, position, MADE_PART)
        task = self._storage.run(lambda tx: self._history.tasks(tx).read(key), read_only=True)
        return set() if task is None else {tuple(what) for what in json.loads(task.begin)}

    def _report_of(self, number: int, position: int) -> Report:
        """Return a callback that records, at intervals, how many rows an operation's new index covers."""
        key = TaskKey(number, position, INDEX_PART)
        last = 0.0

        def report(done: int, total: int | None) -> None:
            nonlocal last
            if time.monotonic() - last < _REPORTS:
                return
            last = time.monotonic()
            with contextlib.suppress(StructableError):  # the next report may succeed
                self._in_transaction(lambda tx, at: self._history.tasks(tx).upsert(task_of(key, at, seen=done)))

        return report

    def _take_over(self, row: RevisionRow, state: State) -> None:
        """Record that this process carries out a revision in a state: another one may have been killed in it."""
        if (row.state, row.runner) != (state, self._lease.owner):
            self._move(row.number, state)

    def _move(self, number: int, state: State) -> State:
        self._in_transaction(lambda tx, at: self._history.move(tx, number, state, runner=self._lease.owner, at=at))
        return state

    def _in_transaction(self, body: Callable[[Transaction, dt.datetime], None], deadline: float = 30.0) -> None:
        def held(tx: Transaction) -> None:
            self._lease.hold(tx)
            body(tx, self._clocks.clock())

        self._storage.run(held, deadline=deadline)

    def _pause(self, number: int, state: State, error: BaseException) -> None:
        """Record the error that stopped a revision, and the state to resume in."""
        text = str(error) or type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            text = "interrupted"
        elif not isinstance(error, StructableError):
            text = f"{type(error).__name__}: {error}"
        text = "\n".join([text, *getattr(error, "__notes__", ())]).replace("\0", "")[:10_000]
        text = text.encode(errors="backslashreplace").decode()  # no store keeps a lone surrogate
        with contextlib.suppress(StructableError):  # an unreachable store: the revision continues as after a kill
            self._in_transaction(
                lambda tx, at: self._history.move(
                    tx, number, State.PAUSED, runner=self._lease.owner, at=at, resumes=state, error=text
                ),
                ENDING,
            )


class Background:
    """A migration that runs in a daemon thread.

    Parameters
    ----------
    work : callable
        The migration; it must end soon after the event that it receives is set.

    Attributes
    ----------
    error : BaseException or None
        The error that ended it, once it is done.
    """

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="structable migrate", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._ended)
        except BaseException as error:
            self.error = error
            _log.warning("migrations stopped: %s", error)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, and return whether it has ended.

        Raises
        ------
        StructableError
            The error that ended it.
        """
        self._thread.join(timeout)
        if self.done and self.error is not None:
            raise self.error
        return self.done

    def stop(self) -> None:
        """Stop it after its running batches, and wait for its end; an unfinished revision is PAUSED."""
        self._ended.set()
        self._thread.join()
