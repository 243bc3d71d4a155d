"""File descriptors: few of them, none left, and back to few when many were needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

import pytest

from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.ordered.engine import EngineSnapshot, Pair, WriteSet
from structable.spi import StorageUnavailableError
from tests.waiting import until

from .support.engines import SPACE, key, open_engine, put
from .support.processes import Process

Run = Callable[[str], Process]

_SCANS = int(os.environ.get("STRUCTABLE_TEST_SCANS", "1000"))
ROWS = 2_000
"""More than the first frame of a scan holds, so that an open one has a connection of its own."""

OWNER = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
engine = open_engine(folder)
engine.commit(None, WriteSet({key(f"{number:05}"): b"x" * 100 for number in range(2_000)}))
send("ready")
while command := receive():
    if command == "hoard":
        files = []
        try:
            while True:
                files.append(open("/dev/null"))
        except OSError:
            send("hoarded")
    elif command == "let go":
        while files:
            files.pop().close()
        send("let go")
    else:
        put(engine, command, b"1")
        send("put")
engine.close()
"""


def _descriptors(process: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def _begin_scans(snapshot: EngineSnapshot, scans: ExitStack) -> StorageUnavailableError:
    """Begin scans until one is refused, then close the last; return the refusal."""
    scan: Iterator[Pair] | None = None
    while True:
        try:
            following = _begin_scan(snapshot)
        except StorageUnavailableError as error:
            assert scan is not None
            scan.close()  # type: ignore[attr-defined]
            return error
        scan = following
        scans.callback(scan.close)  # type: ignore[attr-defined]


def _begin_scan(snapshot: EngineSnapshot) -> Iterator[Pair]:
    scan = snapshot.scan(SPACE, SPACE + b"\xff")
    next(scan)
    return scan


def _fill(engine: LevelDBEngine) -> None:
    engine.commit(None, WriteSet({key(f"{number:05}"): b"x" * 100 for number in range(ROWS)}))


def test_owner_whose_descriptors_clients_use_up_goes_on(folder: Path, run: Run) -> None:
    owner = run(OWNER)
    assert owner.receive() == "ready"
    engine = open_engine(folder, request_timeout=0.5)
    snapshot = engine.begin(True)
    with ExitStack() as scans:
        refused = _begin_scans(snapshot, scans)
        assert "its limit of 64 open files" in str(refused)
        scans.pop_all().close()
        _begin_scans(snapshot, scans)
        assert snapshot.get(key("00001")) == b"x" * 100, "on the connection whose scan was closed"
        put(engine, "client", b"1")
        owner.send("owner")
        assert owner.receive() == "put", "descriptors are left for LevelDB"
        newcomer = run(
            """
send("started")
engine = open_engine(folder)
send(engine.get(key("owner")))
receive()
"""
        )
        with ThreadPoolExecutor() as waiting:
            started = waiting.submit(newcomer.receive)
            while not started.done():  # reads keep the last connection from being closed as idle
                assert snapshot.get(key("00001")) == b"x" * 100
                wait([started], timeout=0.05)
        assert started.result() == "started"
        assert snapshot.get(key("00001")) == b"x" * 100
    assert newcomer.receive() == "b'1'"
    snapshot.close()
    engine.close()


def test_owner_without_descriptors_accepts_when_it_has_some(folder: Path, run: Run) -> None:
    owner = run(OWNER)
    assert owner.receive() == "ready"
    owner.send("hoard")
    assert owner.receive() == "hoarded"
    waiting = open_engine(folder, request_timeout=0.5)  # by the descriptor that `accept` has waited with
    with pytest.raises(StorageUnavailableError, match=f"process {owner.process.pid}"):
        waiting.get(key("00001"))
    owner.send("let go")
    assert owner.receive() == "let go"
    assert waiting.get(key("00001")) is not None
    waiting.close()
    engine = open_engine(folder)
    assert isinstance(engine.route, Client)
    assert engine.get(key("00001")) is not None
    engine.close()


def test_client_with_few_descriptors_keeps_what_it_has(folder: Path, run: Run) -> None:
    assert run(OWNER.replace("resource.setrlimit", "(lambda *_: None)")).receive() == "ready"
    client = run(
        """
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
engine = open_engine(folder)
route = engine.route
snapshot = engine.begin(False)
scans = []
for _ in range(2):
    try:
        while True:
            scans.append(snapshot.scan(SPACE, SPACE + b"\\xff"))
    except StorageUnavailableError as error:
        send(error)
    assert len(list(scans.pop())) >= 2_000
    put(engine, "mine", b"1")
    assert snapshot.get(key("00001")) == b"x" * 100
    while scans:
        scans.pop().close()
assert engine.route is route
send("went on")
receive()
"""
    )
    for _ in range(2):
        assert client.receive().startswith("cannot open another connection to the owner")
    assert client.receive() == "went on"


def test_descriptors_come_back_when_many_scans_were_open(folder: Path, run: Run) -> None:
    owner = run(OWNER.replace("resource.setrlimit", "(lambda *_: None)"))
    assert owner.receive() == "ready"
    engine = open_engine(folder)
    here, there = _descriptors(), _descriptors(owner.process.pid)
    snapshot = engine.begin(True)
    scans = [_begin_scan(snapshot) for _ in range(min(200, _SCANS))]
    route = engine.route
    assert isinstance(route, Client)
    assert len(route.pool.open) >= len(scans)
    for scan in scans:
        scan.close()  # type: ignore[attr-defined]
    snapshot.close()
    until(lambda: _descriptors() <= here + 4 and _descriptors(owner.process.pid) <= there + 4)
    assert engine.get(key("00001")) == b"x" * 100
    engine.close()


def test_many_scans_one_after_the_other_need_few_descriptors(folder: Path, run: Run) -> None:
    assert run(OWNER).receive() == "ready"
    engine = open_engine(folder)
    before = _descriptors()
    for number in range(_SCANS):
        snapshot = engine.begin(bool(number % 2))
        scan = _begin_scan(snapshot)
        if number % 3:
            snapshot.close()
        scan.close()  # type: ignore[attr-defined]
        snapshot.close()
    assert _descriptors() <= before + 4
    engine.close()


def test_snapshot_is_freed_where_every_connection_is_in_use(engine: LevelDBEngine, folder: Path, run: Run) -> None:
    """Freeing it needs no connection: it goes with the next connection that is given back."""
    _fill(engine)
    client = run(
        """
engine = open_engine(folder)
snapshots = [engine.begin(True) for _ in range(3)]
scans = [snapshot.scan(SPACE, SPACE + b"\\xff") for snapshot in snapshots]
for scan in scans:
    next(scan)
for snapshot in snapshots:
    snapshot.close()
send(len(engine.route.pool.open))
receive()
scans.pop().close()
send("closed")
receive()
"""
    )
    assert client.receive() == "4"
    server = engine.membership.server  # type: ignore[union-attr]
    assert server is not None
    [session] = server.service.sessions
    assert len(session.snapshots) == 3
    client.send()
    assert client.receive() == "closed"
    until(lambda: not session.snapshots)


def test_closed_and_killed_clients_leave_no_descriptors(engine: LevelDBEngine, run: Run) -> None:
    _fill(engine)
    before = _descriptors()
    for how in ("close", "kill"):
        client = run("engine = open_engine(folder)\nengine.get(key(1))\nsend('ready')\nreceive()\nengine.close()\n")
        assert client.receive() == "ready"
        if how == "close":
            client.send()
            assert client.end() == 0
        client.close()
        until(lambda: _descriptors() <= before)
