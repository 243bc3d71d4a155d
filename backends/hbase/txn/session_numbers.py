"""The numbers of sessions: from a counter that older software cannot use once the format is raised.

Such software reads the format when it connects, and later begins a new session, without reading it again, in place of
one that was declared dead. It counts sessions in another cell, which is no counter any more from then on.
"""

from __future__ import annotations

from structable.backends.hbase.layout import FEEDS_FORMAT, SESSIONS, TYPES_FORMAT, Layout
from structable.backends.hbase.thrift.errors import ServerError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import compare_and_put, get_row, increment, put_rows

__all__ = ["next_session_number", "refuse_older_sessions"]

_FIRST_COUNTER = b"c:n"
_COUNTERS = {TYPES_FORMAT: b"c:m", FEEDS_FORMAT: b"c:l"}
"""The counters of later formats."""
_STARTS = {TYPES_FORMAT: 1 << 32, FEEDS_FORMAT: 2 << 32}
"""Beyond every number of the counters before: no two sessions may have one number."""


def next_session_number(gateway: Gateway, layout: Layout) -> int:
    """Return a number that no other session has."""
    table = layout.transactions
    counter = _FIRST_COUNTER
    for following in _COUNTERS.values():
        try:
            return gateway.call(increment(table, SESSIONS, counter, 1))
        except ServerError:
            cells = gateway.call(get_row(table, SESSIONS, [counter]))
            if counter not in cells or cells[counter][0] not in map(_no_counter, _COUNTERS):
                raise
        counter = following
    return gateway.call(increment(table, SESSIONS, counter, 1))


def refuse_older_sessions(gateway: Gateway, layout: Layout, version: int) -> None:
    """Let no software older than a format begin a session from now on; idempotent."""
    table = layout.transactions
    gateway.call(compare_and_put(table, SESSIONS, _COUNTERS[version], None, _STARTS[version].to_bytes(8)))
    older = [_FIRST_COUNTER, *(counter for known, counter in _COUNTERS.items() if known < version)]
    gateway.call(put_rows(table, {SESSIONS: dict.fromkeys(older, _no_counter(version))}))


def _no_counter(version: int) -> bytes:
    return b"format %d counts sessions in %b" % (version, _COUNTERS[version])
