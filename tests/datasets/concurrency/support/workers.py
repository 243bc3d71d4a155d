"""Threads and processes that run the same workload at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from structable.datasets import SystemData

from .workloads import work

ROOT = Path(__file__).parents[4]


def in_threads(system: SystemData, workload: str, *, seed: str, operations: int, threads: int) -> Counter[str]:
    """Run a workload in threads that share the datasets, and return what all of them did."""
    done: Counter[str] = Counter()
    errors: list[BaseException] = []
    start = threading.Barrier(threads)

    def run(number: int) -> None:
        start.wait()
        try:
            mine = work(system, workload, f"{seed}/{number}", operations)
        except BaseException as error:
            errors.append(error)
        else:
            with lock:
                done.update(mine)

    lock = threading.Lock()
    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise BaseExceptionGroup(f"threads failed, seed {seed}", errors)
    return done


class Processes:
    """Processes that are connected to one store, each with datasets of its own, until the context ends."""

    def __init__(self, url: str, count: int) -> None:
        command = [sys.executable, "-m", "tests.datasets.concurrency.support.worker", url]
        self._processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            assert _line(process) == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            with process:
                process.wait()

    def run(self, workload: str, *, seed: str, operations: int) -> Counter[str]:
        """Run a workload in all processes at once, and return what all of them did."""
        for number, process in enumerate(self._processes):
            order = {"workload": workload, "seed": f"{seed}/{number}", "operations": operations}
            assert process.stdin is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        done: Counter[str] = Counter()
        answers = [json.loads(_line(process)) for process in self._processes]
        for answer in answers:
            assert "error" not in answer, f"seed {seed}: {answer['error']}"
            done.update(answer)
        return done


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the process ended"
    return line
