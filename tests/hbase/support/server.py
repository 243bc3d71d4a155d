"""An HBase server from Maven's jars, on free loopback ports, with its data in a temporary folder.

Two JVMs: ZooKeeper, master and region server in one, the Thrift gateway in the other.
`python -m tests.hbase.support.server` (`make hbase`) runs one in the foreground, for a person.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.servers.held import HeldServer, run_in_foreground
from tests.servers.processes import HOST, ServerFailedError, free_port

from . import jars
from .administration import Administration
from .connections import START_TIMEOUT, connect, wait_until_served
from .machine import Machine
from .settings import GATEWAY, HBASE

if TYPE_CHECKING:
    import happybase

_QUICK = Path(__file__).with_name("Quick.java")
_HEAP = "4g"  # of HBase: its metrics keep up to half a megabyte of every table that was dropped
_ATTEMPTS = 3  # at ports that may be taken between their choice and the server's start


class Gateway:
    """A Thrift gateway of a server, on the same port of 127.0.0.1 after each start."""

    def __init__(
        self, folder: Path, port: int, *, framed: bool = False, compact: bool = False, user: str | None = None
    ) -> None:
        self.port = port
        self.framed = framed
        self.compact = compact
        main = ["org.apache.hadoop.hbase.thrift.ThriftServer", "start", "-p", str(port)]
        self._machine = Machine(folder / f"gateway-{port}", main, user=user)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write its hbase-site.xml."""
        own = {
            "hbase.regionserver.thrift.framed": str(self.framed).lower(),
            "hbase.regionserver.thrift.compact": str(self.compact).lower(),
        }
        self._machine.configure({**settings, **own})

    @property
    def pid(self) -> int | None:
        """Its process; None if it is stopped."""
        return self._machine.pid

    def url(self, prefix: str) -> str:
        """Return structable's URL of a prefix."""
        options = ["transport=framed"] * self.framed + ["protocol=compact"] * self.compact
        return f"hbase://{HOST}:{self.port}/{prefix}" + ("?" + "&".join(options) if options else "")

    def start(self) -> None:
        """Start the stopped or killed gateway, and return when a put through it succeeds."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the gateway without waiting for anything."""
        self._machine.start()

    def stop(self) -> None:
        """Stop the gateway and wait for its end; does nothing if it is stopped."""
        # On SIGTERM it would wait for its clients to disconnect.
        self._machine.end(signal.SIGKILL)

    def kill(self) -> None:
        """Kill -9 the gateway."""
        self._machine.end(signal.SIGKILL)

    def log(self) -> str:
        return self._machine.log()

    def put_log_aside(self) -> None:
        """Begin a new log with the next start."""
        self._machine.put_log_aside()

    def connection(self, timeout: float = 30.0) -> happybase.Connection:
        """Open happybase's connection to it; its calls fail after that many seconds."""
        return connect(HOST, self.port, timeout=timeout, framed=self.framed, compact=self.compact)

    def wait(self, running: Callable[[], bool] = lambda: True) -> None:
        """Return when a put succeeds; ServerFailedError after two minutes, or if a process that it needs ends."""
        try:
            wait_until_served(lambda: self.connection(START_TIMEOUT), lambda: self.pid is not None and running())
        except ServerFailedError as error:
            raise ServerFailedError(f"{error}\n{self.log()}") from error


class Server(HeldServer):
    """One HBase: made and started by `create`, joined by `Server(folder)`, ended by `close` or its `with` block.

    `folder` holds all its files; `gateway` is the first gateway, which `start` starts as well.
    """

    def _join(self) -> None:
        main = (self.folder / "main").read_text().splitlines()
        self._hbase = Machine(self.folder / "hbase", main, _HEAP)
        self.gateway = Gateway(self.folder, int((self.folder / "port").read_text()))
        self._gateways = [self.gateway]
        self._administration: Administration | None = None

    @classmethod
    def create(cls, *, settings: Mapping[str, str] | None = None, many_tables: bool = False) -> Self:
        """Make an empty HBase and start it, with one gateway; ServerFailedError without jars, or if it fails.

        `settings` are added to hbase-site.xml. With `many_tables` it creates and drops thousands faster, and starts two
        seconds later.
        """
        lack = jars.missing()
        if lack is not None:
            raise ServerFailedError(f"HBase needs {lack}")
        jars.resolve()
        main = ["org.apache.hadoop.hbase.master.HMaster", "start"]
        files = {"main": "\n".join([str(_QUICK), *main] if many_tables else main), "port": "0"}
        with cls._made("hbase", files) as server:
            server._start_on_free_ports(settings or {})
            return server

    @property
    def port(self) -> int:
        """Of the gateway, on 127.0.0.1; the same one after each start."""
        return self.gateway.port

    @property
    def pid(self) -> int | None:
        """The JVM of HBase; None if it is stopped."""
        return self._hbase.pid

    def url(self, name: str) -> str:
        return self.gateway.url(name)

    def log(self) -> str:
        """Return the logs of HBase and its gateways."""
        return self._hbase.log() + "".join(gateway.log() for gateway in self._gateways)

    def start(self) -> None:
        """Start the stopped or killed server and its gateway, and return when a put succeeds."""
        self._hbase.start()
        self.gateway.launch()
        self._wait()

    def stop(self) -> None:
        """Stop all gateways, then HBase, and wait for their end; does nothing if all are stopped."""
        for gateway in self._gateways:
            gateway.stop()
        self._hbase.end(signal.SIGTERM)

    def trouble(self) -> str | None:
        """Return the reason why HBase or its first gateway is lost; None if they seem well."""
        if self.pid is None:
            return "HBase's process has ended"
        if (line := self._hbase.abortion()) is not None:
            return f"HBase has given itself up: {line}"
        return "the gateway's process has ended" if self.gateway.pid is None else None

    def last_words(self) -> str:
        return "\n".join([*self._hbase.log().splitlines()[-40:], *self.gateway.log().splitlines()[-10:]])

    def revive(self) -> None:
        """Start HBase and its gateway again, after ending their remaining processes, with new logs."""
        self._end()
        self._hbase.put_log_aside()
        self.gateway.put_log_aside()
        self.start()

    def kill(self) -> None:
        """Kill -9 HBase: ZooKeeper, master and region server. The gateway runs on, and waits for the next start."""
        self._hbase.end(signal.SIGKILL)

    def kill_gateway(self) -> None:
        self.gateway.kill()

    def start_gateway(
        self,
        port: int | None = None,
        *,
        framed: bool = False,
        compact: bool = False,
        settings: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Gateway:
        """Start a further gateway, or the stopped first one with other settings; return when a put succeeds.

        The port is by default the server's own if its gateway is stopped, else a free one. `user` is the gateway's user
        in HBase, which needs the right to put to `READY`; by default HBase's own, with all rights.
        """
        if port is None:
            port = free_port() if self.gateway.pid is not None else self.port
        gateway = Gateway(self.folder, port, framed=framed, compact=compact, user=user)
        gateway.configure(self._settings() | dict(settings or {}))
        if port == self.port:
            self.gateway = gateway
        self._gateways = [other for other in self._gateways if other.port != port] + [gateway]
        gateway.start()
        return gateway

    @property
    def administration(self) -> Administration:
        """Operations that the gateway does not offer: split, flush, compact, index."""
        if self._administration is None:
            self._administration = Administration(f"{self.folder / 'hbase'}:{jars.resolve()}/*")
        return self._administration

    def split(self, table: str, key: bytes | None = None) -> None:
        """Split a table at a key, or else at its median row, and return when the new regions are served."""
        self.administration.split(table, key)

    def flush(self, table: str) -> None:
        self.administration.flush(table)

    def compact(self, table: str) -> None:
        """Rewrite all files of the table without deleted cells, and return when that is done."""
        self.administration.compact(table)

    def _leave(self) -> None:
        if self._administration is not None:
            self._administration.close()
            self._administration = None

    def _end(self) -> None:
        # Gateways started by other processes have a folder only.
        for folder in self.folder.glob("gateway-*"):
            Gateway(self.folder, int(folder.name.partition("-")[2])).kill()
        self._hbase.end(signal.SIGKILL)

    def _settings(self) -> dict[str, str]:
        lines = (self.folder / "settings").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _start_on_free_ports(self, settings: Mapping[str, str]) -> None:
        for attempt in range(_ATTEMPTS):
            own = {
                "hbase.rootdir": f"file://{self.folder}/data",
                "hbase.tmp.dir": f"{self.folder}/tmp",
                "hbase.zookeeper.property.dataDir": f"{self.folder}/zookeeper",
                "hbase.zookeeper.property.clientPort": str(free_port()),
                "hbase.master.port": str(free_port()),
                "hbase.regionserver.port": str(free_port()),
            }
            chosen = HBASE | own | dict(settings)
            (self.folder / "settings").write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
            self.gateway = Gateway(self.folder, free_port())
            self._gateways = [self.gateway]
            (self.folder / "port").write_text(str(self.gateway.port))
            self._hbase.configure(chosen)
            self.gateway.configure(chosen | GATEWAY | dict(settings))
            try:
                self.start()
                return
            except ServerFailedError as error:
                self._end()
                taken = "Address already in use" in str(error) or "Could not start ZK at requested port" in str(error)
                if not taken or attempt == _ATTEMPTS - 1:
                    raise
                shutil.rmtree(self.folder / f"gateway-{self.gateway.port}")

    def _wait(self) -> None:
        try:
            self.gateway.wait(lambda: self.pid is not None)
        except ServerFailedError as error:
            raise ServerFailedError(f"{error}\n{self._hbase.log()}") from error


if __name__ == "__main__":
    run_in_foreground(Server.create)
