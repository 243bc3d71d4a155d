"""Cascades in child processes, each killed at one of its commits: `python -m`, a line of input for each child.

The children are forked from a process that has imported everything and connected to nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import traceback

import structable.backends.leveldb
import structable.backends.postgresql  # noqa: F401 - so that no child imports it
from structable.datasets import Job, Session, SystemData, Worker
from structable.datasets.system import removal
from structable.spi import connect

from .commits import ObservedCommits
from .consuming import JumpingClock, consume
from .ledger import note

KEPT_RUNS = 2
CHUNK = 2


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _exit_with(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _exit_with(url: str, operation: str, arguments: list[str], point: int) -> None:
    """Call the operation and end: 0 if it has fewer points than `point`, else killed there, 1 if it fails."""
    passed = -1

    def pass_point() -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        removal.KEPT_FOR_LAST, removal._CHUNK = KEPT_RUNS, CHUNK
        storage = ObservedCommits(connect(url), pass_point, pass_point)
        call(SystemData(storage), operation, arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def call(system: SystemData, operation: str, arguments: list[str]) -> None:
    """Remove what the operation's name says."""
    match operation:
        case "remove_application":
            system.remove_application(*arguments)
        case "remove_namespace":
            system.remove_namespace(*arguments)
        case "delete_history":
            system.run(lambda s: s.runs.delete_history(*arguments))
        case "work":
            stop, left = threading.Event(), itertools.count(int(arguments[0]) - 1, -1)

            def handle(s: Session, job: Job) -> object:
                note(s.tx, "worked", job.id, claims=job.claims)
                if next(left) == 0:
                    stop.set()
                return {"claims": job.claims}

            Worker(system, "q", {"": handle}, threads=2).run(stop)
        case "consume":
            consume(SystemData(system.storage, clock=JumpingClock()))
        case _:
            raise ValueError(f"unknown operation {operation!r}")


if __name__ == "__main__":
    main()
