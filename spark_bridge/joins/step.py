"""`Stepper`: one step of a join, small or large, and the protocol that makes each atomic.

A small step is one transaction: it reads the feeds, the tables and the result, and writes the differences and the
positions. A large step and a rebuild are write jobs: a `LargeSteps` stages the differences, and the stepper records an
intent, commits the job and records the positions. A step takes effect only if the record has not changed since then.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from structable.spi import (
    ChangesLostError,
    CommitOutcomeUnknownError,
    PlanChangedError,
    RowKind,
    TableNotFoundError,
    Transaction,
    TransactionClosedError,
    TransactionConflictError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import retry

from .affected import Changes, oldest_change, rows_to_join
from .failpoints import reach
from .intents import Intents
from .joining import Counts, differences
from .kernel import Kernel
from .metrics import JoinInstruments
from .progress import Intent, JoinProgress, Positions, ProgressRecord, write_record
from .rebuild import LargeSteps, Staged
from .recording import Definition, definition_of
from .stores import JoinStores, View
from .tables import JoinTables

_log = logging.getLogger("structable.joins")

_ATTEMPTS = 10  # the most calls of `commit_write` with an undetermined outcome
_LOOK_SECONDS = 60.0  # the least between two checks of the positions' age
_LONGEST_AGE = 10_000 * 86_400.0

_Next: TypeAlias = Literal["bind", "large", "rebuild", "take over", "wait", "widen"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of an attempt of a small step: progress, or the next action for the record read; "wait" has both."""

    record: ProgressRecord | None
    progress: JoinProgress | None = None
    next: _Next | None = None
    written: bool = False
    changes: Changes | None = None
    """Before a large step, the changes that are known."""


class Stepper:
    """Takes the steps of one join. Used by one thread at a time.

    Parameters
    ----------
    stores : JoinStores
        The connections.
    small : int
        The maximum number of affected rows of a small step.
    large_steps : LargeSteps
        Computes all other steps.
    instruments : JoinInstruments
        The metrics to report to.

    Raises
    ------
    InvalidSpecificationError, UnsupportedOperationError, SchemaIncompatibleError, TableNotFoundError
        As `JoinWorker` does.
    """

    def __init__(
        self, stores: JoinStores, *, small: int, large_steps: LargeSteps, instruments: JoinInstruments
    ) -> None:
        self._stores = stores
        self._small = small
        self._large_steps = large_steps
        self._instruments = instruments
        self._join = stores.join
        self._tables = JoinTables(stores)
        self._intents = Intents(stores.result, self._join.result.name)
        self._known: Definition | None = None
        self._own_job = ""
        self._look = 0.0
        self._writing: _Outcome | None = None  # a large step, once an attempt has begun to write
        self.kernel = Kernel(self._tables.bind())

    def step(self) -> JoinProgress:
        """Do one step; see `JoinWorker.step`."""
        while True:
            outcome = self._attempted()
            record, progress = outcome.record, outcome.progress
            match outcome.next:
                case "wait":
                    assert progress is not None
                    return progress
                case "bind":
                    self._bind()
                case "widen":
                    self._tables.create()
                case "take over":
                    assert record is not None
                    self._intents.take_over(record)
                case "large":
                    assert record is not None
                    assert outcome.changes is not None
                    progress = self._large(record, outcome.changes)
                case "rebuild":
                    progress = self._rebuild(record, adopts=False)
            if progress is not None:
                if outcome.written:
                    reach("positions_recorded")
                self._instruments.caught_up()
                return progress

    def rebuild(self) -> JoinProgress | None:
        """Rebuild the result; None while the intent of another worker stands."""
        while True:
            record = self._tables.record()
            if record is not None and record.intent is not None:
                if not self._may_end(record.intent):
                    return None
                self._intents.take_over(record)
                continue
            progress = self._rebuild(record, adopts=True)
            if progress is not None:
                self._instruments.caught_up()
                return progress

    def current_kernel(self) -> Kernel:
        """Return the join, checked against the present tables and record."""
        self._bind()
        record = self._tables.record()
        if record is not None:
            known = Definition.parse(record.definition)
            self._tables.require_one_result(known)
            if known.feed == self._tables.result_feed():
                self._require_same(known)
        return self.kernel

    def _attempted(self) -> _Outcome:
        try:
            return self._stores.result.run(self._attempt)
        except UnsupportedOperationError:
            if self._writing is None:
                raise
            return self._writing  # its rows are too large for one transaction

    def _attempt(self, tx: Transaction) -> _Outcome:
        self._writing = None
        with self._stores.view(tx) as view:
            record = view.record
            if record is not None and record.intent is not None:
                if self._may_end(record.intent):
                    return _Outcome(record, next="take over")
                self._note_waiting(record.positions)
                return _Outcome(record, Counts().progress(record.positions), next="wait")
            if record is None or view.result is None:
                return _Outcome(record, next="rebuild")
            if not self._tables.fits(view):
                return _Outcome(record, next="bind")
            known = self._recognised(record)
            if known is None:
                return _Outcome(record, next="bind")
            if known.feed != view.feed or record.positions is None:
                return _Outcome(record, next="rebuild")
            self._require_same(known)
            if known.unfilled != self.kernel.bound.unfilled:
                self._log_lost("a rule of fields changed what reads return, and no feed records that")
                return _Outcome(record, next="rebuild")
            fits = self._tables.result_fits(view)
            if not fits:
                return _Outcome(record, next="rebuild" if fits is None else "widen")
            try:
                return self._small_step(view, record, record.positions)
            except ChangesLostError as lost:
                self._log_lost(lost)
                return _Outcome(record, next="rebuild")

    def _small_step(self, view: View, record: ProgressRecord, since: Positions) -> _Outcome:
        stores, kernel, now = self._stores, self.kernel, view.positions
        if not since.same_feeds(now):
            self._log_lost(f"a table was made again since {since.left}, {since.right}")
            return _Outcome(record, next="rebuild")
        if not now.reach(since):
            for feed, at in zip(stores.feeds, (since.left, since.right), strict=True):
                feed.position(at.version)  # lost if it is beyond the newest
            raise TransactionConflictError("a table was read as it was before the last step; run the step again")
        changes = Changes.after(since)
        few = changes.read(stores, kernel, now, self._small)
        self._instruments.behind(changes.left.oldest, changes.right.oldest)
        large = _Outcome(record, next="large", changes=changes)
        affected = rows_to_join(kernel, view.left, changes, self._small) if few else None
        if affected is None:
            return large
        rows, rights = affected
        counts = Counts(len(rows))
        assert view.result is not None
        assert view.progress is not None
        puts, deletes = [], []
        for one in differences(kernel, view.right, view.result, rows, rights):
            counts.add(one)
            if one.kind is RowKind.DELETE:
                deletes.append(kernel.key_of(one.values))
            else:
                puts.append(kernel.row(one.values))
        self._writing = large
        if puts:
            view.result.replace_many(puts)
        if deletes:
            view.result.delete_many(deletes)
        moves = any(one.oldest is not None for one in (changes.left, changes.right)) or self._is_old(view, since)
        if moves:
            write_record(view.progress, record.at(now))
        reach("staged")
        return _Outcome(record, counts.progress(now), written=moves)

    def _large(self, record: ProgressRecord, changes: Changes) -> JoinProgress | None:
        """Do a large step, or a rebuild instead; None if it must start over, as after another worker's step."""
        with self._result_may_go():
            job = self._begin()
            try:
                staged = self._large_steps.stage_changes(self._stores, self.kernel, job, changes)
            except ChangesLostError as lost:
                self._log_lost(lost)
                staged = None
            except BaseException as error:
                self._abandon(job, error)
                return None
            if staged is not None and staged.positions.reach(changes.seen):
                return self._publish(job, staged, record, record.definition, rebuilt=False)
            self._stores.result.abort_write(job)
            if staged is None:
                return self._rebuild(record, adopts=False)
        return None

    def _rebuild(self, record: ProgressRecord | None, *, adopts: bool) -> JoinProgress | None:
        """Join everything, and adopt this definition if `adopts`; None as `_large` does."""
        self._bind(resolve=adopts)
        known = None if record is None else Definition.parse(record.definition)
        with self._result_may_go():
            if record is not None and known is not None:
                self._tables.require_one_result(known)
                gone = known.feed != self._tables.result_feed()
                if not gone and not adopts:
                    self._require_same(known)
                if gone or self._tables.reshapes(known):
                    # Before new fields, or a new table, which must never have the positions of the dropped one.
                    emptied = replace(record, positions=None)
                    if record.positions is not None and not self._intents.replace(record, emptied):
                        return None
                    record = emptied
            wanted = definition_of(self.kernel.bound, self._tables.create(known if adopts else None))
            job = self._begin()
            try:
                staged = self._large_steps.stage_all(self._stores, self.kernel, job)
            except BaseException as error:
                self._abandon(job, error)
                return None
            return self._publish(job, staged, record, wanted.text, rebuilt=True)
        return None

    def _abandon(self, job: WriteJob, error: BaseException) -> None:
        """Abort a job, and raise its error unless the schema of a table was changed: the step starts over then."""
        self._stores.result.abort_write(job)
        if not isinstance(error, TransactionConflictError):
            raise error

    @contextmanager
    def _result_may_go(self) -> Iterator[None]:
        """Suppress the error of a result that is dropped in the block: the next attempt makes it again."""
        try:
            yield
        except TableNotFoundError:
            if self._tables.result_feed():
                raise

    def _publish(
        self, job: WriteJob, staged: Staged, record: ProgressRecord | None, definition: str, *, rebuilt: bool
    ) -> JoinProgress | None:
        storage, name = self._stores.result, self._join.name
        progress = staged.counts.progress(staged.positions, rebuilt=rebuilt)
        reach("staged")
        if not staged.counts.written:
            storage.abort_write(job)
            if not self._intents.replace(record, ProgressRecord(name, staged.positions, definition)):
                return None
            reach("positions_recorded")
            return progress
        if record is None or Definition.parse(record.definition).feed != Definition.parse(definition).feed:
            base = ProgressRecord(name, None, definition)  # the result is a new table
        else:
            base = record
        intent = Intent(job.job_id, staged.positions, 0.0, definition).renewed()
        intended = ProgressRecord(name, base.positions, base.definition, intent)
        self._own_job = job.job_id
        if not self._intents.replace(record, intended):
            storage.abort_write(job)
            return None
        reach("intent_recorded")
        try:
            with self._intents.renewing(intended):
                self._commit(job, staged)
        except TransactionClosedError:
            return None  # another worker has taken over
        except (TransactionConflictError, CommitOutcomeUnknownError, ConnectionError):
            raise  # the intent stands until it is known whether the job was committed
        except Exception:
            # It may be committed. Positions behind the result would falsify the steps that do not read it.
            self._intents.end(name, job.job_id, committed=self._intents.outcome(intent))
            raise
        reach("committed")
        self._intents.end(name, job.job_id, committed=True)
        reach("positions_recorded")
        return progress

    def _commit(self, job: WriteJob, staged: Staged) -> None:
        storage = self._stores.result
        for attempt in range(_ATTEMPTS):
            try:
                retry(storage, lambda: storage.commit_write(job, staged.writes))
                return
            except CommitOutcomeUnknownError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _begin(self) -> WriteJob:
        job_id = f"join {self._join.name} {uuid.uuid4()}"
        return self._stores.result.begin_write(self._join.result.name, mode=WriteMode.CHANGES, job_id=job_id)

    def _may_end(self, intent: Intent) -> bool:
        # An intent of this stepper is left from a failure: no worker is at work on it.
        return intent.expired or intent.job_id == self._own_job

    def _bind(self, *, resolve: bool = False) -> None:
        self.kernel = Kernel(self._tables.bind(resolve=resolve))
        self._known = None

    def _recognised(self, record: ProgressRecord) -> Definition | None:
        """Return the recorded definition; None if its selection is to be adopted first."""
        known = self._known
        if known is None or known.text != record.definition:
            known = Definition.parse(record.definition)
            if self._tables.adopts(known, self.kernel.bound):
                return None
            self._known = known
        return known

    def _require_same(self, known: Definition) -> None:
        found = known.differences(definition_of(self.kernel.bound, known.feed))
        if found:
            raise PlanChangedError(f"join {self._join.name!r}", found, "rebuild() takes this definition on")

    def _note_waiting(self, since: Positions | None) -> None:
        """Report the lag while another worker steps."""
        if since is None or not self._instruments.enabled:
            return
        left, right = self._stores.feeds
        try:
            self._instruments.behind(oldest_change(left, since.left), oldest_change(right, since.right))
        except ChangesLostError as lost:
            _log.debug("join %r: its lag is unknown: %s", self._join.name, lost)

    def _log_lost(self, reason: object) -> None:
        _log.warning("join %r is joined from the start: %s", self._join.name, reason)

    def _is_old(self, view: View, since: Positions) -> bool:
        """Return whether a position is older than a tenth of the retention of changes; checked at intervals."""
        now = time.monotonic()
        if now < self._look:
            return False
        retained = [table.specification.table_options.time_retained for table in (view.left, view.right)]
        self._look = now + min(_LOOK_SECONDS, min(retained) / 100)
        for feed, seconds, at in zip(self._stores.feeds, retained, (since.left, since.right), strict=True):
            age = dt.timedelta(seconds=min(seconds / 10, _LONGEST_AGE))
            if feed.at(dt.datetime.now(dt.UTC) - age) > at:
                return True
        return False
