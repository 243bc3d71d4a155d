"""Other processes that benchmarks communicate with: one that owns a database, and one that answers on a bare socket."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from structable.spi import connect

_SPAWN = multiprocessing.get_context("spawn")
_STARTED = 60.0


@contextmanager
def _process(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run a function in a separate process; it reports when it is ready, and ends on request."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_STARTED):
            raise TimeoutError(f"the process of {target.__name__} did not start within {_STARTED:.0f} s")
        here.recv()
        yield
    finally:
        here.close()
        process.join(_STARTED)


def _own(pipe: Connection, url: str) -> None:
    with connect(url) as storage:
        pipe.send(storage.admin.list())
        _until_closed(pipe)


def _until_closed(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return


@contextmanager
def owner(url: str) -> Iterator[None]:
    """Let another process open a store first, so that it owns the database and this process is its client."""
    with _process(_own, url):
        yield


def _answer(pipe: Connection, path: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        pipe.send("listening")
        connection, _ = listener.accept()
        with connection:
            while request := connection.recv(1 << 16):
                # The first two bytes are the length of the requested answer.
                connection.sendall(bytes(int.from_bytes(request[:2], "big")))


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread on the core of the process that answers `bare_exchange`."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def bare_exchange(folder: Path) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that sends a frame of one size to another Python process and waits for one of another size.

    A round trip takes ten times as long if the two processes sleep and wake on different cores, which the scheduler
    decides arbitrarily. So the other process stays on one core, and the caller of the function moves there with
    `on_one_core`.
    """
    path = str(folder / "bare")
    with (
        _process(_answer, path, min(os.sched_getaffinity(0))),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
    ):
        client.connect(path)

        def exchange(request: int, answer: int) -> None:
            client.sendall(answer.to_bytes(2, "big") + bytes(request - 2))
            received = 0
            while received < answer:
                received += len(client.recv(1 << 16))

        yield exchange
