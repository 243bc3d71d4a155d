"""A fork does not copy LevelDB's compaction thread, but the library in the child still believes that it runs.

LevelDB compacts in one thread of the process, started when it is first needed: a process forked later would wait
forever for its first compaction. The library's table of open databases is copied as it was.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import plyvel

_PROBE_SECONDS = 10
_COMPACTED = b"1"


class _Process:
    def __init__(self) -> None:
        self.was_used = False
        self.open = Counter[str]()
        self.inherited_open: frozenset[str] = frozenset()
        self.compacts: bool | None = True

    def after_fork(self) -> None:
        self.inherited_open |= {path for path, times in self.open.items() if times}
        self.open.clear()
        if self.was_used and self.compacts:
            self.compacts = None  # unknown until it is needed


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.after_fork)


def note_opened(path: Path) -> None:
    """Record that a database is about to be opened."""
    _PROCESS.was_used = True
    _PROCESS.open[str(path)] += 1


def note_closed(path: Path) -> None:
    """Record that a database was closed, or not opened."""
    _PROCESS.open[str(path)] -= 1


def can_own(path: Path) -> bool:
    """Return whether this process can open a database, write to it and close it."""
    return str(path) not in _PROCESS.inherited_open and can_compact()


def can_compact() -> bool:
    """Return whether LevelDB's thread runs here when it is needed."""
    if _PROCESS.compacts is None:
        _PROCESS.compacts = _probe()
    return _PROCESS.compacts


def _probe() -> bool:
    """Let a process forked from this one compact a database: it has the same state, and may be killed."""
    try:
        with tempfile.TemporaryDirectory(prefix="structable-probe-") as folder:
            reading, writing = os.pipe()
            try:
                return _ends_well(_fork_to_compact(folder, writing), reading)
            finally:
                os.close(reading)
    except OSError:
        return False


def _fork_to_compact(folder: str, writing: int) -> int:
    # If a signal handler raised in the new process, it would continue as a copy of this program.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        process = os.fork()
        if not process:
            _compact(folder, writing)
        return process
    finally:
        os.close(writing)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _compact(folder: str, writing: int) -> NoReturn:
    try:
        # It ends even if the process that waits for it has ended.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.alarm(3 * _PROBE_SECONDS)
        database = plyvel.DB(os.path.join(folder, "database"), create_if_missing=True)
        database.put(b"key", b"value")
        database.compact_range()
        os.write(writing, _COMPACTED)
    finally:
        os._exit(0)


def _ends_well(process: int, reading: int) -> bool:
    # By the pipe: where the program ignores SIGCHLD, a process leaves no exit code.
    answered = False
    try:
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        answered = bool(poll.poll(1_000 * _PROBE_SECONDS))
        return answered and os.read(reading, 1) == _COMPACTED
    finally:
        if not answered:
            os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(process, 0)
