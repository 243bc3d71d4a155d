"""A workload of commits that survive the machine and commits that survive the process, by turns and to one folder.

The owner has a storage of each durability, and so has a client process. The client's commits go through the owner, so
that a record of the owner's file operations holds all that is written.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from structable.spi import Value

from .workload import Step, create_tables, do_step, open_store

_TURNS = 40
_KEYS = 6
_REOPENINGS = (13, 27)


@dataclass(frozen=True, slots=True)
class Turn:
    """One commit, its durability, and whether the client process makes it."""

    step: Step
    durability: str
    by_client: bool


def turns(seed: int, *, rotating: bool) -> list[Turn]:
    """Return the commits of a seed; with `rotating` values make LevelDB begin a new log every few commits."""
    choose = random.Random(seed)
    found = []
    for number in range(1, _TURNS + 1):
        rows: dict[str, dict[int, dict[str, Value] | None]] = {"a": {}, "b": {}}
        durability = choose.choice(("machine", "process", "process"))
        for written in rows.values():
            for key in choose.sample(range(_KEYS), choose.randint(1, 3)):
                size = choose.choice((10, 300_000) if rotating and durability == "process" else (0, 10, 3_000))
                row: dict[str, Value] = {"k": key, "s": f"v{number % 3}", "b": choose.randbytes(size)}
                written[key] = None if choose.random() < 0.15 else row
        found.append(Turn(Step(number, rows), durability, choose.random() < 0.5))
    return found


def last_durable(todo: list[Turn], done: int) -> int:
    """Return the last of the first `done` commits that survives the machine; 0 for the tables, -1 for nothing."""
    if done < 0:
        return -1
    return max((turn.step.number for turn in todo[:done] if turn.durability == "machine"), default=0)


class _Folder:
    """The storages of one process on a folder, one of each durability."""

    def __init__(self, folder: Path) -> None:
        with ExitStack() as opening:
            self._storages = {
                durability: opening.enter_context(open_store(folder, durability=durability))
                for durability in ("machine", "process")
            }
            self._opened = opening.pop_all()

    def make_tables(self) -> None:
        create_tables(self._storages["machine"])

    def commit(self, turn: Turn) -> None:
        do_step(self._storages[turn.durability], turn.step)

    def close(self) -> None:
        self._opened.close()


class _Client:
    """A process that makes commits on request, and does not own the database."""

    def __init__(self, folder: Path, seed: int, rotating: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(folder), str(seed), "rotating" if rotating else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
        )

    def ask(self, words: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "done", f"the client has ended at {words!r}"

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def perform_mixed(folder: Path, seed: int, acknowledge: Callable[[int], None], *, rotating: bool) -> None:
    """Make all commits of a seed, and report the number of each; this process owns the database throughout."""
    client = _Client(folder, seed, rotating)
    owner = _Folder(folder)
    try:
        owner.make_tables()
        acknowledge(0)
        client.ask("open")
        for turn in turns(seed, rotating=rotating):
            if turn.by_client:
                client.ask(str(turn.step.number))
            else:
                owner.commit(turn)
            acknowledge(turn.step.number)
            if turn.step.number in _REOPENINGS:
                client.ask("close")
                owner.close()
                owner = _Folder(folder)
                client.ask("open")
        client.ask("close")
    finally:
        owner.close()
        client.end()


def _serve(folder: Path, todo: list[Turn]) -> None:
    storages: _Folder | None = None
    for line in sys.stdin:
        words = line.strip()
        if words == "open":
            storages = _Folder(folder)
        elif words == "close":
            assert storages is not None
            storages.close()
        else:
            assert storages is not None
            storages.commit(todo[int(words) - 1])
        print("done", flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), turns(int(sys.argv[2]), rotating=sys.argv[3] == "rotating"))
