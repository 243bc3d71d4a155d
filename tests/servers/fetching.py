"""What tests fetch from package registries, by their ordinary clients, once for all checkouts of this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .processes import ServerFailedError

_TIMEOUT = 900  # seconds for 400 MB and a slow registry


def cache(*, shared: bool = False) -> Path:
    """Return the folder of what was fetched; a `shared` one can be read by all users, also if this one is root."""
    if shared and os.geteuid() == 0:
        return Path("/var/cache/structable")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "structable"


def filled_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return the folder; if it is missing, `fill` is called with an empty one, which gets its name when it is whole."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process finds the work done
        if folder.exists():
            return folder
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted process
        unfinished.mkdir()
        fill(unfinished)
        unfinished.rename(folder)
    return folder


def fetch(what: str, command: Sequence[str | Path]) -> None:
    """Run a client; its failure is a ServerFailedError that shows what it printed."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise ServerFailedError(f"{command[0]} could not fetch {what}:\n{done.stdout}{done.stderr}")
