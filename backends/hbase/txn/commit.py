"""`Committer`: sends a transaction, checks it against the others, and decides it by one compare-and-set."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.layout import Layout
from structable.backends.hbase.thrift.errors import TableMissingError, is_refusal
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.retry import pause
from structable.backends.ordered.engine import ReadSet, WriteSet
from structable.spi.errors import (
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    TransactionConflictError,
)

from .conflicts import Conflicts
from .finaliser import Finaliser, Finished
from .prewrite import Attempt, RecordLostError, Sender, draw
from .reader import dropped
from .session import Session
from .status import ABORTED, COMMITTED, PENDING, Status, encode_writes
from .status_table import Records
from .write_set import Changes

__all__ = ["Committer"]

_INLINE_WRITES = 2_048
"""Bytes of a write set that are kept in the status cell itself."""
_LISTED_WRITES = 512 << 10
"""Bytes of a write set that are kept at all; what is larger names spaces, not rows."""


class Committer:
    """Commits write sets.

    Parameters
    ----------
    gateway : Gateway
        Where HBase is.
    layout : Layout
        The names.
    records : Records
        The statuses.
    conflicts : Conflicts
        Knows what may stand in the way.
    sender : Sender
        Sends what comes before the decision.
    finaliser : Finaliser
        Told of what has ended.
    patience : float
        Seconds to try to learn how a commit ended.
    """

    def __init__(
        self,
        gateway: Gateway,
        layout: Layout,
        records: Records,
        conflicts: Conflicts,
        sender: Sender,
        finaliser: Finaliser,
        patience: float,
    ) -> None:
        self._gateway = gateway
        self._layout = layout
        self._records = records
        self._conflicts = conflicts
        self._sender = sender
        self._finaliser = finaliser
        self._patience = patience

    def commit(self, session: Session, start: int, writes: WriteSet) -> None:
        """Commit a write set that is based on the state at `start`, which the caller holds; see `Engine.commit`."""
        session.require_alive()
        self._finaliser.keep_up()
        changes = Changes(self._layout, writes)
        end = time.monotonic() + self._patience
        while True:
            try:
                return self._commit(session, start, changes, writes.reads)
            except RecordLostError as error:
                if time.monotonic() > end:
                    raise error.reason from None
                pause()

    def _commit(self, session: Session, start: int, changes: Changes, reads: ReadSet | None) -> None:
        status, encoded = _pending(start, changes)
        # Who has to look for all that it wrote, later, looks for a column of its own.
        txid = session.next_transaction(None if status.unlisted else start)
        attempt = Attempt(txid, start, changes, status)
        handed_over = False
        try:
            # Held from here on, so that nothing it depends on is cleaned up before its rows are finalised.
            session.hold(txid, start)
            seen = self._sender.send(session, attempt, changes, encoded)
            reach("after_readback")
            # Schemas first: what a row holds is understood by the schema that it was written for.
            self._conflicts.validate_markers(txid, start, attempt.timestamp, seen.markers, seen.cells)
            self._conflicts.check(txid, start, attempt.timestamp, changes, seen.rows, seen.cells)
            if reads is not None:
                self._conflicts.validate(txid, start, attempt.timestamp, changes, reads, markers=False)
            session.require_alive()
            self.decide(session, attempt, reads)
        except CommitOutcomeUnknownError:
            raise
        except BaseException as error:
            committed = self.is_committed_after_all(attempt)
            if attempt.status.state != PENDING:
                self._finaliser.add(Finished(session, txid, attempt.status, changes))
                handed_over = True
            elif isinstance(error, RecordLostError):
                raise error.reason from None  # another one would meet its intents
            if isinstance(error, TableMissingError):
                raise dropped() from error
            if not committed or not isinstance(error, Exception):
                raise
        else:
            self._finaliser.add(Finished(session, txid, attempt.status, changes))
            handed_over = True
        finally:
            # Also where a second interruption ended the wait for the abort.
            try:
                attempt.note_end(session)
            finally:
                if not handed_over and not self._finaliser.has(txid):
                    session.let_go(txid)
        if changes.schemas:
            session.tell()  # as long as the change is listed as open, all who write the table look at it

    def decide(self, session: Session, attempt: Attempt, reads: ReadSet | None) -> None:
        """Commit at the timestamp drawn, or a later one where readers want it.

        Raises
        ------
        TransactionConflictError
            If another process has aborted it.
        CommitOutcomeUnknownError
            If it cannot be learned.
        """
        sent = unclear = False
        end = time.monotonic() + self._patience
        while True:
            try:
                while attempt.status.least > attempt.timestamp:
                    tick = attempt.timestamp = self._gateway.call(draw(self._layout))
                    if attempt.changes is not None:
                        self._conflicts.validate(
                            attempt.txid, attempt.start, tick, attempt.changes, reads or ReadSet(), markers=True
                        )
                        session.require_alive()
                reach("before_commit")
                wanted = attempt.status.committed(attempt.timestamp)
                sent = True
                found = self._records.change(attempt.txid, attempt.status, wanted)
                reach("after_commit")
            except StorageUnavailableError as error:
                if not sent or (is_refusal(error) and not unclear):
                    raise
                unclear = True
                if time.monotonic() > end:
                    raise CommitOutcomeUnknownError(
                        f"no gateway told for {self._patience:g} s whether the transaction was committed: {error}"
                    ) from error
                # The same change once more does no harm if it was made already.
                pause()
                continue
            if found is None:
                self._refuse_unrecorded(session)
            if found.state == COMMITTED:
                attempt.status = found
                return
            if found.state == ABORTED:
                raise TransactionConflictError("another transaction, or the end of its lease, aborted this one")
            attempt.status = found

    @staticmethod
    def _refuse_unrecorded(session: Session) -> NoReturn:
        """Its record is gone: it was aborted, and cleaned up; or committed, if the session did not hold it to the end.

        Raises
        ------
        TransactionConflictError
            If the session still lives: nothing that it committed can have been cleaned up.
        CommitOutcomeUnknownError
            Otherwise.
        """
        with suppress(StorageUnavailableError):
            session.beat()
            if not session.over:
                raise TransactionConflictError("another process aborted this transaction and has removed its record")
        raise CommitOutcomeUnknownError("the record of the transaction was removed before its outcome was read")

    def is_committed_after_all(self, attempt: Attempt) -> bool:
        """Abort, so that nobody has to wait for the lease, unless it is too late for that.

        What cannot be done now, others do later: without a further step of this process it will not be committed.
        """
        try:
            status = self._records.abort(attempt.txid)
        except StorageUnavailableError:
            return False
        attempt.status = replace(attempt.status, state=status.state, commit=status.commit, least=0, beat=0)
        reach("after_abort")
        return status.state == COMMITTED


def _pending(start: int, changes: Changes) -> tuple[Status, bytes]:
    """Return the first status of a transaction, and its write set."""
    kinds = changes.kinds
    encoded = encode_writes(kinds)
    if len(encoded) > _LISTED_WRITES:
        return Status(PENDING, start, unlisted=True, writes=encode_writes({space: {} for space in kinds})), b""
    if len(encoded) > _INLINE_WRITES:
        return Status(PENDING, start, detached=True), encoded
    return Status(PENDING, start, writes=encoded), encoded
