"""Separate processes on a store: some run the programs sent to them, some are killed at a point of the protocol."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

_SETUP = """
import json, os, signal, sys
from structable.backends.hbase import failpoints
from structable.backends.hbase.tables import PrefixTables
from structable.spi import Field, TableSpecification, WriteMode, connect

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

def die_at(point, nth=1):
    left = [nth]
    def count():
        left[0] -= 1
        if not left[0]:
            die()
    failpoints.failpoints[point] = count

storage = connect({url!r})
"""
_SERVE = """
print("ready", flush=True)
for line in sys.stdin:
    try:
        exec(json.loads(line), globals())
        print("done", flush=True)
    except Exception as error:
        print(type(error).__name__, str(error).replace(chr(10), " "), flush=True)
"""


def killed_at(url: str, body: str) -> None:
    """Run a body with `storage`, and with `die_at(point, nth)` and `die()`, by which it must end its process."""
    done = subprocess.run(
        [sys.executable, "-c", _SETUP.format(url=url) + body], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stderr)


class Worker:
    """A process that runs the code it is sent, piece by piece, with a `storage` of its own."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SETUP.format(url=url) + _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.result() == "ready"

    def send(self, code: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def result(self) -> str:
        """Return the result of the oldest code without one: "done", or the error's class and text."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def run(self, code: str) -> str:
        """Send code, and return its result."""
        self.send(code)
        return self.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
