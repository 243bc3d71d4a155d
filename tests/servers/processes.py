"""The processes of a test server: found, killed, and waited for."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

HOST = "127.0.0.1"

_TIMEOUT = 60  # seconds that a killed process gets to end


class ServerFailedError(RuntimeError):
    """The server did not start or stop. The message ends with the server's log."""


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens.

    It lies below those that Linux gives to outgoing connections, so that a server that is down for a while finds it
    free again.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), closing(socket.create_server((HOST, port))):
            return port


def children(pid: int) -> list[int]:
    """Return the running processes that a process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # PID (NAME) STATE PARENT ..., where the name may hold anything
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def end_and_wait(pids: Sequence[int], how: int = signal.SIGKILL, *, timeout: float = _TIMEOUT) -> None:
    """Signal all processes, and return when they have ended; ServerFailedError after `timeout` seconds."""
    handles = []
    for pid in pids:
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    try:
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, how)
        for handle in handles:
            if not select.select([handle], [], [], timeout)[0]:
                raise ServerFailedError(f"a process of the server did not end by {signal.Signals(how).name}")
    finally:
        for handle in handles:
            os.close(handle)


def wait_for_end(pid: int) -> None:
    """Wait until a process ends that need not be a child of this one."""
    handle = os.pidfd_open(pid)
    try:
        assert select.select([handle], [], [], 60)[0], f"process {pid} runs on"
    finally:
        os.close(handle)


def kill_when_reached(command: Sequence[str], points: Iterable[str]) -> None:
    """Run a program until it has printed the names of all points, and kill it with the processes it started."""
    wanted = set(points)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            assert program.stdout is not None
            while wanted and (line := program.stdout.readline()):
                wanted.discard(line.strip())
        finally:
            os.killpg(program.pid, signal.SIGKILL)
    assert not wanted
