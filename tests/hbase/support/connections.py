"""Raw connections to a Thrift gateway, and the moment from which it serves."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from tests.servers.processes import ServerFailedError

if TYPE_CHECKING:
    import happybase

START_TIMEOUT = 120.0
"""Seconds that a server gets to start."""

READY = "server_ready"
"""A table; the gateway serves once a put to it succeeds."""


def connect(
    host: str, port: int, *, timeout: float = 30.0, framed: bool = False, compact: bool = False
) -> happybase.Connection:
    """Open happybase's connection to a gateway; its calls fail after that many seconds."""
    import happybase

    return happybase.Connection(
        host,
        port,
        timeout=int(timeout * 1000),
        transport="framed" if framed else "buffered",
        protocol="compact" if compact else "binary",
    )


def wait_until_served(
    opened: Callable[[], happybase.Connection],
    running: Callable[[], bool] = lambda: True,
    *,
    timeout: float = START_TIMEOUT,
) -> None:
    """Return when a put through the gateway succeeds, or raise ServerFailedError after `timeout` seconds.

    After a restart the gateway lists its tables seconds before their regions are served.
    """
    deadline = time.monotonic() + timeout
    ended = 0  # consecutive looks without a process: one may be just starting
    while True:
        try:
            with closing(opened()) as connection:
                if READY.encode() not in connection.tables():
                    connection.create_table(READY, {"f": {}})
                connection.table(READY).put(b"row", {b"f:c": b"value"})
            return
        except Exception as error:  # of the connection, or of HBase, which is just starting
            ended = 0 if running() else ended + 1
            if ended == 5 or time.monotonic() > deadline:
                raise ServerFailedError(f"the gateway does not serve: {error!r}") from error
        time.sleep(0.05)
