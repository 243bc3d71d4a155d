"""Writers, workers that may be killed, and a reader that checks what it sees: `python -m examples.joins`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.context import SpawnProcess

from structable.spark_bridge.joins import JoinWorker
from structable.spi import connect, mask_url

from .processes import Check, check_state, work, write
from .tables import join_of, prepare


def main() -> None:
    """Run the example; the exit code is 1 if a read found anything but the join."""
    parser = argparse.ArgumentParser(prog="python -m examples.joins", description=__doc__)
    parser.add_argument("--url", help="the store; a LevelDB in a temporary folder by default")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the writers write")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill a worker so often, and start another")
    arguments = parser.parse_args()
    if arguments.url and arguments.url.startswith("memory:"):
        parser.error("a store in memory belongs to one process; use leveldb:///folder, or a server")
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.url or f"leveldb://{folder}/shop"
        differing = run(url, arguments.seconds, arguments.writers, arguments.workers, arguments.kill)
    sys.exit(1 if differing else 0)


def run(url: str, seconds: float, writers: int, workers: int, kill: float | None) -> int:
    """Run all processes; return how many rows of the result differ in the end."""
    spawn = multiprocessing.get_context("spawn")

    def started(target: object, *arguments: object) -> SpawnProcess:
        process = spawn.Process(target=target, args=(url, *arguments), daemon=True)  # type: ignore[arg-type]
        process.start()
        return process

    with connect(url) as storage:
        prepare(storage)
        with JoinWorker(join_of(url)) as worker:
            worker.step()
        joining = [started(work, small) for small in ([10_000, 10] * workers)[:workers]]
        writing = [started(write, seed, seconds) for seed in range(writers)]
        check, killed, last = Check(), 0, time.monotonic()
        try:
            while any(process.is_alive() for process in writing):
                check_state(storage, check)
                if kill is not None and time.monotonic() - last >= kill:
                    victim = joining.pop(0)
                    victim.kill()
                    victim.join()
                    joining.append(started(work, 10_000 if killed % 2 else 10))
                    killed, last = killed + 1, time.monotonic()
                time.sleep(0.01)
        finally:
            for process in (*writing, *joining):
                process.kill()
                process.join()
        with JoinWorker(join_of(url)) as worker:
            worker.run_available()
            check_state(storage, check)
            differing = worker.verify()
            rows = storage.table(join_of(url).result.name).count()
    print(f"{mask_url(url)}: {check.reads} reads at {len(check.positions)} positions, {killed} workers killed")
    print(f"{rows} rows in the result, {differing} differ from the join of both tables")
    return differing


if __name__ == "__main__":
    main()
