"""The processor time of a run by kind of process: pytest's, the servers', Spark's, and of whatever else tests start."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_RUN = "STRUCTABLE_PYTEST_RUN"
"""The run that a process belongs to: all that tests start inherit it."""
_INTERVAL = 1.0  # seconds
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PYTEST, _OTHER = "pytest", "other"


@dataclass(slots=True)
class _Process:
    parent: int
    started: str
    kind: str
    own: float = 0.0
    ended: float = 0.0
    """Of the children that it has waited for."""
    seen: float = 0.0
    """Of those of them that have been counted themselves."""


class Processors:
    """Looks at the processes of a run once a second; those that live shorter count with the one that started them."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._foreign: set[int] = set()
        self._run = f"{_RUN}={os.getpid()}".encode()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="processors", daemon=True)

    @classmethod
    def started(cls) -> Processors | None:
        """Begin to watch the run of this process; None where a run within another one is watched, or without /proc."""
        if _RUN in os.environ or not (_PROC / "self" / "stat").exists():
            return None
        os.environ[_RUN] = str(os.getpid())
        watch = cls()
        watch._thread.start()
        return watch

    def stop(self) -> dict[str, float]:
        """End the watch, and return the seconds of each kind."""
        self._end.set()
        self._thread.join()
        self.look()
        del os.environ[_RUN]
        for pid in list(self._processes):
            self._count(pid)
        return self._seconds

    def _watch(self) -> None:
        while not self._end.wait(_INTERVAL):
            self.look()

    def look(self) -> None:
        """Read the clocks of all processes of the run."""
        present = {int(name) for name in os.listdir(_PROC) if name.isdigit()}
        for pid in self._processes.keys() - present:
            self._count(pid)
        self._foreign &= present
        for pid in present - self._foreign:
            with suppress(OSError):  # it has just ended
                self._read(pid)

    def _read(self, pid: int) -> None:
        # PID (NAME) STATE PARENT ..., where the name may hold anything
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        process = self._processes.get(pid)
        if process is None or process.started != fields[19]:
            if process is not None:
                self._count(pid)
            if pid != os.getpid() and self._run not in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                self._foreign.add(pid)
                return
            process = self._processes[pid] = _Process(int(fields[1]), fields[19], _program(pid))
        elif fields[0] != "Z":
            process.kind = _program(pid)  # it may have executed another one
        own, system, ended, system_of_ended = (int(field) / _TICKS for field in fields[11:15])
        process.own, process.ended = own + system, ended + system_of_ended

    def _count(self, pid: int) -> None:
        process = self._processes.pop(pid)
        short = max(process.ended - process.seen, 0.0)
        self._seconds[process.kind] += process.own
        self._seconds[_OTHER if process.kind == _PYTEST else process.kind] += short
        if (parent := self._processes.get(process.parent)) is not None:
            parent.seen += process.own + process.ended


def _program(pid: int) -> str:
    """Return the kind of a process."""
    command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    program = os.path.basename(command.partition(" ")[0]).rstrip(":")
    if program == "java":
        return "Spark's JVMs" if "org.apache.spark" in command else "HBase" if "hbase" in command else _OTHER
    if program in ("postgres", "pgbouncer"):
        return "PostgreSQL"
    if program.startswith("python") and ("pyspark" in command or "tests.spark.support.daemon" in command):
        return "Spark's Python"
    # A worker of xdist reads its program from its standard input.
    return _PYTEST if pid == os.getpid() or "exec(eval(sys.stdin.readline()))" in command else _OTHER
