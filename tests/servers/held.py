"""A server held by several processes of a test run, which ends after the last of them, however that ended.

`python -m tests.servers.held MODULE FOLDER` watches the folder of the class `Server` of that module.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

from .processes import ServerFailedError

_ROOT = Path(__file__).parent.parent.parent


class HeldServer(ABC):
    """A server whose files are in one folder. Each instance, in any process, holds it until its `close`.

    A process of its own watches the folder: when every holder has ended, in whatever way, it stops the server and
    removes the folder. Joining raises FileNotFoundError or BlockingIOError if the last holder has just left. A subclass
    is the `Server` of its module.
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
        """Release the server; the last holder stops it and removes its folder."""
        if self._holders < 0:
            return
        holders, self._holders = self._holders, -1
        self._leave()
        try:
            fcntl.flock(holders, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process uses it, or the watcher is removing it
        else:
            if self.folder.exists():
                try:
                    self._end()
                finally:
                    _remove(self.folder)
        finally:
            os.close(holders)

    @classmethod
    @contextmanager
    def _made(cls, name: str, files: Mapping[str, str], user: pwd.struct_passwd | None = None) -> Iterator[Self]:
        """Make a server's folder with these files, owned by the user, for the block to start the server.

        If the block fails, the server is ended and its folder removed.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"structable-{name}-")).resolve()
        try:
            for file, text in {**files, "holders": ""}.items():
                (folder / file).write_text(text)
            if user is not None:
                for owned in (folder, *folder.iterdir()):
                    os.chown(owned, user.pw_uid, user.pw_gid)
            server = cls(folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        try:
            server._watch()
            yield server
        except BaseException:
            server.close()
            raise

    def restart(self) -> None:
        """Stop the server, which ends all connections, and start it again."""
        self.stop()
        self.start()

    def _watch(self) -> None:
        command = [sys.executable, "-m", "tests.servers.held", type(self).__module__, str(self.folder)]
        if command[3] == "__main__":
            command[3] = str(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]  # run by -m
        quiet = subprocess.DEVNULL
        subprocess.run(command, cwd=_ROOT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=True)

    @abstractmethod
    def url(self, name: str) -> str:
        """Return structable's URL of a store of this name, which need not exist."""

    @abstractmethod
    def start(self) -> None:
        """Start the stopped or killed server, and return when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and wait for its end; does nothing if it is stopped."""

    @abstractmethod
    def _join(self) -> None:
        """Read its creator's files in the folder."""

    def _leave(self) -> None:  # noqa: B027  # most have nothing
        """End the resources of this instance alone."""

    @abstractmethod
    def _end(self) -> None:
        """End all processes of the server, which no other process holds."""


Held = TypeVar("Held", bound=HeldServer)


def joined_or_created(folder: Path, name: str, kind: type[Held], create: Callable[[], Held]) -> Held:
    """Join the server of this name and folder that another process runs, or create it."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the server runs
        place = folder / f"{name}.place"
        with suppress(FileNotFoundError, BlockingIOError):
            return kind(Path(place.read_text()))
        server = create()
        place.write_text(str(server.folder))
        return server


def run_in_foreground(create: Callable[[], Held], describe: Callable[[Held], str] = lambda _server: "") -> None:
    """Run a server until SIGINT or SIGTERM; print its URL, a description and how to end it."""
    signals = [signal.SIGINT, signal.SIGTERM]
    try:
        with create() as server:
            print(f"{server.url('structable')}\n{describe(server)}Ctrl-C ends and removes it.", flush=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            signal.sigwait(signals)
    except ServerFailedError as error:
        sys.exit(str(error))


def _remove(folder: Path) -> None:
    """Remove a folder, and last in it the file that the watcher waits for."""
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
            with suppress(BlockingIOError):  # another process joined it just now
                try:
                    kind(folder).close()
                except FileNotFoundError:  # the process that removed it was killed meanwhile
                    _remove(folder)


if __name__ == "__main__":
    _watch(sys.argv[1], Path(sys.argv[2]))
