"""Processes that use a database, and exchange lines with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

LONGEST = 60.0

_PROLOGUE = """
import os, resource, signal, sys, threading, time
from pathlib import Path
from structable.backends.ordered.engine import Increment, ReadSet, SchemaChangedError, WriteSet
from structable.spi import *
from tests.leveldb.support.engines import *
folder = Path(sys.argv[1])
def send(*words): print(*words, flush=True)
def receive(): return sys.stdin.readline().strip()
"""


class Process:
    """A Python process that runs a script, after one before all imports, and exchanges lines with the test."""

    def __init__(self, script: str, folder: Path, first: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", first + _PROLOGUE + script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def receive(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, words: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self) -> int:
        """Close its input and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LONGEST)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


SERVE = """
engine = open_engine(folder)
send("ready")
receive()
engine.close()
"""
"""Owns the database until the next line of input."""
