"""Work done by another thread for the main thread, if no thread is available or the interpreter ends."""

from __future__ import annotations

import _thread
import subprocess
import sys

import pytest

from structable.backends.base.uninterrupted import uninterrupted


def _no_thread(*_: object) -> int:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("error", [ValueError("wrong"), RuntimeError("too much"), KeyboardInterrupt()])
def test_failure_is_raised_when_no_thread_can_start(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(_thread, "start_new_thread", _no_thread)
    with pytest.raises(type(error)) as raised:
        uninterrupted(fail)
    assert raised.value is error
    assert uninterrupted(lambda: 5) == 5


INTERRUPTED_AT_EACH_CALL = """
import itertools, sys, time
from structable.backends.base.uninterrupted import uninterrupted
class Interruption(BaseException):
    pass
def work():
    begun.append(1)
    time.sleep(0.002)
    ended.append(1)
def trace(frame, event, _):
    global left
    left -= 1
    if left == 0:
        raise Interruption
for at in itertools.count(1):
    begun, ended, left = [], [], at
    sys.settrace(trace)
    try:
        uninterrupted(work)
    except Interruption:
        pass
    sys.settrace(None)
    assert len(begun) == len(ended) <= 1, (at, begun, ended)
    if left > 0:
        break
print(at)
"""


def test_interruption_at_any_call_waits_for_what_was_begun() -> None:
    """In calls of the standard library as well: a lock left taken by one of them would block the wait for ever."""
    command = [sys.executable, "-c", INTERRUPTED_AT_EACH_CALL]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 3


CALLED_BY = """
import atexit, sys
from structable.backends.base.uninterrupted import uninterrupted
class Last:
    def __del__(self):
        try:
            uninterrupted(lambda: print("done", flush=True))
        except ValueError as error:
            print(error, flush=True)
last = Last()
if sys.argv[1] == "atexit":
    atexit.register(last.__del__)
elif sys.argv[1] == "cycle":
    last.itself = last
"""


@pytest.mark.parametrize("when", ["atexit", "module", "cycle"])
def test_work_at_the_end_of_the_interpreter(when: str) -> None:
    command = [sys.executable, "-c", CALLED_BY, when]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("done\n")
