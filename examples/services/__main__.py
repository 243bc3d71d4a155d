"""Run the example: `python -m examples.services --url URL`."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from structable.datasets import SystemData
from structable.spi import connect

from .invariants import check
from .service import NAMESPACE, serve


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the processes work, then check that the tables agree, and show what was done."""
    parser = argparse.ArgumentParser(prog="python -m examples.services", description=__doc__)
    parser.add_argument("--url", help="a store of any kind but memory:// (default: LevelDB in a temporary folder)")
    parser.add_argument("--processes", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long they work (default: 5)")
    options = parser.parse_args(arguments)
    if options.url is not None and options.url.startswith("memory:"):
        parser.error("a store in memory belongs to one process; give another URL")
    with tempfile.TemporaryDirectory() as folder:
        _run(options.url or f"leveldb://{folder}/store", options.processes, options.seconds)


def _run(url: str, processes: int, seconds: float) -> None:
    with connect(url) as storage:
        SystemData.create(storage)
        with SystemData.open(storage) as system:
            system.remove_namespace(NAMESPACE)
            system.run(lambda s: s.namespaces.create(NAMESPACE, description="The example's"))
    names = [f"service-{number}" for number in range(processes)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        work = [pool.submit(serve, url, name, seconds) for name in names]
        done = [one.result() for one in work]
    for name, counts in zip(names, done, strict=True):
        print(f"{name}: {', '.join(f'{what} {count}' for what, count in sorted(counts.items()))}")
    with connect(url) as storage, SystemData.open(storage) as system:
        print(check(system, sum(done, Counter())))


if __name__ == "__main__":
    main()
