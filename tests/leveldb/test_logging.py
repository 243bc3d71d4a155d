"""The messages of the logger `structable.leveldb`."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.backends.leveldb.native.database import Database, WriteFailedError
from structable.spi import StorageUnavailableError
from tests.waiting import until

from .support.engines import key, open_engine, put
from .support.processes import SERVE, Process

Run = Callable[[str], Process]
CONNECT = (
    'engine = open_engine(folder)\nengine.get(b"key")\n'
    'send("ready")\nreceive()\nengine.close()\nsend("closed")\nreceive()'
)
PLAN = 'engine = open_engine(folder)\nplan = engine.plan_splits(SPACE, SPACE + b"\\xff", 1)\nsend("ready")\nreceive()'


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.INFO, "structable.leveldb")
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def test_change_of_owners(folder: Path, run: Run, messages: Callable[[], str]) -> None:
    owner = run(SERVE)
    assert owner.receive() == "ready"
    engine = open_engine(folder)
    assert f"is a client of process {owner.process.pid}" in messages()
    owner.signal(signal.SIGKILL)
    owner.process.wait()
    put(engine, "a", b"1")
    assert f"lost process {owner.process.pid}, the owner of the database in {folder}" in messages()
    assert f"owns the database in {folder}" in messages()
    engine.close()
    assert f"gave up the database in {folder}" in messages()


def test_clients_that_close_and_that_are_lost(folder: Path, run: Run, messages: Callable[[], str]) -> None:
    engine = open_engine(folder)
    client = run(CONNECT)
    assert client.receive() == "ready"
    assert messages().count("connected") == 1
    client.send()
    assert client.receive() == "closed"
    until(lambda: " closed" in messages())
    lost = run(CONNECT)
    assert lost.receive() == "ready"
    lost.signal(signal.SIGKILL)
    until(lambda: " was lost" in messages())
    engine.close()


def test_failed_write_and_reopening(folder: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], str]) -> None:
    engine = open_engine(folder)

    def fail(self: Database, key: bytes, value: bytes, sync: bool) -> None:
        monkeypatch.undo()
        self.write_failed = True
        raise WriteFailedError("IO error: no space")

    monkeypatch.setattr(Database, "put", fail)
    with pytest.raises(StorageUnavailableError, match="no space"):
        put(engine, "a", b"1")
    assert "failed and was rolled back: IO error: no space" in messages()
    put(engine, "a", b"2")
    assert "reopened the database" in messages()
    assert engine.get(key("a")) == b"2"
    engine.close()


def test_log_that_a_crash_tore(folder: Path, run: Run, messages: Callable[[], str]) -> None:
    process = run(
        'engine = open_engine(folder)\nput(engine, "a", b"x" * 100)\nput(engine, "b", b"x" * 100)\nsend("done")'
    )
    assert process.receive() == "done"
    process.signal(signal.SIGKILL)
    process.process.wait()
    log = max((folder / "database").glob("*.log"), key=lambda path: path.stat().st_size)
    with open(log, "r+b") as file:
        file.seek(-20, 2)
        file.write(bytes(20))
    engine = open_engine(folder)
    assert "off the logs" in messages()
    engine.close()


def test_plan_of_a_killed_process(folder: Path, run: Run, messages: Callable[[], str]) -> None:
    engine = open_engine(folder)
    put(engine, "a", b"1")
    planner = run(PLAN)
    assert planner.receive() == "ready"
    planner.signal(signal.SIGKILL)
    planner.process.wait()
    engine.plan_splits(b"", b"\xff", 1).release()
    assert "removed the checkpoint" in messages()
    engine.close()
