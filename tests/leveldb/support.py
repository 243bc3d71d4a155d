"""What the tests of the LevelDB store share: engines without tables, and processes that use one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.settings import Settings
from structable.backends.ordered.engine import BulkCommit, EngineSnapshot, Increment, Upcalls, WriteSet

SPACE = b"\x00\x00\x00\x10"
LONGEST = 60.0


def key(name: object) -> bytes:
    return SPACE + str(name).encode()


def merge(value: bytes | None, increments: Sequence[Increment]) -> bytes:
    return str(int(value or b"0") + sum(increment.amount for increment in increments)).encode()


def make_engine(folder: Path, *, sync: bool = False, request_timeout: float = 30.0) -> LevelDBEngine:
    return LevelDBEngine(folder, Settings(sync=sync, request_timeout=request_timeout))


def start(engine: LevelDBEngine, **procedures: Callable[[bytes], bytes]) -> LevelDBEngine:
    engine.start(Upcalls(merge, procedures))
    return engine


def open_engine(folder: Path, *, sync: bool = False, request_timeout: float = 30.0) -> LevelDBEngine:
    return start(make_engine(folder, sync=sync, request_timeout=request_timeout))


def put(engine: LevelDBEngine, name: object, value: bytes) -> None:
    engine.commit(None, WriteSet({key(name): value}))


def read_all(engine: LevelDBEngine) -> dict[bytes, bytes]:
    snapshot = engine.begin(True)
    try:
        return dict(snapshot.scan(SPACE, SPACE + b"\xff"))
    finally:
        snapshot.close()


class Bulk(BulkCommit):
    """A bulk commit of given chunks; `between` is called after each."""

    def __init__(
        self, chunks: Iterable[dict[bytes, bytes | None]], between: Callable[[int], None] = lambda _: None
    ) -> None:
        self.decision = {DECISION: b"decided"}
        self.completion = {DECISION: None}
        self.space = SPACE
        self._chunks = chunks
        self._between = between

    def check(self, latest: EngineSnapshot) -> None:
        pass

    def chunks(self, latest: EngineSnapshot) -> Iterator[dict[bytes, bytes | None]]:
        for number, chunk in enumerate(self._chunks):
            yield chunk
            self._between(number)


DECISION = b"\x00\x00\x00\x00\x10decision"

_PROLOGUE = """
import os, resource, signal, sys, threading, time
from pathlib import Path
from structable.backends.ordered.engine import Increment, ReadSet, SchemaChangedError, WriteSet
from structable.spi.errors import *
from tests.leveldb.support import *
folder = Path(sys.argv[1])
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().strip()
"""


class Process:
    """A Python process that runs a script; it and the test talk in lines."""

    def __init__(self, script: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROLOGUE + script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, words: str = "") -> None:
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
say("ready")
hear()
engine.close()
"""
"""Owns the database until it is told something."""
