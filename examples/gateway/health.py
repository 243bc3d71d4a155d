"""Health: the process is alive; the store answers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from structable.access import AsyncTable
from structable.spi import Key, Row, Storage, StructableError


class Health:
    """The checks of an orchestrator.

    Parameters
    ----------
    storage : Storage
        The store.
    table : str
        The table that a readiness check reads.
    calls : AsyncTable
        The table that requests use.
    timeout : float
        Seconds that the store has to answer.
    """

    def __init__(self, storage: Storage, table: str, calls: AsyncTable[Key, Row], timeout: float) -> None:
        self._storage = storage
        self._table = table
        self._calls = calls
        self._timeout = timeout
        self.stopping = False
        # A thread of its own: requests that wait for the store do not delay the check. One check runs at a time, shared
        # by all that ask meanwhile, so that a store that hangs costs one thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="health")
        self._running: asyncio.Future[None] | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_get("/health", self._ready)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/health/live", self._live)

    async def _live(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "alive", "pending": self._calls.pending})

    async def _ready(self, request: web.Request) -> web.Response:
        if self.stopping:
            return _not_ready("the gateway is stopping")
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(self._running)
        except TimeoutError:
            return _not_ready(f"the store did not answer within {self._timeout:g} s")
        except StructableError as error:
            return _not_ready(f"{type(error).__name__}: {error}")
        return web.json_response({"status": "ready"})

    def _read(self) -> None:
        with self._storage.table(self._table).scan(limit=1) as rows:
            list(rows)

    def close(self) -> None:
        """Take no more checks; idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _not_ready(reason: str) -> web.Response:
    return web.json_response({"status": "not ready", "reason": reason}, status=503, headers={"Retry-After": "1"})
