"""Processes forked from one that has used LevelDB: its thread, and its table of open databases, are not theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structable.backends.base.background import BackgroundThread
from structable.spi import connect

PROGRAM = """
import os, signal, sys
from structable.spi import Field, StorageUnavailableError, TableSpecification, connect, read_split

url, other = sys.argv[1:]
SPEC = TableSpecification("t", [Field.int("k"), Field.string("s")], primary_key=["k"])

def opened(url, **options):
    return connect(url, durability="process", write_buffer=1, **options)

def fill(storage, mebibytes):
    storage.admin.create_or_update(SPEC)
    for begin in range(0, 8 * mebibytes, 8):
        storage.table("t").upsert_many([{"k": begin + k, "s": os.urandom(1 << 16).hex()} for k in range(8)])

def refused(url):
    try:
        opened(url)
    except StorageUnavailableError as error:
        assert error.lasting
        assert "it was forked from a process that had used LevelDB" in str(error), error
    else:
        raise AssertionError("it was opened")

def in_child(work):
    child = os.fork()
    if not child:
        signal.alarm(100)
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


def run(folder: Path, program: str) -> None:
    urls = (f"leveldb://{folder}/db", f"leveldb://{folder}/other")
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM + program, *urls], check=True, timeout=200)


@pytest.mark.parametrize("place", ["url", "other"])
def test_child_cannot_own_once_the_thread_was_started(tmp_path: Path, place: str) -> None:
    """Its first compaction would never end. It is a client, and reads copies, as any process."""
    run(
        tmp_path,
        f"""
with opened(url) as storage:
    fill(storage, 5)
in_child(lambda: refused({place}))

def read():
    with connect(url, read_only=True) as storage:
        assert storage.table("t").count() == 40
        with storage.plan_scan("t") as plan:
            assert sum(batch.num_rows for split in plan.splits for batch in read_split(url, split)) == 40

in_child(read)
with opened(url) as storage:
    in_child(lambda: fill(opened(url), 3))
    assert storage.table("t").count() == 40
""",
    )


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN"])
def test_child_can_own_where_no_thread_was_started(tmp_path: Path, handler: str) -> None:
    """So a server may make its tables before it forks its workers, whether it waits for processes that end or not."""
    run(
        tmp_path,
        f"""
with opened(url) as storage:
    fill(storage, 0)

def write():
    signal.signal(signal.SIGCHLD, signal.{handler})
    with opened(url) as storage:
        fill(storage, 5)

in_child(write)
with opened(url) as storage:
    assert storage.table("t").count() == 40
""",
    )


def test_child_of_the_owner_cannot_take_over(tmp_path: Path) -> None:
    """LevelDB's table in the child says that the database is open there."""
    run(
        tmp_path,
        """
storage = opened(url)
fill(storage, 0)
begin, end = os.pipe()
told, telling = os.pipe()

def survive():
    os.close(end)
    client = opened(url)
    assert client.table("t").count() == 0
    os.write(telling, b"x")
    os.read(begin, 1)  # until the parent has closed it
    try:
        client.run(lambda tx: tx.table("t").count())
    except StorageUnavailableError as error:
        assert error.lasting
        assert "it was forked" in str(error), error
    else:
        raise AssertionError("it took over")
    refused(url)
    with opened(other) as own:
        fill(own, 5)

def close_meanwhile():
    os.read(told, 1)
    storage.close()
    os.close(end)

import threading
threading.Thread(target=close_meanwhile).start()
in_child(survive)
""",
    )
    with connect(f"leveldb://{tmp_path}/db") as storage:
        assert storage.table("t").count() == 0


def test_stop_in_a_child_waits_for_no_lock_of_its_parent() -> None:
    thread = BackgroundThread("worker", os.sync)
    with thread.lock:
        child = os.fork()
        if not child:
            signal.alarm(30)
            thread.stop()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
