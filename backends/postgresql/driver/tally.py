"""`ServerTally`: the round trips of a connection to the server, and its bytes as the system's TCP counts them."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable

from structable.backends.base.traffic import Tally
from structable.spi import Traffic

_RECEIVED = struct.Struct("=128xQ")  # struct tcp_info of linux/tcp.h: tcpi_bytes_received
_SENT = struct.Struct("=200xQ")  # tcpi_bytes_sent, since Linux 4.19


class ServerTally(Tally):
    """The numbers of one connection; opening it is one round trip.

    libpq does not report transferred bytes. On Linux TCP_INFO does, including TLS overhead and retransmissions; on
    other systems, and for Unix sockets, the number is unknown. When libpq has closed a lost connection, the bytes since
    the last call of `count_bytes` are not counted.
    """

    __slots__ = ("_has_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.round_trips = 1
        self._has_bytes = False

    def count_bytes(self, descriptor: Callable[[], int | None]) -> None:
        """Read the numbers of a socket. Another thread may close it at any time: then `descriptor` returns None."""
        if not sys.platform.startswith("linux"):
            return
        number = descriptor()
        if number is None:
            return
        try:
            copied = socket.socket(fileno=os.dup(number))
        except OSError:
            return  # it was closed
        with copied:
            # After a close, the number may be another file's. A socket open now was open when its number was copied.
            if descriptor() != number or copied.family not in (socket.AF_INET, socket.AF_INET6):
                return
            try:
                info = copied.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT.size)
            except OSError:
                return  # the connection was reset
        if len(info) == _SENT.size:
            sent, received = _SENT.unpack(info)[0], _RECEIVED.unpack_from(info)[0]
            self._has_bytes = True
            # The thread that read first may be the last to get here.
            if sent > self.sent:
                self.sent = sent
            if received > self.received:
                self.received = received

    def traffic(self) -> Traffic:
        return super().traffic() if self._has_bytes else Traffic(self.round_trips)
