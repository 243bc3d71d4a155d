"""Looks up a commit whose answer was lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, StructableError

from .connection import ServerConnection
from .errors import INVALID_PARAMETER_VALUE, BrokenConnectionError, StatementRefusedError
from .pool import ServerPool
from .statement import INTEGER, TEXT, Call, Statement

_log = logging.getLogger("structable.postgresql")

_STATUS = Statement("select pg_xact_status($1::text::xid8)", (TEXT,))
# A crashed server continues from the last number in its log, and gives a lost number to another transaction. The
# checkpoint that ends a recovery or a shutdown shows where the count began again.
_RECOVERY = Statement(
    "select checkpoint_lsn = redo_lsn and timeline_id = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))"
    "::bit(32)::integer, (split_part(next_xid, ':', 1)::numeric * 4294967296 + split_part(next_xid, ':', 2)::numeric)"
    "::text from pg_control_checkpoint()"
)
_TERMINATE = Statement(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_xid::text = $2", (INTEGER, TEXT)
)
_SECONDS = 15.0
_LONGEST_PAUSE = 0.1
_UNWATCHED = 0.5
"""Seconds in which no server can start, commit, crash and recover; in a longer time it may have done so unseen."""


def was_committed(pool: ServerPool, number: int, lost: ServerConnection, sent: float) -> bool | None:
    """Ask the server whether a transaction was committed; None if it cannot be reached or no longer knows.

    `lost` is the connection that ran the transaction, whose server process is ended if the transaction is still open;
    `sent` is the time at which the commit was sent, by `time.monotonic`.
    """
    what = f"transaction {number}"
    status = Call(_STATUS, (str(number).encode(),))
    terminate = termination(lost.process, number)
    down = sent

    def question(connection: ServerConnection) -> bool | Literal["open"] | None:
        try:
            same = bool(connection.server & lost.server)
            answer = connection.run(status).get_value(0, 0)
            if answer == b"aborted" or (answer == b"in progress" and not same):
                return False
            if answer == b"committed":
                if same:
                    return True
                return _was_recovered(connection, number) if time.monotonic() - down < _UNWATCHED else None
            if answer is None:
                return None
            connection.run(terminate)
        except StatementRefusedError as error:
            # A server that never assigned the number did not keep the transaction either.
            return False if error.state == INVALID_PARAMETER_VALUE else None
        return "open"

    def failed() -> None:
        nonlocal down
        down = time.monotonic()

    return ask_until_known(pool, what, question, failed)


def ask_until_known(
    pool: ServerPool,
    what: str,
    question: Callable[[ServerConnection], bool | Literal["open"] | None],
    failed: Callable[[], None] = lambda: None,
) -> bool | None:
    """Return whether a commit happened whose answer was lost, once its transaction has ended; None if it stays unknown.

    `failed` is called when the server could not be reached.
    """
    _log.warning("the answer to the commit of %s was lost; asking the server about it", what)
    outcome = _asked(pool, question, failed)
    log_outcome(what, outcome)
    return outcome


def log_outcome(what: str, committed: bool | None) -> None:
    """Log the outcome of a commit whose answer was lost."""
    if committed is None:
        _log.error("it is unknown whether %s was committed", what)
    else:
        _log.warning("%s was %s", what, "committed" if committed else "not committed")


def _asked(
    pool: ServerPool,
    question: Callable[[ServerConnection], bool | Literal["open"] | None],
    failed: Callable[[], None],
) -> bool | None:
    deadline = time.monotonic() + _SECONDS
    pause = 0.01
    while True:
        try:
            with pool.connection() as connection:
                answer = question(connection)
            if answer != "open":
                return answer
        except (BrokenConnectionError, StorageUnavailableError):
            if pool.closed:
                return None
            failed()
        if time.monotonic() + pause > deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def termination(process: int, number: int) -> Call:
    """Return the call that ends a server process if it is in a transaction, which can then no longer commit.

    The process may not have noticed that its client is gone.
    """
    return Call(_TERMINATE, (process.to_bytes(4, "big"), str(number & 0xFFFFFFFF).encode()))


def _was_recovered(connection: ServerConnection, number: int) -> bool | None:
    """Return whether a committed number belongs to a transaction from before the last start of the server."""
    at_start, first_new = connection.ask(Call(_RECOVERY))[0]
    # A later checkpoint, or a failover, hides where the count began.
    return number < int(str(first_new)) if at_start else None


def error_of_lost_commit(committed: bool | None, what: str, loss: BrokenConnectionError) -> StructableError | None:
    """Return the error of a commit that was looked up; None if it happened. `what` names the transaction."""
    if committed is None:
        return CommitOutcomeUnknownError(
            f"the connection was lost during the commit of {what}, and the server could not be asked about it: {loss}"
        )
    if committed:
        return None
    return StorageUnavailableError(f"the connection was lost before the commit; nothing was written: {loss}")
