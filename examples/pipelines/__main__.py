"""Run the example: `python -m examples.pipelines --url URL`."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from structable.spi import Value, connect

from .pages import TABLES

_VISITORS = 20
_ROOT = Path(__file__).resolve().parent.parent.parent

Rows = dict[Value, dict[str, Value]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Let files arrive, kill the pipeline a few times while it reads them, and compare its tables with a model."""
    parser = argparse.ArgumentParser(prog="python -m examples.pipelines", description=__doc__)
    parser.add_argument("--url", help="a store of any kind but memory:// (default: LevelDB in a temporary folder)")
    parser.add_argument("--kills", type=int, default=3, help="how often the driver is killed (default: 3)")
    parser.add_argument("--files", type=int, default=8, help="files that arrive of each stream (default: 8)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        _run(Path(place), options.url or f"leveldb://{place}/store", options.kills, options.files)


def _run(folder: Path, url: str, kills: int, files: int) -> None:
    chance, model = random.Random(8), _Model(folder)
    with connect(url) as storage:
        for spec in TABLES:
            storage.admin.drop(spec.name)
            storage.admin.create(spec)
    for _ in range(files):
        model.arrive(chance)
    killed = 0
    for _ in range(kills):
        killed += _killed(folder, url, chance.uniform(0.2, 3.0))
    subprocess.run(_command(folder, url), check=True, cwd=_ROOT)
    with connect(url) as storage:
        for name, expected in model.tables.items():
            rows: Rows = {row.key[0]: dict(row) for row in storage.table(name).scan()}
            if name == "views":  # a view has the name that its visitor had when it was read
                rows = {key: {**row, "name": None} for key, row in rows.items()}
            if rows != expected:
                raise SystemExit(f"table {name} differs from the model: {rows} and {expected}")
            print(f"{name}: {len(rows)} rows, as the model has them")
    print(f"the driver was killed {killed} times while it ran")


def _command(folder: Path, url: str) -> list[str]:
    return [sys.executable, "-m", "examples.pipelines.pages", str(folder), url]


def _killed(folder: Path, url: str, seconds: float) -> int:
    """Start the pipeline and kill it some time after its first micro-batch began; return whether it was running."""
    with subprocess.Popen(_command(folder, url), cwd=_ROOT, start_new_session=True) as running:
        begun = folder / "checkpoint" / "structable-plan.json"
        while running.poll() is None and not begun.exists():
            time.sleep(0.05)
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return 1
    return 0


class _Model:
    """What arrives, and the tables that it makes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._views = 0
        self._version = 0
        self.tables: dict[str, Rows] = {spec.name: {} for spec in TABLES}
        for name in ("profiles", "views"):
            (folder / name).mkdir()

    def arrive(self, chance: random.Random) -> None:
        """Let a file of profiles and one of views arrive."""
        profiles: list[dict[str, Value]] = []
        for _ in range(10):
            self._version += 1
            visitor = f"v{chance.randrange(_VISITORS)}"
            profiles.append({"visitor": visitor, "name": f"name {self._version}", "version": self._version})
            self.tables["profiles"][visitor] = profiles[-1]
        views: list[dict[str, Value]] = []
        for _ in range(30):
            self._views += 1
            visitor, page = f"v{chance.randrange(_VISITORS)}", f"/page/{chance.randrange(9)}"
            views.append({"view": self._views, "visitor": visitor, "page": page})
            self.tables["views"][self._views] = {**views[-1], "name": None}
            self.tables["visitors"][visitor] = {"visitor": visitor, "last_page": page, "view": self._views}
        self._write("profiles", profiles)
        self._write("views", views)
        self._files += 1

    def _write(self, name: str, rows: Sequence[Mapping[str, Value]]) -> None:
        hidden = self._folder / name / f".{self._files:05}"  # Spark lists no hidden files
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (self._files, self._files))  # Spark reads them in the order of their times
        hidden.rename(self._folder / name / f"{self._files:05}.json")


if __name__ == "__main__":
    main()
