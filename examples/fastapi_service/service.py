"""A FastAPI service over one table: each worker connects in its lifespan, and rows are JSON.

STRUCTABLE_URL=leveldb:///tmp/shop uvicorn examples.fastapi_service.service:service --workers 2
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException, Request

from structable.access import AsyncTable, Batching, open_table, run_async
from structable.spi import Field, Key, Range, RecordExistsError, Row, TableSpecification, Transaction, col, connect

ARTICLES = TableSpecification(
    "articles", [Field.string("id"), Field.string("title"), Field.long("stock")], primary_key=["id"]
)
Articles = AsyncTable[Key, Row]


@asynccontextmanager
async def lifespan(application: FastAPI) -> AsyncIterator[None]:
    """Connect in the worker itself, behind its fork, and close in its event loop."""
    with connect(os.environ["STRUCTABLE_URL"]) as storage:
        storage.admin.create_or_update(ARTICLES)  # of two workers at once, too
        async with open_table(storage.table("articles"), batching=Batching()) as table:
            application.state.storage, application.state.articles = storage, table
            yield


service = FastAPI(lifespan=lifespan)


@service.get("/articles/{key}")
async def read(request: Request, key: str) -> dict[str, Any]:
    """Return a row, which is a mapping, and as a dictionary JSON."""
    table: Articles = request.app.state.articles
    row = await table.get((key,))
    if row is None:
        raise HTTPException(404, f"there is no article {key!r}")
    return dict(row)


@service.post("/articles/{key}", status_code=201)
async def add(request: Request, key: str, article: Annotated[dict[str, Any], Body()]) -> None:
    """Insert a row."""
    table: Articles = request.app.state.articles
    try:
        await table.insert((key,), article)
    except RecordExistsError as error:
        raise HTTPException(409, str(error)) from error
    except ValueError as error:  # InvalidFieldError
        raise HTTPException(422, str(error)) from error


@service.post("/articles/{key}/sold")
async def sell(request: Request, key: str, number: int = 1) -> dict[str, Any]:
    """Take from the stock in a transaction, which a thread runs and repeats after a conflict."""

    def body(transaction: Transaction) -> dict[str, Any]:
        articles = transaction.table("articles")
        row = articles.read((key,))
        if row is None or (row.stock or 0) < number:
            raise HTTPException(409, f"there are not {number} of {key!r}")
        articles.update({"id": key, "stock": row.stock - number})
        return {"id": key, "stock": row.stock - number}

    return await run_async(request.app.state.storage, body)


@service.get("/articles")
async def listed(request: Request, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Return rows in key order, behind a key: a page, whose last key begins the next one."""
    table: Articles = request.app.state.articles
    rows = table.scan(Range.above((after,)), where=col("stock") > 0, limit=limit)
    return [dict(row) async for row in rows]
