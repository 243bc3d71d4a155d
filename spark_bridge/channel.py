"""Authenticated connections between the keeper of snapshots and its clients.

Both sides prove by HMAC that they know the application's secret before either reads a message, so that nothing is
unpickled from a stranger.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TypeAlias

from structable.spi import UnsupportedOperationError

__all__ = ["Address", "Channel", "Door", "open_channel", "receive", "send"]

Address: TypeAlias = tuple[str, int]
Channel: TypeAlias = "Connection[object, object]"

_HANDSHAKE_SECONDS = 10
_MOST_BYTES = 2**31 - 1


class Door:
    """Listens on a free port, and serves every authenticated connection in a thread of its own.

    Parameters
    ----------
    host : str
        The address to listen on.
    secret : bytes
        What both sides must know.
    serve : callable
        Takes the connection, which is closed when it returns.
    """

    def __init__(self, host: str, secret: bytes, serve: Callable[[Channel], None]) -> None:
        self._secret = secret
        self._serve = serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="structable-keeper-door", daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that are open stay open."""
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
            threading.Thread(target=self._welcome, args=(accepted,), name="structable-keeper", daemon=True).start()

    def _welcome(self, accepted: socket.socket) -> None:
        _set_up(accepted)
        _limit_receiving(accepted, _HANDSHAKE_SECONDS)
        connection: Channel = Connection(accepted.detach())
        with connection:
            try:
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
            except (AuthenticationError, EOFError, OSError):
                return  # a stranger; there is nobody to tell
            _limit_receiving_of(connection, 0)
            self._serve(connection)


def open_channel(address: Address, secret: bytes) -> Channel:
    """Return an authenticated connection to a `Door`; a context manager.

    Raises
    ------
    OSError, EOFError, AuthenticationError
        If nobody listens there, or somebody who does not know the secret.
    """
    connected = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
    connected.settimeout(None)
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
    """Send any picklable object.

    Raises
    ------
    UnsupportedOperationError
        If it takes 2 GiB or more; then nothing was sent.
    OSError
        If the other side has ended.
    """
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if len(data) > _MOST_BYTES:
        raise UnsupportedOperationError(
            f"a message of {len(data):,} bytes between Spark's processes and the keeper of snapshots; at most "
            f"{_MOST_BYTES:,} can be sent. It holds the conditions of a query, or the list of what its tasks staged: "
            "use a join instead of long lists of values, and fewer partitions"
        )
    channel.send_bytes(data)


def receive(channel: Channel) -> object:
    """Return what the other side sent, which must be trusted, as it is unpickled.

    Raises
    ------
    OSError, EOFError
        If the other side has ended, also in the middle of a message.
    """
    return pickle.loads(channel.recv_bytes(_MOST_BYTES))


def _set_up(connected: socket.socket) -> None:
    # Two small messages one after the other, as in a handshake, would wait for the delayed acknowledgement: 40 ms.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that vanished says no goodbye, and its readers would hold their snapshots for ever.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _limit_receiving(connected: socket.socket, seconds: int) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


def _limit_receiving_of(connection: Channel, seconds: int) -> None:
    borrowed = socket.socket(fileno=connection.fileno())
    try:
        _limit_receiving(borrowed, seconds)
    finally:
        borrowed.detach()
