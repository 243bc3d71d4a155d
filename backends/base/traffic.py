"""`Tally` and `Tallies`: the traffic of connections, counted by their users without a lock, and read by any thread."""

from __future__ import annotations

import threading
from weakref import ref

from structable.spi import Traffic


class Tally:
    """The numbers of one connection. The thread that uses the connection raises them; they never go down."""

    __slots__ = ("received", "round_trips", "sent")

    def __init__(self) -> None:
        self.round_trips = 0
        self.sent = 0  # bytes
        self.received = 0

    def traffic(self) -> Traffic:
        return Traffic(self.round_trips, self.sent, self.received)


class Tallies:
    """The tallies of connections; each still counts after its connection was closed or lost.

    Reading takes no lock: a finaliser may read, and so may a process forked while another thread had the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The tallies of connections that may still be used, and the sum of the others; replaced in one step.
        self._state: tuple[list[tuple[ref[object], Tally]], Traffic] = ([], Traffic(0, 0, 0))

    def add(self, connection: object, tally: Tally) -> None:
        """Count a connection that was opened."""
        with self._lock:
            parts, ended = self._state
            kept = [(ref(connection), tally)]
            for part in parts:
                if part[0]() is None:
                    ended += part[1].traffic()
                else:
                    kept.append(part)
            self._state = kept, ended

    def traffic(self) -> Traffic:
        parts, total = self._state
        for _, tally in parts:
            total += tally.traffic()
        return total
