"""Calls of plyvel that must end before a database is closed, or its state is frozen for readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from structable.backends.leveldb.native.native_guard import native_call, native_upkeep, wait_for_native_calls

from .support.processes import Process

INTERRUPTED = """
from structable.backends.leveldb.native.native_guard import native_call, wait_for_native_calls
from structable.backends.base.uninterrupted import uninterrupted

class Interruption(Exception):
    pass

entered, seen, begun = threading.Event(), threading.Event(), threading.Event()
found = []

def close():
    begun.set()
    entered.wait()
    found.append(wait_for_native_calls(0.0))
    seen.set()

def interrupt():
    begun.wait()
    while not entered.is_set():
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.001)

@native_call
def inside():
    entered.set()
    seen.wait()
"""

AFTER = """
going_on = False
def handle(*_):
    if not going_on:
        raise Interruption
signal.signal(signal.SIGUSR1, handle)
interrupter = threading.Thread(target=interrupt)
interrupter.start()
try:
    uninterrupted(close)
except Interruption:
    going_on = True
    inside()
interrupter.join()
send(found[0])
"""

IN_HANDLER = """
def handle(*_):
    if not entered.is_set():
        inside()
signal.signal(signal.SIGUSR1, handle)
interrupter = threading.Thread(target=interrupt)
interrupter.start()
uninterrupted(close)
interrupter.join()
send(found[0])
"""

IN_NEXT_WORK = """
def handle(*_):
    if not entered.is_set():
        raise Interruption
signal.signal(signal.SIGUSR1, handle)
interrupter = threading.Thread(target=interrupt)
interrupter.start()
@native_call
def wait_for_work():
    entered.set()
    uninterrupted(seen.wait)
try:
    uninterrupted(close)
except Interruption:
    wait_for_work()
interrupter.join()
send(found[0])
"""


@pytest.mark.parametrize("script", [AFTER, IN_HANDLER], ids=["after", "in a handler"])
def test_main_thread_that_goes_on_counts_as_inside(run: Callable[[str], Process], script: str) -> None:
    """It no longer waits for the thread that works for it, or runs a signal's handler as it waits."""
    assert run(INTERRUPTED + script).receive() == "False"


def test_main_thread_that_waits_for_more_work_is_outside(run: Callable[[str], Process]) -> None:
    assert run(INTERRUPTED + IN_NEXT_WORK).receive() == "True"


def test_a_bulk_commit_waits_for_readers_of_the_newest_state_alone() -> None:
    """Closing the database waits for scans and compactions, too."""
    entered, left = threading.Event(), threading.Event()

    @native_upkeep
    def compact() -> None:
        entered.set()
        left.wait()

    @native_call
    def scan() -> Iterator[int]:
        compact()
        yield 1

    thread = threading.Thread(target=lambda: list(scan()))
    thread.start()
    entered.wait()
    assert wait_for_native_calls(0, newest_state=True)
    assert not wait_for_native_calls(0)
    left.set()
    thread.join()


@pytest.mark.parametrize("call", ["engine.begin(True).close()", 'engine.get(key("before"))'], ids=["begin", "get"])
@pytest.mark.parametrize("thread", ["other", "main"])
def test_reader_that_waits_for_the_database_does_not_keep_it_open(
    run: Callable[[str], Process], call: str, thread: str
) -> None:
    """A reopened database that could not be recovered is closed again, and opened by the next attempt."""
    process = run(
        """
from structable.backends.leveldb.owner import database_handle
from tests.waiting import until
database_handle.READERS_LEAVE = 1e6
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
engine = open_engine(folder)
put(engine, "before", b"1")
store = engine.route.store
waits, tried = threading.Event(), []

def recover(_):
    tried.append(1)
    if len(tried) == 1:
        waits.set()
        until(lambda: any(pending.exclusive for pending in store.committer.queue))
        raise StorageUnavailableError("not yet")
    return b"[]"

engine.upcalls.procedures["recover"] = recover

def succeeds(call):
    try:
        call()
    except StorageUnavailableError:
        return False
    return True

def read():
    waits.wait()
    until(lambda: succeeds(lambda: CALL))

def heal():
    until(lambda: succeeds(lambda: put(engine, "after", b"2")))

log = max((folder / "database").glob("*.log"), key=lambda path: path.stat().st_mtime)
resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 40, resource.RLIM_INFINITY))
try:
    put(engine, "failed", bytes(3000))
except StorageUnavailableError:
    send("failed")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
here, there = (read, heal) if MAIN else (heal, read)
other = threading.Thread(target=there)
other.start()
here()
other.join()
send(len(tried), len(read_all(engine)))
engine.close()
""".replace("CALL", call).replace("MAIN", str(thread == "main"))
    )
    assert process.receive() == "failed"
    assert process.receive() == "2 2"
