"""Files of pairs beside the database: copies for plans, and staged rows of write jobs."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote
from uuid import uuid4

from structable.backends.ordered import Pair, SplitPlan, StagedRun

from .errors import translated

_GRACE_SECONDS = 60.0
_UNFINISHED_SECONDS = 24 * 3600.0


def _write_pairs(path: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs in their order, and return their number: positions run from 1 to this number."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE pairs (position INTEGER PRIMARY KEY, key BLOB, value BLOB)")
        connection.executemany("INSERT INTO pairs (key, value) VALUES (?, ?)", pairs)
        return int(connection.execute("SELECT ifnull(max(position), 0) FROM pairs").fetchone()[0])


def read_pairs(path: Path, first: int = 1, after: int = 1 << 62) -> Iterator[Pair]:
    """Yield the pairs of the positions first to after - 1."""
    url = f"file:{quote(str(path))}?mode=ro&immutable=1"
    query = "SELECT key, value FROM pairs WHERE position >= ? AND position < ? ORDER BY position"
    with translated(path), closing(sqlite3.connect(url, uri=True, check_same_thread=False)) as connection:
        yield from connection.execute(query, (first, after))


def make_plan(plans: Path, pairs: Iterable[Pair], count: int, epoch: int) -> SplitPlan:
    """Copy pairs into a separate folder, and divide the copy.

    The folder is locked while its plan is in use; a lock ends with its process, so that folders of killed processes can
    be told from those in use.
    """
    plans.mkdir(parents=True, exist_ok=True)
    _sweep(plans)
    folder = mkdtemp(dir=plans)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = _write_pairs(Path(folder, "pairs"), pairs)
    except BaseException:
        _release(folder, lock)
        raise
    size = max(1, -(-rows // count))
    states = [f"{first}:{first + size}:{folder}/pairs".encode() for first in range(1, max(rows, 1) + 1, size)]
    return SplitPlan(states, partial(_release, folder, lock), epoch)


def _release(folder: str, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _sweep(plans: Path) -> None:
    for folder in plans.iterdir():
        with suppress(FileNotFoundError, BlockingIOError):
            if time.time() - folder.stat().st_mtime > _GRACE_SECONDS:  # a younger folder may not be locked yet
                lock = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)


def write_run(runs: Path, owner: str, pairs: Iterable[Pair]) -> Path:
    """Write a run of a job, and return its file."""
    runs.mkdir(parents=True, exist_ok=True)
    run = runs / f"{owner}-{uuid4().hex}"
    new = run.with_suffix(".new")
    _write_pairs(new, pairs)
    return new.rename(run)


def find_runs(runs: Path, owner: str) -> list[StagedRun]:
    """Return the runs of a job, or of all jobs, with those that are being written."""
    found: list[StagedRun] = []
    for run in runs.glob(f"{owner}*"):
        with suppress(FileNotFoundError):  # dropped or finished since
            written = run.stat().st_mtime
            found.append(StagedRun(run.name.partition("-")[0], str(run).encode(), written, not run.suffix))
    return found


def drop_runs(runs: Iterable[StagedRun]) -> None:
    """Remove runs; one that is not whole is left to a living process for a day."""
    for run in runs:
        if run.whole or time.time() - run.time > _UNFINISHED_SECONDS:
            Path(run.state.decode()).unlink(missing_ok=True)
