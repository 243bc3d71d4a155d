"""Run the example: `python -m examples.services --url URL`."""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess

from structable.datasets import JobState, SystemData, new_run_id
from structable.spi import connect

from .invariants import check, done_by
from .requests import EFFECTS, EVENTS, NAMESPACE
from .service import serve, work

_CONTEXT = get_context("spawn")
_LOOK = 0.2
_LONGEST = 300.0
"""Seconds in which processes begin, and in which what was requested is done in the end."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the processes work, then check that the tables agree, and show what was done."""
    parser = argparse.ArgumentParser(prog="python -m examples.services", description=__doc__)
    parser.add_argument("--url", help="a store of any kind but memory:// (default: LevelDB in a temporary folder)")
    parser.add_argument("--processes", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long they ask for work (default: 5)")
    parser.add_argument("--kills", type=int, default=0, help="how often one of them is killed meanwhile (default: 0)")
    options = parser.parse_args(arguments)
    if options.url is not None and options.url.startswith("memory:"):
        parser.error("a store in memory belongs to one process; give another URL")
    with tempfile.TemporaryDirectory() as folder:
        _run(options.url or f"leveldb://{folder}/store", options.processes, options.seconds, options.kills)


def _run(url: str, processes: int, seconds: float, kills: int) -> None:
    queue = f"shop-{new_run_id()}"  # ended jobs of earlier runs are kept a day
    names = [f"service-{number}" for number in range(processes)]
    with connect(url) as storage:
        SystemData.create(storage)
        with SystemData.open(storage) as system:
            _empty(system)
    ready = _CONTEXT.Semaphore(0)

    def start(name: str, seconds: float) -> SpawnProcess:
        process = _CONTEXT.Process(target=serve, args=(url, queue, name, seconds, ready), name=name)
        process.start()
        return process

    serving = {name: start(name, seconds) for name in names}
    for _ in names:
        assert ready.acquire(timeout=_LONGEST), "a process does not begin"
    end = time.monotonic() + seconds
    for left in range(kills, 0, -1):
        time.sleep(max(0.0, end - time.monotonic()) / (left + 1))
        name = random.choice(names)
        serving[name].kill()
        serving[name].join()
        serving[name] = start(name, end - time.monotonic())
    time.sleep(max(0.0, end - time.monotonic()))
    for process in serving.values():
        process.terminate()
    for process in serving.values():
        process.join()
    with connect(url) as storage, SystemData.open(storage) as system:
        _finish(system, queue, names[0])
        done = done_by(system)
        for name in names:
            shown = {what: times for what, times in sorted(done.get(name, {}).items()) if not what.startswith("runs ")}
            print(f"{name}: {', '.join(f'{what} {times}' for what, times in shown.items())}")
        print(check(system, queue))


def _empty(system: SystemData) -> None:
    """Remove what an earlier run has left."""
    system.remove_namespace(NAMESPACE)
    system.run(lambda s: s.namespaces.create(NAMESPACE, description="The example's"))
    system.topics.delete(EVENTS)
    system.topics.create(EVENTS)
    system.storage.admin.drop(EFFECTS.name)
    system.storage.admin.create(EFFECTS)


def _finish(system: SystemData, queue: str, name: str) -> None:
    """Do the remaining requests and count the remaining events, also those that killed processes had begun."""
    stop = threading.Event()
    working = threading.Thread(target=work, args=(system, queue, name, stop))
    working.start()
    end = time.monotonic() + _LONGEST
    try:
        while _is_left(system, queue):
            assert time.monotonic() < end, "it does not come to an end"
            time.sleep(_LOOK)
    finally:
        stop.set()
        working.join()


def _is_left(system: SystemData, queue: str) -> bool:
    system.run(lambda s: s.jobs.rescue())
    jobs = system.run(lambda s: s.jobs.counts(queue), read_only=True)
    return bool(
        jobs[JobState.READY]
        or jobs[JobState.RUNNING]
        or any(group.lag for group in system.topics.status(EVENTS).groups if group.group == "counters")
    )


if __name__ == "__main__":
    main()
