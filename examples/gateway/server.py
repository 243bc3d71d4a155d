"""The gateway's life: open the store, serve, and end in good order when a signal comes."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from contextlib import AsyncExitStack

from aiohttp import web

from structable.access import AsyncTable, open_table
from structable.spi import (
    Key,
    Row,
    Storage,
    StructableError,
    TableSpecification,
    connect,
    specification_from_document,
    specification_to_document,
)

from .documents import Documents
from .failures import answer_failures
from .health import Health
from .measuring import Measuring
from .options import Options
from .rows import RowRoutes

_log = logging.getLogger("gateway")


async def serve(options: Options) -> None:
    """Serve one table until SIGTERM or SIGINT; then accept nothing more, finish the requests, flush and close.

    Further signals change nothing: the end takes as long as the requests, at most `options.grace` seconds, and the
    store's close.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as closing:
        measuring = Measuring()
        closing.callback(measuring.close)
        storage = await asyncio.to_thread(connect, options.url)
        closing.push_async_callback(asyncio.to_thread, storage.close)
        spec = await asyncio.to_thread(_specification, storage, options)
        table = open_table(
            storage.table(spec.name), batching=options.batching, cache=options.cache, threads=options.threads
        )
        closing.push_async_callback(_close, table)
        health = Health(storage, spec.name, table, options.probe_timeout)
        closing.callback(health.close)

        app = web.Application(middlewares=[answer_failures], client_max_size=options.max_body)
        RowRoutes(table, Documents(spec), options.timeout).add_to(app)
        health.add_to(app)
        measuring.add_to(app)
        document = specification_to_document(spec)

        async def describe(request: web.Request) -> web.Response:
            return web.json_response(document)

        app.router.add_get("/table", describe)

        runner = web.AppRunner(app, access_log=None, shutdown_timeout=options.grace)
        await runner.setup()
        # Left first: stop listening, let each request end, close idle connections.
        closing.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, options.host, options.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        print(f"table {spec.name} of {storage.url} at http://{host}:{port}", flush=True)
        await stop.wait()
        health.stopping = True
        _log.info("stopping: %d calls are under way", table.pending)
    print("stopped", flush=True)


async def _close(table: AsyncTable[Key, Row]) -> None:
    try:
        await table.close()
    except StructableError as error:
        _log.warning("a write failed whose client was not waiting any more: %s", error)


def _specification(storage: Storage, options: Options) -> TableSpecification:
    if options.specification is None:
        assert options.table is not None
        return storage.admin.get_specification(options.table)
    document = json.loads(options.specification.read_text(encoding="utf-8"))
    spec = specification_from_document(document)
    storage.admin.create_or_update(spec)
    return storage.admin.get_specification(spec.name)
