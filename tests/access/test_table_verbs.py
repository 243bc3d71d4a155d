"""The verbs that an AsyncTable takes from a StructuredTable: inserts, increments, swaps, counts and scans."""

import asyncio
import contextlib
from typing import Any

import pytest

from structable.access import Batching, Cache, FunctionTable, TableReadFunction, open_table, run_async
from structable.spi import (
    Field,
    InvalidFieldError,
    Range,
    RecordExistsError,
    Storage,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    col,
)

ITEMS = TableSpecification(
    "items", [Field.string("id"), Field.long("n"), Field.string("note")], primary_key=["id"], indexes=["n"]
)


@pytest.fixture
def storage(structable_storage: Storage) -> Storage:
    structable_storage.admin.create(ITEMS)
    return structable_storage


@pytest.mark.parametrize("batching", [None, Batching()], ids=["alone", "batched"])
def test_writes_keep_their_place(storage: Storage, batching: Batching | None) -> None:
    async def main() -> None:
        async with open_table(storage.table("items"), batching=batching, cache=Cache()) as table:
            calls: list[asyncio.Future[Any]] = [
                table.insert(("a",), {"n": 1}),
                table.increment(("a",), "n", 5),
                table.compare_and_swap({"id": "a"}, "n", 6, 7),
                table.compare_and_swap(("a",), "n", 6, 8),
                table.update(("a",), {"note": "x"}),
                table.increment(("a",), "n"),
            ]
            results = await asyncio.gather(*calls)
            assert results == [None, None, True, False, None, None]
            found = await table.get(("a",))
            assert found is not None
            assert (found.n, found.note) == (8, "x")
            with pytest.raises(RecordExistsError):
                await table.insert(("a",), {"n": 1})
            await table.increment(("a",), "n", -8)
            again = await table.get(("a",))  # not what the cache had
            assert again is not None
            assert again.n == 0
            with pytest.raises(InvalidFieldError, match="nope"):
                await table.increment(("a",), "nope")

    asyncio.run(main())


def test_scans_and_counts_see_earlier_calls(storage: Storage) -> None:
    async def main() -> None:
        async with open_table(storage.table("items"), batching=Batching()) as table:
            puts = [table.put((f"k{number:04}",), {"n": number}) for number in range(2_500)]
            assert await table.count() == 2_500
            assert all(put.done() for put in puts)
            assert await table.count(Range.below(("k0010",)), where=col("n") > 4) == 5
            found = [row.n async for row in table.scan()]
            assert found == list(range(2_500))
            some = table.scan(
                Range.at_least(("k0100",)), where=col("n") < 200, columns=["n"], order_by="n", reverse=True
            )
            assert [row.n async for row in some] == list(range(199, 99, -1))
            async with contextlib.aclosing(table.scan()) as rows:
                async for row in rows:
                    assert row.n == 0
                    break
            with pytest.raises(InvalidFieldError, match="nope"):
                async for _ in table.scan(columns=["nope"]):
                    pass
        with pytest.raises(TransactionClosedError):
            await table.count()

    asyncio.run(main())


def test_a_cancelled_scan_frees_its_snapshot(storage: Storage) -> None:
    storage.table("items").upsert_many({"id": str(number)} for number in range(3_000))

    async def main() -> None:
        async with open_table(storage.table("items")) as table:

            async def read() -> None:
                async for _ in table.scan():
                    await asyncio.sleep(0)

            for _ in range(40):  # more than may be open at once
                task = asyncio.create_task(read())
                while not task.done():
                    await asyncio.sleep(0.001)
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            assert await table.count() == 3_000

    asyncio.run(main())


def test_functions_have_none_of_them() -> None:
    class Reader(TableReadFunction[str, str]):
        async def get(self, key: str) -> str | None:
            return None

    async def main() -> None:
        async with open_table(FunctionTable(read=Reader())) as table:
            with pytest.raises(UnsupportedOperationError, match="is a table of functions, which has no count"):
                await table.count()

    asyncio.run(main())


def test_transactions_of_asyncio(storage: Storage) -> None:
    async def main() -> None:
        async def add(number: int) -> int:
            def body(transaction: object) -> int:
                table = transaction.table("items")  # type: ignore[attr-defined]
                row = table.read(("sum",))
                total = number + (0 if row is None else int(row.n))
                table.upsert({"id": "sum", "n": total})
                return total

            return await run_async(storage, body)

        totals = await asyncio.gather(*(add(number) for number in range(1, 9)))
        assert max(totals) == sum(range(1, 9))

        async def coroutine(transaction: object) -> None:
            return None

        with pytest.raises(TypeError, match="plain function"):
            await run_async(storage, coroutine)  # type: ignore[unused-coroutine]
        assert await run_async(storage, lambda tx: tx.table("items").count(), read_only=True) == 1

    asyncio.run(main())
