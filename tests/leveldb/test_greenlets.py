"""Processes in which gevent has replaced threads, locks and sockets: as owners, as clients, and forked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.processes import SERVE, Process

GREENLETS = "from gevent import monkey\nmonkey.patch_all()\n"
RECEIVE = """
if "gevent" in sys.modules:
    import gevent
    def receive(): return gevent.get_hub().threadpool.apply(sys.stdin.readline).strip()
"""
"""Waits for input in a thread: the other greenlets go on."""
COUNT = """
engine = open_engine(folder)
send(type(engine.route).__name__)
def work():
    for _ in range(25):
        engine.commit(None, WriteSet(increments={key("n"): (Increment(b"", "n", 1),)}))
        read_all(engine)
threads = [threading.Thread(target=work) for _ in range(4)]
receive()
for thread in threads: thread.start()
for thread in threads: thread.join()
send("done")
receive()
send(engine.get(key("n")), type(engine.route).__name__)
engine.close()
send("closed")
"""
STOPPED = """
engine = open_engine(folder, request_timeout=1.0)
put(engine, "a", b"1")
send("ready")
receive()
try:
    engine.get(key("a"))
except StorageUnavailableError as error:
    send(error)
receive()
"""
FORKING = """
import gc
engine = open_engine(folder)
send("ready")
receive()
child = os.fork()
if not child:
    while [one for one in gc.get_objects() if isinstance(one, gevent.Greenlet) and not one.dead]:
        time.sleep(0.01)
    os._exit(7)
send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
receive()
engine.close()
"""


@pytest.fixture
def processes(folder: Path) -> Iterator[list[Process]]:
    """Collect processes that are killed at the end."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.close()


@pytest.mark.parametrize(("owner", "client"), [(GREENLETS, ""), ("", GREENLETS), (GREENLETS, GREENLETS)])
def test_greenlets_and_threads_of_two_processes(
    folder: Path, processes: list[Process], owner: str, client: str
) -> None:
    """They share a database, and the client owns it when the owner ends."""
    for first, route in ((owner, "LocalRoute"), (client, "Client")):
        processes.append(Process(RECEIVE + COUNT, folder, first))
        assert processes[-1].receive() == route
    for process in processes:
        process.send()
    for process in processes:
        assert process.receive() == "done"
    for process in processes:
        process.send()
        assert process.receive() == f"{b'200'!r} LocalRoute"
        assert process.receive() == "closed"
        assert process.end() == 0


def test_stopped_owner_times_out_for_greenlets(folder: Path, processes: list[Process]) -> None:
    owner, client = Process(SERVE, folder), Process(RECEIVE + STOPPED, folder, GREENLETS)
    processes += [owner, client]
    assert (owner.receive(), client.receive()) == ("ready", "ready")
    owner.signal(signal.SIGSTOP)
    client.send()
    assert "has not answered for 1 seconds" in client.receive()


def test_greenlets_of_an_owner_end_in_a_forked_process(folder: Path, processes: list[Process]) -> None:
    """They would take its clients' connections."""
    processes.append(owner := Process(RECEIVE + FORKING, folder, GREENLETS))
    assert owner.receive() == "ready"
    processes.append(client := Process(RECEIVE + COUNT, folder))
    assert client.receive() == "Client"
    owner.send()
    assert owner.receive() == "7"
    client.send()
    assert client.receive() == "done"
    client.send()
    assert client.receive() == f"{b'100'!r} Client"
