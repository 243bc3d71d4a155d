"""The routes of rows: one by its key, many by lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from aiohttp import web

from structable.access import AsyncTable
from structable.spi import Key, Row, UpdateMessage, Value

from .documents import Documents, RequestError, text_of

Result = TypeVar("Result")

_ROW = "/rows/"


class RowRoutes:
    """Requests on rows. A write is answered after the store has acknowledged it.

    Parameters
    ----------
    table : AsyncTable
        The table, over a `StructuredTable`.
    documents : Documents
        Its rows as JSON.
    timeout : float
        Seconds that a client has to send a body, and the store has for a call.
    """

    def __init__(self, table: AsyncTable[Key, Row], documents: Documents, timeout: float) -> None:
        self._table = table
        self._documents = documents
        self._timeout = timeout

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        path = _ROW + "{key:.*}"
        app.router.add_get(path, self._get)
        app.router.add_put(path, self._put)
        app.router.add_post(path, self._upsert)
        app.router.add_patch(path, self._update)
        app.router.add_delete(path, self._delete)
        app.router.add_post("/bulk/get", self._get_many)
        app.router.add_post("/bulk/put", self._put_many)
        app.router.add_post("/bulk/upsert", self._upsert_many)
        app.router.add_post("/bulk/update", self._update_many)
        app.router.add_post("/bulk/delete", self._delete_many)

    def _key(self, request: web.Request) -> tuple[Value, ...]:
        return self._documents.key_of_path(request, _ROW)

    async def _body(self, request: web.Request) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                return text_of(await request.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not arrive within {self._timeout:g} s") from None

    async def _row(self, request: web.Request) -> dict[str, Value]:
        return self._documents.row(await self._body(request))

    async def _call(self, call: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except TimeoutError:
            message = f"the store did not answer within {self._timeout:g} s; it may still carry out the call"
            raise web.HTTPGatewayTimeout(text=message) from None

    async def _get(self, request: web.Request) -> web.Response:
        row = await self._call(self._table.get(self._key(request)))
        if row is None:
            raise web.HTTPNotFound(text="there is no row of this key")
        return web.Response(text=self._documents.json(row), content_type="application/json")

    async def _put(self, request: web.Request) -> web.Response:
        key = self._key(request)
        await self._call(self._table.put(key, await self._row(request)))
        return _done()

    async def _upsert(self, request: web.Request) -> web.Response:
        key = self._key(request)
        await self._call(self._table.upsert(key, await self._row(request)))
        return _done()

    async def _update(self, request: web.Request) -> web.Response:
        key = self._key(request)
        changes = await self._row(request)
        default = request.query.get("default")
        await self._call(self._table.update(key, changes, None if default is None else self._documents.row(default)))
        return _done()

    async def _delete(self, request: web.Request) -> web.Response:
        await self._call(self._table.delete(self._key(request)))
        return _done()

    async def _keyed(self, request: web.Request) -> list[tuple[tuple[Value, ...], dict[str, Value]]]:
        return [(self._documents.key(row), row) for row in self._documents.lines(await self._body(request))]

    async def _keys(self, request: web.Request) -> list[tuple[Value, ...]]:
        spec = self._documents.spec
        keyed = await self._keyed(request)
        for _, row in keyed:
            if others := row.keys() - spec.primary_key:
                raise RequestError(
                    f"{', '.join(sorted(others))} is not part of the key ({', '.join(spec.primary_key)})"
                )
        return [key for key, _ in keyed]

    async def _get_many(self, request: web.Request) -> web.Response:
        found = await self._call(self._table.get_many(await self._keys(request)))
        lines = "".join(f"{self._documents.json(row)}\n" for row in found.values())
        return web.Response(text=lines, content_type="application/x-ndjson")

    async def _put_many(self, request: web.Request) -> web.Response:
        await self._call(self._table.put_many(await self._keyed(request)))
        return _done()

    async def _upsert_many(self, request: web.Request) -> web.Response:
        await self._call(self._table.upsert_many(await self._keyed(request)))
        return _done()

    async def _update_many(self, request: web.Request) -> web.Response:
        updates = [(key, UpdateMessage(row)) for key, row in await self._keyed(request)]
        missing = await self._call(self._table.update_many(updates))
        text = f'{{"missing": {self._documents.json_keys(missing)}}}'
        return web.Response(text=text, content_type="application/json")

    async def _delete_many(self, request: web.Request) -> web.Response:
        await self._call(self._table.delete_many(await self._keys(request)))
        return _done()


def _done() -> web.Response:
    return web.Response(status=204)
