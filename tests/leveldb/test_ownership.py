"""Owners that come and go: no `connect` and no `close` fails because another process does."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.client.client import Client
from structable.backends.leveldb.owner.local_route import LocalRoute
from structable.backends.leveldb.owner.store import LocalStore
from structable.spi import Field, StorageUnavailableError, TableSpecification, connect
from tests.variants import chosen_seed

from .support.engines import key, open_engine, put
from .support.processes import LONGEST, SERVE, Process

Run = Callable[[str], Process]

_SECONDS = float(os.environ.get("STRUCTABLE_TEST_OWNER_CHANGES", "6"))

COMER_AND_GOER = """
import random
from structable.spi import connect
end = time.monotonic() + float(receive())
number = 0
while time.monotonic() < end:
    storage = connect(f"leveldb://{folder}?durability=process&request_timeout=20")
    table = storage.table("t")
    for _ in range(random.randrange(3)):
        number += 1
        row = {"k": f"{os.getpid()}-{number}", "n": number}
        table.upsert(row)
        send(row["k"])
        assert table.read({"k": row["k"]})["n"] == number
    storage.close()
send("ended")
"""


def test_processes_that_open_use_and_close_at_random(folder: Path, run: Run) -> None:
    """Some are killed. Acknowledged writes are there, and the folder opens afterwards."""
    seed = chosen_seed("ownership")
    chance = random.Random(seed)
    url = f"leveldb://{folder}"
    with connect(url) as storage:
        storage.admin.create_or_update(TableSpecification("t", [Field.string("k"), Field.long("n")], ["k"]))
    heard: dict[Process, list[str]] = {}

    def listen(process: Process) -> None:
        while line := process.receive():
            heard[process].append(line)

    listeners: list[threading.Thread] = []

    def start(seconds: float) -> None:
        process = run(COMER_AND_GOER)
        process.send(str(seconds))
        heard[process] = []
        listeners.append(threading.Thread(target=listen, args=(process,)))
        listeners[-1].start()

    end = time.monotonic() + _SECONDS
    for _ in range(4):
        start(_SECONDS)
    killed: set[Process] = set()
    while (left := end - time.monotonic()) > 1.0:
        time.sleep(chance.random())
        process = chance.choice([process for process in heard if process not in killed])
        process.signal(signal.SIGKILL)
        killed.add(process)
        start(left)
    for listener in listeners:
        listener.join()
    for process, lines in heard.items():
        assert process in killed or lines[-1] == "ended", f"seed {seed}: a process failed, see its traceback"
    with connect(url, request_timeout=10.0) as storage:
        rows = {row["k"] for row in storage.table("t").scan()}
    acknowledged = {line for lines in heard.values() for line in lines if "-" in line}
    assert acknowledged <= rows, f"seed {seed}"
    assert acknowledged


def test_request_to_an_owner_that_ends_is_turned_away(folder: Path, run: Run) -> None:
    """It was not begun, so the client repeats it at the next owner."""
    process = run(
        """
from structable.backends.leveldb.owner.connection import ServedConnection
original = ServedConnection.stop
def stop(self):
    send("stopping")
    receive()
    original(self)
ServedConnection.stop = stop
engine = open_engine(folder)
send("ready")
receive()
engine.close()
"""
    )
    assert process.receive() == "ready"
    engine = open_engine(folder)
    route = engine.route
    assert isinstance(route, Client)
    put(engine, "before", b"1")
    process.send()
    assert process.receive() == "stopping"
    writer = threading.Thread(target=put, args=(engine, "meanwhile", b"2"))
    writer.start()
    for _ in range(3):
        process.send()
    writer.join(LONGEST)
    assert process.end() == 0
    assert (engine.get(key("before")), engine.get(key("meanwhile"))) == (b"1", b"2")
    assert isinstance(engine.route, LocalRoute)
    engine.close()


CONNECTS = """
try:
    open_engine(folder, request_timeout=float(receive() or "20")).close()
    send("connected")
except StructableError as error:
    send(type(error).__name__, error)
receive()
"""


def _connects(run: Run, seconds: str = "") -> str:
    process = run(CONNECTS)
    process.send(seconds)
    return process.receive()


@pytest.mark.parametrize("step", ["accept", "pulse"])
def test_server_that_cannot_start_leaves_nothing(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == f"structable {step}":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(StorageUnavailableError, match="can't start new thread"):
        open_engine(folder)
    monkeypatch.undo()
    assert _connects(run) == "connected"
    assert not (folder / "socket").exists()
    engine = open_engine(folder)
    assert isinstance(engine.route, LocalRoute)
    engine.close()


def test_owner_without_another_thread_refuses_and_goes_on(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(folder)
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "structable connection":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    answer = _connects(run, "0.5")
    assert answer.startswith("StorageUnavailableError")
    assert "cannot start another thread" in answer
    monkeypatch.undo()
    assert _connects(run) == "connected"
    engine.close()
    assert _connects(run) == "connected"


@pytest.mark.parametrize("failure", [OSError("no more"), KeyboardInterrupt()])
def test_close_that_fails_gives_the_lock_away(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    engine = open_engine(folder)
    server = engine.membership.server  # type: ignore[union-attr]
    assert server is not None
    stop = server.stop

    def fail() -> None:
        stop()
        raise failure

    monkeypatch.setattr(server, "stop", fail)
    with pytest.raises(type(failure)):
        engine.close()
    assert _connects(run) == "connected"


def test_opening_that_is_interrupted_gives_the_lock_away(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: LocalStore, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "open", fail)
    with pytest.raises(KeyboardInterrupt):
        open_engine(folder)
    monkeypatch.undo()
    assert _connects(run) == "connected"


def test_procedure_for_a_client_ends_before_its_engine_does(folder: Path, run: Run) -> None:
    """The owner closes one of its two storages, which is working for a client."""
    process = run(
        """
engines = [make_engine(folder), make_engine(folder)]
closing = threading.Thread(target=engines[0].close)
def work(engine):
    def procedure(argument):
        closing.start()
        while not engines[0].closed:
            time.sleep(0.001)
        put(engine, "done", b"1")
        return b"worked"
    return procedure
for engine in engines:
    start(engine, work=work(engine))
send("ready")
receive()
closing.join()
engines[1].close()
"""
    )
    assert process.receive() == "ready"
    engine = open_engine(folder)
    assert engine.delegate("work", b"") == b"worked"
    assert engine.get(key("done")) == b"1"
    assert process.end() == 0
    engine.close()


def test_lock_file_that_was_removed_makes_no_second_owner(folder: Path, run: Run) -> None:
    process = run(SERVE)
    assert process.receive() == "ready"
    (folder / "lock").unlink()
    engine = open_engine(folder)
    assert isinstance(engine.route, Client)
    put(engine, "a", b"1")
    engine.close()


def test_owner_of_a_folder_that_was_made_again_leaves_the_new_one_alone(folder: Path, run: Run) -> None:
    old = run(SERVE)
    assert old.receive() == "ready"
    folder.rename(folder.with_name("old"))
    engine = open_engine(folder)
    assert isinstance(engine.route, LocalRoute)
    names = set(os.listdir(folder))
    assert old.end() == 0
    assert set(os.listdir(folder)) == names
    engine.close()


def test_folder_may_be_owned_where_descriptors_are_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader then waits, instead of reading a copy that misses what the owner writes."""

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    engine = open_engine(folder)
    with monkeypatch.context() as patch:
        patch.setattr("structable.backends.leveldb.folder.open_private", none_left)
        assert engine.folder.is_owned()
    engine.close()
    assert not engine.folder.is_owned()


@pytest.mark.parametrize("removed", ["socket", "owner"])
def test_socket_that_was_removed_is_made_anew(folder: Path, run: Run, removed: str) -> None:
    """Clients keep their snapshots, and new clients connect."""
    process = run(SERVE)
    assert process.receive() == "ready"
    engine = open_engine(folder)
    put(engine, "a", b"1")
    snapshot = engine.begin(False)
    assert snapshot.get(key("a")) == b"1"
    route = engine.route
    assert isinstance(route, Client)
    (folder / removed).unlink()
    route.pool.close_idle()
    assert snapshot.get(key("a")) == b"1", "on a new connection"
    snapshot.close()
    assert engine.route is route
    assert _connects(run) == "connected"
    engine.close()


def test_private_folder_that_was_cleaned_away_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("down" * 20)
    process = Process(SERVE, folder)
    try:
        assert process.receive() == "ready"
        engine = open_engine(folder)
        route = engine.route
        assert isinstance(route, Client)
        before = Path(route.pool.path)
        before.unlink()
        before.parent.rmdir()
        snapshot = engine.begin(False)
        route.pool.close_idle()
        assert snapshot.get(key("a")) is None
        snapshot.close()
        assert Path(route.pool.path) != before
        newcomer = Process(CONNECTS, folder)
        newcomer.send()
        assert newcomer.receive() == "connected"
        newcomer.close()
        engine.close()
        assert process.end() == 0
        assert not Path(route.pool.path).parent.exists()
    finally:
        process.close()


def test_program_that_ends_without_closing_hands_over(folder: Path) -> None:
    script = """
import sys
from structable.spi import connect
storage = connect(f"leveldb://{sys.argv[1]}")
"""
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", script, str(folder)], check=False, capture_output=True, text=True
        )
        assert (result.returncode, result.stderr) == (0, "")
    assert (folder / "clean").exists()
