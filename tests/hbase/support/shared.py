"""The one HBase that all tests of a run share: a given one, a container's, or one from Maven's jars."""

from __future__ import annotations

import os
import queue
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tests.servers.availability import NoServerError, containers_run
from tests.servers.held import joined_or_created
from tests.servers.revival import require_alive, require_reachable

from . import jars
from .connections import connect
from .container import running_container
from .server import Server

if TYPE_CHECKING:
    import happybase

URL_VARIABLE = "STRUCTABLE_TEST_HBASE_URL"
"""Names a gateway to test on, `hbase://host:port[?transport=framed&protocol=compact]`. All may make tables there."""


@dataclass(frozen=True, slots=True)
class Place:
    """The HBase of a test run: its URL without a prefix, and the server if it runs from local jars."""

    address: str
    server: Server | None = None

    def require_alive(self) -> None:
        """Return if HBase is there; else raise ServerDiedError, at once where it is known to be gone.

        A server of the run's own is started again first.
        """
        if self.server is not None:
            require_alive(self.server, "the HBase of this test run")
        else:
            parts = urlsplit(self.address)
            require_reachable(str(parts.hostname), parts.port or 9090, f"the HBase of {URL_VARIABLE}")

    def url(self, prefix: str) -> str:
        """Return structable's URL of a prefix."""
        return urlsplit(self.address)._replace(path=f"/{prefix}").geturl()

    def connection(self, timeout: float = 30.0) -> happybase.Connection:
        """Open happybase's connection to the gateway; its calls fail after that many seconds."""
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        options = parse_qs(parts.query)
        return connect(
            parts.hostname,
            parts.port or 9090,
            timeout=timeout,
            framed=options.get("transport") == ["framed"],
            compact=options.get("protocol") == ["compact"],
        )


@contextmanager
def shared_server(folder: Path) -> Iterator[Place]:
    """Give the HBase of the run to all processes with this folder; the last one to leave stops it."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        if urlsplit(given).scheme != "hbase" or urlsplit(given).path.strip("/"):
            raise NoServerError(f"{URL_VARIABLE} is {given!r}; hbase://host:port, without a prefix, would be right")
        yield Place(given)
    elif jars.VERSION_VARIABLE not in os.environ and containers_run():
        with running_container() as address:
            yield Place(address)
    elif (lack := jars.missing()) is None:
        with joined_or_created(folder, "hbase", Server, lambda: Server.create(many_tables=True)) as server:
            yield Place(server.url("").rstrip("/"), server)
    else:
        raise NoServerError(
            f"no HBase: set {URL_VARIABLE}=hbase://host:port, or install {lack}, or `pip install testcontainers` where "
            "a Docker daemon runs"
        )


class Sweeper:
    """Drops the tables of finished tests in the background; leaving its `with` block waits for all of them.

    A server of the run's own keeps them until it is removed: to drop them would be two fifths of its work.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._prefixes: list[str] = []
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._sweep, name="hbase-sweeper", daemon=True)

    def __enter__(self) -> Sweeper:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._waiting.put(None)
        self._thread.join()
        if not self._prefixes:
            return
        # Background work of a test may have created tables after its drop.
        with closing(self._place.connection()) as connection:
            _drop(connection, self._prefixes)

    def drop(self, prefix: str) -> None:
        """Drop all tables of a prefix in the background."""
        if self._place.server is None:
            self._prefixes.append(prefix)
            self._waiting.put(prefix)

    def _sweep(self) -> None:
        while (prefix := self._waiting.get()) is not None:
            try:
                with closing(self._place.connection()) as connection:
                    _drop(connection, [prefix])
            except Exception:
                continue  # at the end all are dropped again, and an error there is shown


@contextmanager
def fresh_prefix(sweeper: Sweeper) -> Iterator[str]:
    """Give an unused prefix; all its tables are dropped afterwards."""
    prefix = f"test{uuid.uuid4().hex[:16]}"
    try:
        yield prefix
    finally:
        sweeper.drop(prefix)


def _drop(connection: happybase.Connection, prefixes: list[str]) -> None:
    starts = tuple(f"{prefix}_".encode() for prefix in prefixes)
    names = {prefix.encode() for prefix in prefixes}
    for table in connection.tables():
        if table in names or table.startswith(starts):
            if connection.is_table_enabled(table):
                connection.disable_table(table)
            connection.delete_table(table)


def with_options(url: str, options: str) -> str:
    """Return a URL with further options."""
    return f"{url}{'&' if '?' in url else '?'}{options}"
