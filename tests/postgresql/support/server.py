"""A PostgreSQL server from local binaries, on a free loopback port, with its data in a temporary folder.

`python -m tests.postgresql.support.server` (`make postgresql`) runs one in the foreground, for a person.
"""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.servers.held import HeldServer, run_in_foreground
from tests.servers.processes import HOST, ServerFailedError, children, end_and_wait, free_port

from .binaries import MINIMUM, find_binaries

ROLE = "app"
"""The role of the tests: no superuser; owns the database."""

DATABASE = "app"

_TIMEOUT = 60  # seconds that a server gets to start or to stop
_NO_PID = 2**22 + 1  # beyond the process ids of Linux
_ATTEMPTS = 5  # at a port that stays free between its choice and the server's start

# A sync protects from crashes of the machine only, and no test of a shared server causes one.
_UNSAFE = {"fsync": "off", "full_page_writes": "off"}

_SETTINGS = {
    "listen_addresses": HOST,
    "max_connections": "200",
    "timezone": "America/Los_Angeles",  # far from UTC, to reveal times in the server's zone
    "log_line_prefix": "%m [%p] %a ",
    "log_statement": "none",
}


class Server(HeldServer):
    """One server: made and started by `create`, joined by `Server(folder)`, ended by `close` or its `with` block.

    `folder` holds all its files. The port of 127.0.0.1 is the same after each start; the password is that of the role
    `ROLE` and of the superuser `postgres`.
    """

    def _join(self) -> None:
        self._bin = Path((self.folder / "binaries").read_text())
        self.port = int((self.folder / "port").read_text())
        self.password = (self.folder / "password").read_text()

    @classmethod
    def create(cls, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> Self:
        """Make a database cluster and start it; ServerFailedError without binaries, or if it does not start.

        `settings` are added to postgresql.conf. Without `fsync`, commits do not survive a crash of the machine.
        """
        binaries = find_binaries()
        if binaries is None:
            raise ServerFailedError(f"no PostgreSQL server of version {MINIMUM} or later is installed")
        files = {"binaries": str(binaries), "password": secrets.token_hex(16), "port": "0"}
        with cls._made("postgresql", files, server_user()) as server:
            server._initialise((_SETTINGS if fsync else _SETTINGS | _UNSAFE) | dict(settings or {}))
            server._start_on_free_port()
            server._make_role()
            return server

    @property
    def conninfo(self) -> str:
        """The database as libpq's URL, for the role that owns it."""
        return f"postgresql://{ROLE}:{self.password}@{HOST}:{self.port}/{DATABASE}"

    @property
    def superuser_conninfo(self) -> str:
        """The same for the superuser."""
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/{DATABASE}"

    def url(self, name: str) -> str:
        return f"{self.conninfo}?schema={name}"

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def pid(self) -> int | None:
        """The ancestor of all processes of the server; None if it is stopped."""
        try:
            pid = int(self._pid_file.read_text().partition("\n")[0])
            # After a kill the file is still there, and its number may be another process's.
            return pid if Path(os.readlink(f"/proc/{pid}/cwd")) == self._data.resolve() else None
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None

    def start(self) -> None:
        """Start the stopped or killed server, and return when it accepts connections, recovered."""
        log = self.folder / "log"
        self._call("pg_ctl", "start", "--wait", f"--timeout={_TIMEOUT}", f"--log={log}", f"--pgdata={self._data}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait for its end; does nothing if it is stopped.

        `mode`: "fast" ends all connections, "smart" waits for the clients, "immediate" is a crash without a kill.
        """
        if self.pid is not None:
            self._call("pg_ctl", "stop", "--wait", f"--timeout={_TIMEOUT}", f"--mode={mode}", f"--pgdata={self._data}")

    def trouble(self) -> str | None:
        """Return the reason why the server is lost; None if it seems well."""
        return "its process has ended" if self.pid is None else None

    def last_words(self) -> str:
        return "\n".join(self.log().splitlines()[-40:])

    def revive(self) -> None:
        """Start the server again, with a new log."""
        (self.folder / "log").rename(self.folder / f"log-{time.time_ns()}")
        self.start()

    def become_standby(self) -> None:
        """Restart the server as a standby that waits for a primary's log, and serves reads meanwhile."""
        self.stop()
        (self._data / "standby.signal").touch()
        self.start()

    def kill(self) -> None:
        """Kill -9 all processes of the server at once and wait for their end, as a crash of the machine would."""
        pid = self.pid
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # it starts no further ones meanwhile
            end_and_wait([pid, *children(pid)])
        # If orphans are not collected, the number stays taken, and the next start would take it for a running server.
        rest = self._pid_file.read_text().partition("\n")[2]
        self._pid_file.write_text(f"{_NO_PID}\n{rest}")
        (self.folder / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)

    def _end(self) -> None:
        try:
            if self.pid is None and self._pid_file.exists():
                self.start()  # which removes the shared memory that a killed one left
            self.stop("immediate")
        finally:
            self.kill()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _initialise(self, settings: Mapping[str, str]) -> None:
        options = ["--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._call("initdb", *options, f"--pwfile={self.folder / 'password'}", f"--pgdata={self._data}")
        lines = [f"{name} = '{value}'" for name, value in settings.items()]
        lines.append(f"unix_socket_directories = '{self.folder}'")
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _start_on_free_port(self) -> None:
        for attempt in range(_ATTEMPTS):
            self.port = free_port()
            with (self._data / "postgresql.conf").open("a") as file:
                file.write(f"port = {self.port}\n")
            try:
                self.start()
                break
            except ServerFailedError as error:
                if "Address already in use" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        (self.folder / "port").write_text(str(self.port))

    def _make_role(self) -> None:
        import psycopg

        with psycopg.connect(self.superuser_conninfo, dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self.password}'")
            # A language's order by default, so that tests notice a missing `COLLATE "C"`.
            languages = (
                connection.info.server_version >= 150000
                and connection.execute(
                    "SELECT 1 FROM pg_collation WHERE collprovider = 'i' AND collname = 'en-x-icu'"
                ).fetchone()
            )
            collation = "LOCALE_PROVIDER icu ICU_LOCALE 'en'" if languages else ""
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE} TEMPLATE template0 {collation}")

    def _call(self, program: str, *arguments: str) -> None:
        user = server_user()
        log = self.folder / "log"
        start = log.stat().st_size if log.exists() else 0
        # In a file, because a server that inherits a pipe holds it open.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [self._bin / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=user and [],
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the tests, which then end the server
                check=False,
            )
            output.seek(0)
            printed = output.read()
        if done.returncode != 0:
            logged = log.read_text(errors="replace")[start:] if log.exists() else ""
            raise ServerFailedError(f"{program} {arguments[0]} failed:\n{printed}{logged}")


def server_user() -> pwd.struct_passwd | None:
    """Return the user of the server's processes, since the server refuses root; None for this process's user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerFailedError("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


if __name__ == "__main__":
    run_in_foreground(lambda: Server.create(fsync=True), lambda server: f"superuser: {server.superuser_conninfo}\n")
