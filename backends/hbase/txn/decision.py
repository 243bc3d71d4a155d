"""`Decision`: commits or aborts a transaction by one compare-and-put of its status."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from structable.backends.hbase.failpoints import reach
from structable.backends.hbase.thrift.errors import is_refusal
from structable.backends.hbase.thrift.retry import pause
from structable.backends.ordered.engine import ReadSet
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, TransactionConflictError

from .conflicts import Conflicts
from .context import PrefixContext
from .prewrite import PendingCommit, draw_timestamp
from .session import ProcessSession
from .status import ABORTED, COMMITTED


class Decision:
    """The last step of a commit whose outcome other processes can see."""

    def __init__(self, context: PrefixContext, conflicts: Conflicts) -> None:
        self._gateway = context.gateway
        self._layout = context.layout
        self._status_table = context.status_table
        self._conflicts = conflicts
        self._timeout = context.settings.timeout

    def commit(self, session: ProcessSession, pending: PendingCommit, reads: ReadSet | None) -> None:
        """Commit at the timestamp drawn, or at a later one if readers have pushed the transaction.

        Raises `TransactionConflictError` if another process has aborted it, and `CommitOutcomeUnknownError` if the
        outcome cannot be learned before the time-out.
        """
        sent = unclear = False
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                while pending.status.least > pending.timestamp:
                    tick = pending.timestamp = self._gateway.call(draw_timestamp(self._layout))
                    if pending.intents is not None:
                        self._conflicts.validate(
                            pending.txid, pending.start, tick, pending.intents, reads or ReadSet(), markers=True
                        )
                        session.require_alive()
                reach("before_commit")
                wanted = pending.status.committed(pending.timestamp)
                sent = True
                found = self._status_table.change(pending.txid, pending.status, wanted)
                reach("after_commit")
            except StorageUnavailableError as error:
                if not sent or (is_refusal(error) and not unclear):
                    raise
                unclear = True
                if time.monotonic() > deadline:
                    raise CommitOutcomeUnknownError(
                        f"no gateway answered for {self._timeout:g} s (timeout) whether the transaction was committed: "
                        f"{error}"
                    ) from error
                # The same change is harmless if it was made already.
                pause()
                continue
            if found is None:
                self._refuse_unrecorded(session)
            if found.state == COMMITTED:
                pending.status = found
                return
            if found.state == ABORTED:
                raise TransactionConflictError("another process aborted this transaction; retry it")
            pending.status = found

    @staticmethod
    def _refuse_unrecorded(session: ProcessSession) -> NoReturn:
        """Raise for a missing record: it was aborted and removed, or committed if the session was lost before.

        While the session is alive, nothing that it committed can have been removed: a conflict. Otherwise the outcome
        is unknown.
        """
        with suppress(StorageUnavailableError):
            session.heartbeat()
            if not session.over:
                raise TransactionConflictError("another process aborted this transaction and removed its record")
        raise CommitOutcomeUnknownError("the record of the transaction was removed before its outcome was read")

    def abort_or_get_commit(self, pending: PendingCommit) -> bool:
        """Abort, so that no other process must wait for the lease, and return whether the transaction had committed.

        An abort that fails now is left to others: this process takes no further step to commit.
        """
        try:
            status = self._status_table.abort(pending.txid)
        except StorageUnavailableError:
            return False
        pending.status = replace(pending.status, state=status.state, commit=status.commit, least=0, heartbeat=0)
        reach("after_abort")
        return status.state == COMMITTED
