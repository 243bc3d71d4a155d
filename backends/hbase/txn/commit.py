"""`Committer`: the steps of a commit, in their order."""

from __future__ import annotations

import time

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.thrift.errors import TableMissingError
from structable.backends.hbase.thrift.retry import pause
from structable.backends.ordered.engine import ReadSet, WriteSet
from structable.spi import CommitOutcomeUnknownError

from .conflicts import Conflicts
from .context import PrefixContext
from .decision import Decision
from .finaliser import EndedTransaction, Finaliser
from .gate import gate_kinds
from .intent_set import IntentSet
from .prewrite import PendingCommit, Prewrite, RecordUnknownError
from .reader import table_dropped
from .session import ProcessSession
from .status import PENDING, Status
from .written_rows import encode_rows

_INLINE_BYTES = 2_048
"""Limit of written rows kept in the status cell itself."""
_LISTED_BYTES = 512 << 10
"""Limit of written rows that are recorded at all; a larger transaction names spaces, not rows."""


class Committer:
    """Commits write sets."""

    def __init__(self, context: PrefixContext, finaliser: Finaliser) -> None:
        self._layout = context.layout
        self._timeout = context.settings.timeout
        self._prewrite = Prewrite(context)
        self._conflicts = Conflicts(context)
        self.decision = Decision(context, self._conflicts)
        self._finaliser = finaliser

    def commit(self, session: ProcessSession, start: int, writes: WriteSet) -> None:
        """Commit a write set that is based on the snapshot at `start`, which the caller holds; see `Engine.commit`."""
        session.require_alive()
        self._finaliser.keep_up()
        intents = IntentSet(self._layout, writes)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._commit(session, start, intents, writes.reads)
            except RecordUnknownError as error:
                if time.monotonic() > deadline:
                    raise error.reason from None
                pause()

    def _commit(self, session: ProcessSession, start: int, intents: IntentSet, reads: ReadSet | None) -> None:
        txid, status, encoded = _began(session, start, intents)
        pending = PendingCommit(txid, start, intents, status)
        handed_over = False
        try:
            # Held until its rows are finalised: nothing that it depends on may be removed earlier.
            session.hold(txid, start)
            seen = self._prewrite.run(session, pending, intents, encoded)
            reach("after_readback")
            # Schemas first: a row can only be decoded with the schema that it was written for.
            self._conflicts.validate_markers(txid, start, pending.timestamp, seen.markers, seen.cells)
            self._conflicts.check(txid, start, pending.timestamp, intents, seen.rows, seen.cells)
            if reads is not None:
                self._conflicts.validate(txid, start, pending.timestamp, intents, reads, markers=False)
            session.require_alive()
            self.decision.commit(session, pending, reads)
        except CommitOutcomeUnknownError:
            raise
        except BaseException as error:
            committed = self.decision.abort_or_get_commit(pending)
            if pending.status.state != PENDING:
                self._finaliser.add(EndedTransaction(session, txid, pending.status, intents))
                handed_over = True
            elif isinstance(error, RecordUnknownError):
                raise error.reason from None  # a new transaction would meet the intents of this one
            if isinstance(error, TableMissingError):
                raise table_dropped() from error
            if not committed or not isinstance(error, Exception):
                raise
        else:
            self._finaliser.add(EndedTransaction(session, txid, pending.status, intents))
            handed_over = True
        finally:
            # Note the end even if a second interruption ended the wait for the abort.
            try:
                pending.note_end(session)
            finally:
                if not handed_over and not self._finaliser.has(txid):
                    session.release(txid)
        if intents.schemas:
            session.publish_recent_writes()  # until then, every writer of the table reads its rows back


def _began(session: ProcessSession, start: int, intents: IntentSet) -> tuple[bytes, Status, bytes]:
    """Return the id of a new transaction, its status, and the list of its writes that is not in the status."""
    kinds = intents.kinds
    encoded = encode_rows(kinds)
    unlisted = len(encoded) > _LISTED_BYTES
    # An unlisted transaction is found later by searching for its column, which must be its own.
    txid = session.next_transaction(None if unlisted else start)
    gates = gate_kinds(txid, intents.appends)
    if unlisted:
        writes = encode_rows({space: {} for space in kinds}, gates)
        return txid, Status(PENDING, start, unlisted=True, writes=writes), b""
    encoded += encode_rows({}, gates)
    if len(encoded) > _INLINE_BYTES:
        return txid, Status(PENDING, start, detached=True), encoded
    return txid, Status(PENDING, start, writes=encoded), encoded
