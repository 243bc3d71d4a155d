"""`Turns`: the owner's own transactions wait for busy clients, so that every process gets its turn.

A transaction of the owner needs no messages, and rarely releases the interpreter's lock, which the threads that serve
the clients also need. So after each of its own commits the owner lets the clients catch up: it makes fewer than two
commits for each one of a busy client, where a large transaction of a client counts as several. The busiest of
four processes then makes 1.7 times as many transactions as the least busy, and 4.7 to 6.2 times as many without turns
(`shares` in docs/performance.md).
"""

from __future__ import annotations

import time
from collections.abc import Sized
from time import perf_counter

_SHARE = 0.55
"""The number of its own transactions by which a client falls behind with each transaction of the owner."""
_LARGEST = 16
"""The largest lead of the owner over a client, in requests."""
_IDLE = 0.5e-3  # seconds
_IDLE_INSIDE = 5e-3  # seconds
_PAUSE = 50e-6
"""The pause for each request of the lead, in seconds."""
_MOST_PERIODS = 8.0
_LONGEST = 10e-3  # seconds


class ClientPace:
    """The number of requests by which a client is behind the owner. Lost updates between threads do no harm.

    Parameters
    ----------
    snapshots : sized
        The client's open snapshots.
    """

    __slots__ = ("_asked", "_requests", "_snapshots", "behind", "size")

    def __init__(self, snapshots: Sized) -> None:
        self._snapshots = snapshots
        self._asked = 0.0
        self._requests = 0
        self.size = 1.0
        """The requests of a transaction, on average."""
        self.behind = 0.0

    def count_request(self) -> None:
        """Count a request."""
        self._asked = perf_counter()
        self._requests += 1
        self.behind -= 1.0

    def end_transaction(self) -> None:
        """Count a transaction."""
        self.size = min((self.size + self._requests) / 2, _LARGEST)
        self._requests = 0

    def fall_behind(self) -> None:
        """Count a transaction of the owner."""
        self.behind = min(max(self.behind, 0.0), self.size) + self.size * _SHARE

    def must_catch_up(self, now: float) -> bool:
        """Return whether the client is far behind, and busy.

        A client is not busy if it has sent nothing for half a millisecond, or for five inside a transaction.
        """
        return self.behind > self.size and now - self._asked < (_IDLE_INSIDE if self._snapshots else _IDLE)


class Turns:
    """Delays the transactions of the owner."""

    __slots__ = ("_since", "paces")

    def __init__(self) -> None:
        self.paces: dict[ClientPace, None] = {}
        """The paces of the connected clients."""
        self._since = 0.0

    def wait(self) -> None:
        """Wait until no busy client is far behind, but at most eight times as long as passed since the last wait.

        Takes no lock: the main thread may be interrupted here.
        """
        now = perf_counter()
        deadline = now + min(_MOST_PERIODS * (now - self._since), _LONGEST)
        for pace in list(self.paces):
            pace.fall_behind()
            while pace.must_catch_up(now) and now < deadline:
                # About as long as its requests take: each look costs the interpreter's lock.
                time.sleep(min(_PAUSE * (pace.behind - pace.size + 1.0), deadline - now))
                now = perf_counter()
        self._since = now
