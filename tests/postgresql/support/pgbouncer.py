"""A PgBouncer before a PostgreSQL server, on a free loopback port, with its files in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from tests.servers.held import HeldServer
from tests.servers.processes import HOST, ServerFailedError, end_and_wait, free_port

from .server import server_user

_TIMEOUT = 60  # seconds that it gets to start
_ATTEMPTS = 5  # at a port that stays free between its choice and the start


def find_pgbouncer() -> Path | None:
    """Return the program, or None."""
    found = shutil.which("pgbouncer", path=os.pathsep.join([*map(str, os.get_exec_path()), "/usr/sbin"]))
    return None if found is None else Path(found)


def renames_statements() -> bool:
    """Tell whether the program can find prepared statements in every session, as it does since version 1.21."""
    program = find_pgbouncer()
    assert program is not None
    says = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.(\d+)", says)
    return version is not None and (int(version[1]), int(version[2])) >= (1, 21)


class Server(HeldServer):
    """One PgBouncer: made and started by `create`, ended by `close` or its `with` block."""

    def _join(self) -> None:
        self.port = int((self.folder / "port").read_text())

    @classmethod
    def create(cls, conninfo: str, mode: str, **settings: str) -> Self:
        """Start it before the server of libpq's URL; `mode` is what it pools, and `settings` are further ones of its.

        Raises
        ------
        ServerFailedError
            If it is not installed, or does not start.
        """
        if find_pgbouncer() is None:
            raise ServerFailedError("PgBouncer is not installed")
        parts = urlsplit(conninfo)
        database = {
            "host": parts.hostname or HOST,
            "port": str(parts.port or 5432),
            "dbname": unquote(parts.path.removeprefix("/")),
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
        }
        place = " ".join("{}='{}'".format(name, value.replace("'", "''")) for name, value in database.items())
        for attempt in range(_ATTEMPTS):
            port = free_port()
            own = {
                "listen_addr": HOST,
                "listen_port": str(port),
                "unix_socket_dir": "",
                "auth_type": "any",
                "pool_mode": mode,
                "max_client_conn": "500",
                "pidfile": "pid",
                "logfile": "log",
                **settings,
            }
            lines = [
                "[databases]",
                f"* = {place}",
                "[pgbouncer]",
                *(f"{name} = {value}" for name, value in own.items()),
            ]
            with cls._made("pgbouncer", {"port": str(port), "settings": "\n".join(lines)}, server_user()) as server:
                try:
                    server.start()
                    return server
                except ServerFailedError as error:
                    if "in use" not in str(error) or attempt == _ATTEMPTS - 1:
                        raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def url(self, name: str) -> str:
        """Return a URL of the server, libpq's or structable's, that leads through it."""
        parts = urlsplit(name)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@{HOST}:{self.port}").geturl()

    @property
    def pid(self) -> int | None:
        """Its process; None if it has ended."""
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            pid = int((self.folder / "pid").read_text())
            if Path(os.readlink(f"/proc/{pid}/cwd")) == self.folder:
                return pid
        return None

    def start(self) -> None:
        program, user = find_pgbouncer(), server_user()
        assert program is not None
        done = subprocess.run(
            [program, "-d", self.folder / "settings"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # it logs to a file
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=user and [],
            check=False,
        )
        deadline = time.monotonic() + _TIMEOUT
        while done.returncode == 0 and "FATAL" not in self.log() and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((HOST, self.port), _TIMEOUT):
                if self.pid is not None:
                    return
            time.sleep(0.01)
        raise ServerFailedError(f"PgBouncer did not start:\n{self.log()}")

    def log(self) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")
        return ""

    def stop(self) -> None:
        pid = self.pid
        if pid is not None:
            end_and_wait([pid], signal.SIGKILL)

    def _end(self) -> None:
        self.stop()
