"""A server that several processes of a test run hold, and that ends when the last of them has, in whatever way.

`python -m tests.servers.held MODULE FOLDER` watches the folder of the class `Server` of that module.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

__all__ = ["HeldServer", "joined_or_created"]

_ROOT = Path(__file__).parent.parent.parent


class HeldServer(ABC):
    """A server of which everything is in one folder. Each instance, in any process, holds it until its `close`.

    A process of its own watches the folder: when every process that holds the server has ended, in whatever way, it
    stops the server and removes the folder. A subclass is the `Server` of its module.

    Parameters
    ----------
    folder : Path
        Holds all that belongs to the server, the file `holders` included.

    Raises
    ------
    FileNotFoundError, BlockingIOError
        If the last holder has just let go of it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holders = os.open(folder / "holders", os.O_RDWR)
        try:
            # Refused when the last holder is just removing it.
            fcntl.flock(self._holders, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._join()
        except BaseException:
            os.close(self._holders)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the server; the last that does so stops it and removes its folder."""
        if self._holders < 0:
            return
        holders, self._holders = self._holders, -1
        self._leave()
        try:
            fcntl.flock(holders, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process uses it, or the watcher is at it
        else:
            if self.folder.exists():
                try:
                    self._end()
                finally:
                    _remove(self.folder)
        finally:
            os.close(holders)

    def watch(self) -> None:
        """Start the process that ends the server after its last holder."""
        command = [sys.executable, "-m", "tests.servers.held", type(self).__module__, str(self.folder)]
        if command[3] == "__main__":
            command[3] = str(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]  # run by -m
        quiet = subprocess.DEVNULL
        subprocess.run(command, cwd=_ROOT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=True)

    @abstractmethod
    def _join(self) -> None:
        """Read what its creator left in the folder."""

    def _leave(self) -> None:  # noqa: B027  # most have nothing
        """End what belongs to this instance alone."""

    @abstractmethod
    def _end(self) -> None:
        """End all processes of the server; nobody else holds it."""


Held = TypeVar("Held", bound=HeldServer)


def joined_or_created(folder: Path, name: str, kind: type[Held], create: Callable[[], Held]) -> Held:
    """Join the server of this name that somebody else runs, or create it.

    Parameters
    ----------
    folder : Path
        Where those who are to share a server find one another.
    name : str
        What distinguishes the server from others that are found there.
    """
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the server runs
        place = folder / f"{name}.place"
        with suppress(FileNotFoundError, BlockingIOError):
            return kind(Path(place.read_text()))
        server = create()
        place.write_text(str(server.folder))
        return server


def _remove(folder: Path) -> None:
    """Remove a folder, and last in it what the watcher waits for."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "holders":
            path.unlink()
    shutil.rmtree(folder)


def _watch(module: str, folder: Path) -> None:
    """In the background, wait until no process holds the server any more, and end it unless the last one did."""
    if os.fork():
        return
    kind: type[HeldServer] = importlib.import_module(module).Server
    with suppress(FileNotFoundError):
        while folder.exists():
            holders = os.open(folder / "holders", os.O_RDWR)
            fcntl.flock(holders, fcntl.LOCK_EX)
            os.close(holders)
            with suppress(BlockingIOError):  # somebody joined it just now
                try:
                    kind(folder).close()
                except FileNotFoundError:  # who removed it was killed at that
                    _remove(folder)


if __name__ == "__main__":
    _watch(sys.argv[1], Path(sys.argv[2]))
