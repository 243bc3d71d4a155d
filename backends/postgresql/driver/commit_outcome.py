"""What became of a commit whose answer was lost."""

from __future__ import annotations

import time

from structable.spi import StorageUnavailableError

from .errors import ConnectionLostError, ServerError
from .pool import SessionPool
from .session import Call, Session, Statement

__all__ = ["was_committed"]

_STATUS = Statement("select pg_xact_status($1::text::xid8)", (25,))
_IN_THE_FUTURE = "22023"
# A server that crashed counts on from the last number that its log has: one that was lost is given to another
# transaction. What recovery ends with, a checkpoint like that of a shutdown, says where the count began again.
_RECOVERY = Statement(
    "select checkpoint_lsn = redo_lsn and timeline_id = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))"
    "::bit(32)::integer, (split_part(next_xid, ':', 1)::numeric * 4294967296 + split_part(next_xid, ':', 2)::numeric)"
    "::text from pg_control_checkpoint()"
)
# The server process may not have noticed that its client is gone. Ended, it can no longer commit.
_TERMINATE = Statement(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_xid::text = $2", (23, 25)
)
_SECONDS = 15.0
_LONGEST_PAUSE = 0.1
_UNWATCHED = 0.5
"""Seconds in which no server starts, commits, crashes and recovers: nobody has seen how often it did in more."""


def was_committed(
    pool: SessionPool, number: int, lost: Session, sent: float, *, seconds: float = _SECONDS
) -> bool | None:
    """Ask the server whether a transaction was committed.

    Parameters
    ----------
    pool : SessionPool
        Where connections come from.
    number : int
        The transaction.
    lost : Session
        The connection that ran it: its server process is ended if the transaction is still open.
    sent : float
        When the commit was sent, by `time.monotonic`.
    seconds : float
        How long to try.

    Returns
    -------
    bool or None
        None if the server could not be asked, or does not know any more.
    """
    deadline = time.monotonic() + seconds
    pause = 0.01
    status = Call(_STATUS, (str(number).encode(),))
    short = str(number & 0xFFFFFFFF).encode()
    terminate = Call(_TERMINATE, (lost.process.to_bytes(4, "big"), short))
    down = sent
    while True:
        try:
            with pool.session() as session:
                same = bool(session.server & lost.server)
                answer = session.run(status).get_value(0, 0)
                if answer == b"aborted" or (answer == b"in progress" and not same):
                    return False
                if answer == b"committed":
                    if same:
                        return True
                    return _was_recovered(session, number) if time.monotonic() - down < _UNWATCHED else None
                if answer is None:
                    return None
                session.run(terminate)
        except ServerError as error:
            # A server that never gave the number away has not kept the transaction either.
            return False if error.state == _IN_THE_FUTURE else None
        except (ConnectionLostError, StorageUnavailableError):
            if pool.closed:
                return None
            down = time.monotonic()
        if time.monotonic() + pause > deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _was_recovered(session: Session, number: int) -> bool | None:
    """Tell whether a number that was committed is that of a transaction from before the server was last started."""
    at_start, first_new = session.rows(session.run(Call(_RECOVERY)))[0]
    # Another checkpoint, or a server that took over from another one, hides where the count began.
    return number < int(str(first_new)) if at_start else None
