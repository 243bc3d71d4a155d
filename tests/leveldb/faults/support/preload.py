"""The preloaded library `fault_io.c`, and processes that run a workload under it."""

from __future__ import annotations

import ctypes
import enum
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from structable.spi import DataCorruptionError, StructableError

from .mixed import perform_mixed
from .workload import perform, writer

_SOURCE = Path(__file__).with_name("fault_io.c")


class FaultKind(enum.IntEnum):
    """The faults of file operations, as `fault_io.c` numbers them."""

    ENOSPC = 1
    EIO = 2
    EMFILE = 3
    EROFS = 4
    SHORT_WRITE = 5
    TORN_WRITE = 6
    KILL = 7


def build(folder: Path) -> Path:
    """Compile the library, or skip the test where there is no compiler, unless all tests are required."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        reason = "no C compiler (cc); on Debian or Ubuntu: sudo apt-get install gcc libc6-dev"
        if os.environ.get("STRUCTABLE_REQUIRE_ALL_BACKENDS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    library = folder / "fault_io.so"
    made = subprocess.run(
        [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return library


class Worker:
    """A process with the library of `build` preloaded, which forks one child for each task."""

    def __init__(self, library: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
            env={**os.environ, "LD_PRELOAD": str(library)},
        )

    def run(self, **task: object) -> dict[str, object]:
        """Run a task of `_work` in a child; return its report: its end, and its number of file operations."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        report: dict[str, object] = json.loads(self._process.stdout.readline())
        return report

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def _serve(library: str) -> None:
    functions = ctypes.CDLL(library)
    with tempfile.TemporaryDirectory() as warm:  # late imports happen once, not in each child
        # A compaction would start LevelDB's thread, which the children would lack.
        perform(Path(warm, "store"), 0, "process", writer(Path(warm, "reported")), 1, compacts=False)
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.dup2(2, 1)
            report: dict[str, object] = {}
            try:
                report = _work(functions, json.loads(line))
            except BaseException:
                report = {"unexpected": traceback.format_exc()}
            os.write(writing, json.dumps(report).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            content = pipe.read()
        _, status = os.waitpid(child, 0)
        report = json.loads(content) if content else {}
        if os.WIFSIGNALED(status):
            report["signal"] = signal.Signals(os.WTERMSIG(status)).name
        print(json.dumps(report), flush=True)


def _work(functions: ctypes.CDLL, task: Mapping[str, object]) -> dict[str, object]:
    folder = Path(str(task["folder"]))
    root = os.fsencode(folder / "store")
    reported = folder / "reported"
    if "record" in task:
        functions.fault_record(root, os.fsencode(reported), os.fsencode(str(task["record"])))
    else:
        functions.fault_arm(
            root, int(str(task["kind"])), ctypes.c_long(int(str(task["at"]))), ctypes.c_long(int(str(task["count"])))
        )
    error = ""
    store, seed, durability = folder / "store", int(str(task["seed"])), str(task["durability"])
    try:
        if durability == "mixed":
            perform_mixed(store, seed, writer(reported), rotating=bool(task["rotating"]))
        else:
            perform(store, seed, durability, writer(reported), int(str(task.get("attempts", 1))))
    except DataCorruptionError:
        raise
    except StructableError as problem:
        error = f"{type(problem).__name__}: {problem}"
    return {"operations": functions.fault_count(), "error": error}


if __name__ == "__main__":
    _serve(sys.argv[1])
