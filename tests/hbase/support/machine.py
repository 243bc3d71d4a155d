"""One JVM of a test's HBase: started so that it outlives its starter, ended, and its log searched for the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.processes import ServerFailedError, end_and_wait

from . import jars
from .settings import JAVA, LOGGING, site

_TIMEOUT = 4.0  # seconds that a JVM gets to stop by itself; being killed then loses nothing
_ABORTING = b"***** ABORTING "


class Machine:
    """One JVM: its folder holds its settings, its log and its process id."""

    def __init__(self, folder: Path, main: Sequence[str], heap: str = "256m", user: str | None = None) -> None:
        self.folder = folder
        self._main = main
        self._heap = heap
        self._environment = {} if user is None else {"HADOOP_USER_NAME": user}
        self._searched = 0

    def configure(self, settings: Mapping[str, str]) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "hbase-site.xml").write_text(site(settings))
        (self.folder / "log4j.properties").write_text(LOGGING)

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "pid").read_text())
            # After a kill the file is still there, and its number may be another process's; a zombie has no command.
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            return pid if os.fsencode(f"{self.folder}:") in command else None
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None

    def start(self) -> None:
        if self.pid is not None:
            return
        path = f"{self.folder}:{jars.resolve()}/*"
        shell = ["/bin/sh", "-c", 'exec >>log 2>&1; "$@" & echo $! >pid', "sh"]
        # The shell ends at once, so that no process of ours is the JVM's parent and has to collect it.
        subprocess.run(
            [*shell, "java", f"-Xmx{self._heap}", *JAVA, "-cp", path, *self._main],
            cwd=self.folder,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests, which then end the server
            check=True,
        )

    def end(self, how: int) -> None:
        pid = self.pid
        if pid is None:
            return
        if how != signal.SIGKILL:
            with suppress(ServerFailedError):
                end_and_wait([pid], how, timeout=_TIMEOUT)
                return
        end_and_wait([pid])

    def log(self) -> str:
        try:
            return (self.folder / "log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def put_log_aside(self) -> None:
        self._searched = 0
        with suppress(FileNotFoundError):
            (self.folder / "log").rename(self.folder / f"log-{time.time_ns()}")

    def abortion(self) -> str | None:
        """Return the line with the reason if HBase has aborted since the log began; each line is searched once."""
        with suppress(FileNotFoundError), (self.folder / "log").open("rb") as log:
            self._searched = min(self._searched, log.seek(0, os.SEEK_END))
            log.seek(self._searched)
            for line in log:
                if _ABORTING in line:
                    return line.decode(errors="replace").strip()
                if line.endswith(b"\n"):  # else it is just being written
                    self._searched += len(line)
        return None
