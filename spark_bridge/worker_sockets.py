"""The connection between a task in the JVM and its Python process."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["acknowledge"]


def acknowledge() -> None:
    """Acknowledge what this process has received over TCP, and send what it has to send at once.

    Spark sends a task's function, and then its input, with Nagle's algorithm on: the input waits until the function is
    acknowledged, which Linux delays by 40 ms in a process that Spark uses again.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return  # only Linux has it, and only there do open files have names
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or none of TCP
            is_blocking = os.get_blocking(int(name))
            connection = socket.socket(fileno=int(name))
            try:
                os.set_blocking(int(name), is_blocking)  # a default time-out of the program changes it
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            finally:
                connection.detach()
