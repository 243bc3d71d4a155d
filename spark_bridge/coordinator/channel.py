"""Authenticated connections between the coordinator and its clients.

Both sides prove by HMAC that they know the application's secret before either reads a message, so nothing is unpickled
from a peer outside the application.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TypeAlias

from structable.spi import UnsupportedOperationError

Address: TypeAlias = tuple[str, int]
Channel: TypeAlias = "Connection[object, object]"

_log = logging.getLogger("structable.spark")

_HANDSHAKE_SECONDS = 10
MOST_BYTES = 2**31 - 1


class ChannelServer:
    """Listens on a free port and serves every authenticated connection in a separate thread.

    `serve` receives the connection, which is closed when it returns.
    """

    def __init__(self, host: str, secret: bytes, serve: Callable[[Channel], None]) -> None:
        self._secret = secret
        self._serve = serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=256)
        self._listener.settimeout(None)  # the program may have set a default
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="structable-coordinator-listener", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which `close` alone does not
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                try:
                    self._listener.getsockname()
                except OSError:
                    return
                continue
            threading.Thread(target=self._welcome, args=(accepted,), name="structable-coordinator", daemon=True).start()

    def _welcome(self, accepted: socket.socket) -> None:
        _set_up(accepted)
        _limit_receiving(accepted, _HANDSHAKE_SECONDS)
        connection: Channel = Connection(accepted.detach())
        with connection:
            try:
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
            except (AuthenticationError, EOFError, OSError):
                return  # a peer outside this application
            _limit_receiving_of(connection, 0)
            try:
                self._serve(connection)
            except Exception:  # of one connection; the listener serves the others
                _log.exception("a connection to the coordinator was closed by an error")


def open_channel(address: Address, secret: bytes) -> Channel:
    """Return an authenticated connection to a `ChannelServer`; a context manager.

    Raises OSError, EOFError or AuthenticationError if nothing listens there, or the peer does not know the secret.
    """
    connected = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
    _set_up(connected)
    _limit_receiving(connected, _HANDSHAKE_SECONDS)
    connection: Channel = Connection(connected.detach())
    try:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
    except BaseException:
        connection.close()
        raise
    _limit_receiving_of(connection, 0)
    return connection


def send(channel: Channel, message: object) -> None:
    """Send a picklable object, of less than 2 GiB; OSError if the other side has ended."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if len(data) > MOST_BYTES:
        raise UnsupportedOperationError(
            f"a message of {len(data):,} bytes between Spark's processes and the coordinator; at most "
            f"{MOST_BYTES:,} can be sent. The message holds the conditions of a query, or the list of its staged "
            "partitions: use a join instead of long lists of values, and fewer partitions"
        )
    channel.send_bytes(data)


def receive(channel: Channel) -> object:
    """Return the next message, unpickled: only an authenticated peer may send it.

    Raises OSError or EOFError if the other side has ended, even in the middle of a message.
    """
    return pickle.loads(channel.recv_bytes(MOST_BYTES))


def _set_up(connected: socket.socket) -> None:
    connected.settimeout(None)
    # Without this, two small messages in a row, as in a handshake, wait 40 ms for the delayed acknowledgement.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that vanishes closes no connection: its readers would hold their snapshots for ever.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _limit_receiving(connected: socket.socket, seconds: int) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


def _limit_receiving_of(connection: Channel, seconds: int) -> None:
    borrowed = socket.socket(fileno=connection.fileno())
    try:
        borrowed.settimeout(None)  # a default of the program would have made it return at once
        _limit_receiving(borrowed, seconds)
    finally:
        borrowed.detach()
