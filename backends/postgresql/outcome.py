"""What became of a commit whose answer was lost."""

from __future__ import annotations

import time

from structable.spi import StorageUnavailableError

from .failures import ConnectionLostError, ServerError
from .pool import SessionPool
from .session import Call, Statement

__all__ = ["was_committed"]

_STATUS = Statement("select pg_xact_status($1::text::xid8)", (25,))
# The server process may not have noticed that its client is gone. Ended, it can no longer commit.
_TERMINATE = Statement(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_xid::text = $2", (23, 25)
)
_SECONDS = 15.0
_LONGEST_PAUSE = 0.5


def was_committed(pool: SessionPool, number: int, process: int, *, seconds: float = _SECONDS) -> bool | None:
    """Ask the server whether a transaction was committed.

    Parameters
    ----------
    pool : SessionPool
        Where connections come from.
    number : int
        The transaction.
    process : int
        The server process that ran it: it is ended if the transaction is still open.
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
    terminate = Call(_TERMINATE, (process.to_bytes(4, "big"), short))
    while True:
        try:
            with pool.session() as session:
                answer = session.run(status).get_value(0, 0)
                if answer == b"committed":
                    return True
                if answer == b"aborted":
                    return False
                if answer is None:
                    return None
                session.run(terminate)
        except ServerError:
            return None
        except (ConnectionLostError, StorageUnavailableError):
            if pool.closed:
                return None
        if time.monotonic() + pause > deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
