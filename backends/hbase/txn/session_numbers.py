"""The numbers of sessions: from a counter that software before format 3 cannot use once the format is raised.

Such software reads the format when it connects, and later begins a new session, without reading it again, in place of
one that was declared dead. It counts sessions in another cell, which is no counter any more from then on.
"""

from __future__ import annotations

from structable.backends.hbase.layout import SESSIONS, Layout
from structable.backends.hbase.thrift.errors import ServerError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import compare_and_put, get_row, increment, put_rows

__all__ = ["next_session_number", "refuse_older_sessions"]

_FIRST_COUNTER, _COUNTER = b"c:n", b"c:m"
_START = 1 << 32
"""Beyond every number of the first counter: no two sessions may have one number."""
_NO_COUNTER = b"format 3 counts sessions in c:m"


def next_session_number(gateway: Gateway, layout: Layout) -> int:
    """Return a number that no other session has."""
    table = layout.transactions
    try:
        return gateway.call(increment(table, SESSIONS, _FIRST_COUNTER, 1))
    except ServerError:
        cells = gateway.call(get_row(table, SESSIONS, [_FIRST_COUNTER]))
        if _FIRST_COUNTER not in cells or cells[_FIRST_COUNTER][0] != _NO_COUNTER:
            raise
    return gateway.call(increment(table, SESSIONS, _COUNTER, 1))


def refuse_older_sessions(gateway: Gateway, layout: Layout) -> None:
    """Let no software of before format 3 begin a session from now on; idempotent."""
    table = layout.transactions
    gateway.call(compare_and_put(table, SESSIONS, _COUNTER, None, _START.to_bytes(8)))
    gateway.call(put_rows(table, {SESSIONS: {_FIRST_COUNTER: _NO_COUNTER}}))
