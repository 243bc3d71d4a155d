"""A cache before a table over functions: what it answers, what it drops, and what it never keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping

import pytest

from structable.access import AsyncTable, Cache, open_table
from structable.spi import UpdateMessage, Value

from .support.fake_clock import idle, run
from .support.fake_store import Broken, Call, FakeStore

Table = AsyncTable[Hashable, Mapping[str, object]]


def row(number: int) -> dict[str, Value]:
    return {"n": number}


def filled(answer: Callable[[Call], object] | None = Call.succeed) -> FakeStore:
    store = FakeStore(answer)
    store.rows = {key: row(key) for key in range(5)}
    return store


def test_a_row_is_read_once_and_a_put_row_never() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, cache=Cache()) as table:
            assert await table.get(1) == await table.get(1) == row(1)
            assert store.operations() == ["get"]
            await table.put(2, row(22))
            assert await table.get(2) == row(22)
            assert store.operations() == ["get", "put"]

    run(main())


def test_bulk_calls_use_the_cache_and_fill_it() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, cache=Cache()) as table:
            assert await table.get_many([1, 2]) == {1: row(1), 2: row(2)}
            assert await table.get(1) == row(1)
            assert await table.get_many([1, 2, 3]) == {key: row(key) for key in (1, 2, 3)}
            assert [call.keys for call in store.calls] == [[1, 2], [3]]

            store.answer = lambda call: call.fail(Broken("no"))
            assert await table.get_many([1, 2, 3]) == {key: row(key) for key in (1, 2, 3)}
            with pytest.raises(Broken):
                await table.get_many([1, 2, 4])
            store.answer = Call.succeed

            await table.put_many([(1, row(11)), (2, row(12))])
            assert await table.get_many([1, 2]) == {1: row(11), 2: row(12)}
            await table.put_many([(1, row(21)), (2, None)])
            calls = len(store.calls)
            assert await table.get(1) == row(21)
            assert len(store.calls) == calls
            assert await table.get(2) is None
            assert len(store.calls) == calls + 1
            await table.delete_many([1, 3])
            assert await table.get_many([1, 3]) == {}

    run(main())


def test_an_update_drops_the_row() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, cache=Cache()) as table:
            await table.get_many([1, 2])
            await table.update(1, {"m": 1})
            await table.update_many([(2, UpdateMessage({"m": 2}))])
            assert await table.get_many([1, 2]) == {1: {"n": 1, "m": 1}, 2: {"n": 2, "m": 2}}

    run(main())


def test_a_read_that_overlaps_a_write_is_not_kept() -> None:
    async def main() -> None:
        store = filled(None)
        async with open_table(store.table, cache=Cache()) as table:
            get = asyncio.ensure_future(table.get(1))
            await idle()
            put = asyncio.ensure_future(table.put(1, row(11)))
            await idle()
            store.only("get").succeed()
            assert await get == row(1)
            await idle()
            after = asyncio.ensure_future(table.get(1))
            store.only("put").succeed()
            await put
            store.answer = Call.succeed
            assert await after == row(11)
            assert await table.get(1) == row(11)

    run(main())


def test_a_failed_write_leaves_nothing_in_the_cache() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, cache=Cache()) as table:
            assert await table.get(1) == row(1)
            store.answer = lambda call: call.fail(Broken("no"))
            with pytest.raises(Broken):
                await table.put(1, row(11))
            store.answer = Call.succeed
            calls = len(store.calls)
            assert await table.get(1) == row(1)
            assert len(store.calls) == calls + 1

    run(main())
