"""Batches: what opens, fills and sends one, and what each operation becomes in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Literal

import pytest

from structable.access import AsyncTable, Batching, open_table
from structable.spi import RecordNotFoundError, UnsupportedOperationError, UpdateMessage, Value

from .support.fake_clock import advance, idle, outcomes, run
from .support.fake_store import Broken, Call, FakeStore

Table = AsyncTable[Hashable, Mapping[str, object]]
Kind = Literal["complete", "compact"]

SIZE = 5
KEYS = range(SIZE)

both_kinds = pytest.mark.parametrize("kind", ["complete", "compact"])


def row(number: int) -> dict[str, Value]:
    return {"n": number}


def filled(answer: Callable[[Call], object] | None = Call.succeed) -> FakeStore:
    store = FakeStore(answer)
    store.rows = {key: row(key) for key in KEYS}
    return store


def by_size(kind: Kind, size: int = SIZE) -> Batching:
    return Batching(kind=kind, max_size=size, max_delay=None)


@both_kinds
def test_pending_counts_the_operations_of_the_open_batch(kind: Kind) -> None:
    async def main() -> None:
        async with open_table(filled().table, batching=by_size(kind, 3)) as table:
            assert table.pending == 0
            first = table.put(1, row(1))
            assert table.pending == 1
            second = table.put(2, row(2))
            assert table.pending == 2
            await table.flush()
            assert table.pending == 0
            await asyncio.gather(first, second)

    run(main())


@both_kinds
def test_a_batch_without_a_limit_of_size_keeps_every_value(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=Batching(kind=kind, max_size=None, max_delay=10)) as table:
            puts = [table.put(key, row(key)) for key in range(10)]
            await idle()
            assert (table.pending, store.calls) == (10, [])
            await table.flush()
            await asyncio.gather(*puts)
        assert store.rows == {key: row(key) for key in range(10)}
        assert store.operations() == ["put_many"]

    run(main())


@both_kinds
def test_a_full_batch_is_sent_and_its_callers_wait_for_its_end(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=by_size(kind, 3)) as table:
            puts = [asyncio.ensure_future(table.put(key, row(key))) for key in range(3)]
            await idle()
            assert table.pending == 0
            assert not any(put.done() for put in puts)
            store.only("put_many").succeed()
            await asyncio.gather(*puts)
        assert store.rows == {key: row(key) for key in range(3)}

    run(main())


@both_kinds
def test_a_batch_is_sent_after_its_delay_from_the_first_operation(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=Batching(kind=kind, max_size=None, max_delay=0.1)) as table:
            start = asyncio.get_running_loop().time()
            puts = []
            for key in range(100):
                puts.append(table.put(key, row(key)))
                if key == 50:
                    await advance(0.06)
            await idle()
            assert (table.pending, store.calls) == (100, [])
            await asyncio.gather(*puts)
            assert table.pending == 0
        assert store.operations() == ["put_many"]
        assert store.calls[0].started - start == pytest.approx(0.1)

    run(main())


SINGLE: dict[str, Callable[[Table, int], Awaitable[object]]] = {
    "get": lambda table, key: table.get(key),
    "put": lambda table, key: table.put(key, row(key)),
    "update": lambda table, key: table.update(key, row(-key)),
    "delete": lambda table, key: table.delete(key),
}
BULK: dict[str, Callable[[Table], Awaitable[object]]] = {
    "get_many": lambda table: table.get_many(list(KEYS)),
    "put_many": lambda table: table.put_many([(key, row(key)) for key in KEYS]),
    "update_many": lambda table: table.update_many([(key, UpdateMessage(row(-key))) for key in KEYS]),
    "delete_many": lambda table: table.delete_many(list(KEYS)),
}


@both_kinds
@pytest.mark.parametrize("name", SINGLE)
def test_a_full_batch_of_one_operation_is_one_bulk_call(kind: Kind, name: str) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, batching=by_size(kind)) as table:
            if name == "update" and kind == "compact":
                with pytest.raises(UnsupportedOperationError):
                    await SINGLE[name](table, 1)
                return
            results = await asyncio.gather(*(SINGLE[name](table, key) for key in KEYS))
            assert results == ([row(key) for key in KEYS] if name == "get" else [None] * SIZE)
            assert store.operations() == [f"{name}_many"]
            assert table.pending == 0
            one = SINGLE[name](table, 7)
            assert table.pending == 1
            outcome, _ = await outcomes(one, table.flush())
            assert type(outcome) is (RecordNotFoundError if name == "update" else type(None))

    run(main())


@both_kinds
@pytest.mark.parametrize("name", BULK)
def test_a_bulk_call_passes_the_batch_by(kind: Kind, name: str) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, batching=by_size(kind)) as table:
            if name == "update_many" and kind == "compact":
                with pytest.raises(UnsupportedOperationError):
                    await BULK[name](table)
                return
            one = table.put(7, row(7))
            await BULK[name](table)
            assert store.operations() == [name]
            assert table.pending == 1
            await table.flush()
            await one
        assert store.operations()[0] == name

    run(main())


@both_kinds
def test_a_bulk_call_sends_the_open_batch_first_if_it_holds_one_of_its_keys(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=by_size(kind)) as table:
            one = asyncio.ensure_future(table.put(1, row(1)))
            many = asyncio.ensure_future(table.put_many([(1, row(11)), (2, row(12))]))
            await idle()
            assert table.pending == 0
            assert [call.keys for call in store.running] == [[1]]
            later = asyncio.ensure_future(table.get(2))
            flush = asyncio.ensure_future(table.flush())
            await idle()
            assert [call.keys for call in store.running] == [[1]]
            store.running[0].succeed()
            await one
            await idle()
            assert [call.keys for call in store.running] == [[1, 2]]
            store.running[0].succeed()
            await many
            store.answer = Call.succeed
            await flush
            assert await later == row(12)

    run(main())


@both_kinds
def test_a_deleted_row_is_gone_for_the_next_batch(kind: Kind) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table, batching=by_size(kind)) as table:
            await asyncio.gather(*(table.delete(key) for key in KEYS))
            assert await asyncio.gather(*(table.get(key) for key in KEYS)) == [None] * SIZE
            assert await table.get_many(list(KEYS)) == {}
        assert store.operations() == ["delete_many", "get_many", "get_many"]

    run(main())


@both_kinds
def test_leaving_sends_the_open_batch(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=by_size(kind)) as table:
            put = table.put(1, row(1))
        await put
        assert store.rows == {1: row(1)}

    run(main())


@both_kinds
def test_leaving_by_an_exception_sends_the_open_batch(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        puts: list[Awaitable[None]] = []

        async def leave() -> None:
            async with open_table(store.table, batching=by_size(kind)) as table:
                puts.append(table.put(1, row(1)))
                raise KeyError

        with pytest.raises(KeyError):
            await leave()
        await puts[0]
        assert store.rows == {1: row(1)}

    run(main())


def test_a_complete_batch_keeps_every_operation_of_a_key_in_rounds() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=by_size("complete", 8)) as table:
            results = await asyncio.gather(
                table.get(1),
                table.put(1, row(1)),
                table.get(2),
                table.update(1, {"m": 2}),
                table.put(2, row(2)),
                table.get(1),
                table.delete(1),
                table.get(1),
            )
        assert results == [None, None, None, None, None, {"n": 1, "m": 2}, None, None]
        assert store.history(1) == [row(1), {"m": 2}, None]
        assert store.rows == {2: row(2)}

    run(main())


def test_a_compact_batch_sends_the_last_write_of_a_key_after_the_reads_before_it() -> None:
    async def main() -> None:
        store = FakeStore()
        store.rows = {1: row(0)}
        async with open_table(store.table, batching=Batching(kind="compact", max_size=None, max_delay=0.1)) as table:
            calls = [
                asyncio.ensure_future(call)
                for call in (table.get(1), table.get(1), table.put(1, row(1)), table.get(1), table.put(1, row(2)))
            ]
            last = asyncio.ensure_future(table.get(1))
            assert table.pending == 2
            await advance(0.1)
            assert [(call.operation.removesuffix("_many"), call.pairs) for call in store.running] == [
                ("get", [(1, None)])
            ]
            store.running[0].succeed()
            await idle()
            assert not last.done()
            assert [(call.operation.removesuffix("_many"), call.pairs) for call in store.running] == [
                ("put", [(1, row(2))])
            ]
            store.running[0].succeed()
            assert await asyncio.gather(*calls) == [row(0), row(0), None, row(1), None]
            assert await last == row(2)
        assert len(store.calls) == 2

    run(main())


def test_a_failed_write_of_a_compact_batch_fails_all_that_stands_on_it() -> None:
    async def main() -> None:
        store = FakeStore(lambda call: call.fail(Broken("no")) if 1 in call.keys else call.succeed())
        async with open_table(store.table, batching=by_size("compact", 2)) as table:
            calls = (table.put(1, row(1)), table.get(1), table.put(1, row(2)))
            other = table.delete(3)
            results = await outcomes(*calls, other)
        assert [type(result) for result in results] == [Broken, Broken, Broken, type(None)]

    run(main())


@both_kinds
def test_a_failed_bulk_call_fails_its_own_operations_only(kind: Kind) -> None:
    async def main() -> None:
        store = filled(lambda call: call.fail(Broken("no")) if call.operation.startswith("put") else call.succeed())
        async with open_table(store.table, batching=by_size(kind, 4)) as table:
            results = await outcomes(table.put(1, row(11)), table.get(2), table.delete(3), table.put(4, row(14)))
        assert isinstance(results[0], Broken)
        assert isinstance(results[3], Broken)
        assert results[1:3] == [row(2), None]
        assert store.rows == {0: row(0), 1: row(1), 2: row(2), 4: row(4)}

    run(main())


@pytest.mark.parametrize("inserting", [False, True])
def test_the_missing_rows_of_a_batch_of_updates_get_their_own_default_alone(inserting: bool) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed, inserting=inserting)
        store.rows = {1: row(1)}
        async with open_table(store.table, batching=by_size("complete", 3)) as table:
            results = await outcomes(
                table.update(1, {"m": 1}, default=row(-1)),
                table.update(2, {"m": 2}, default=row(-2)),
                table.update(3, {"m": 3}),
            )
        assert results[:2] == [None, None]
        assert isinstance(results[2], RecordNotFoundError)
        assert store.rows == {1: {"n": 1, "m": 1}, 2: {"n": -2, "m": 2}}
        assert store.history(1) == [{"m": 1}]

    run(main())


def test_a_batch_of_which_update_many_raises_not_found_goes_key_by_key() -> None:
    async def main() -> None:
        def answer(call: Call) -> None:
            if call.operation == "update_many":
                call.fail(RecordNotFoundError("fake", (2,)))
            else:
                call.succeed()

        store = FakeStore(answer)
        store.rows = {1: row(1)}
        async with open_table(store.table, batching=by_size("complete", 2)) as table:
            results = await outcomes(table.update(1, {"m": 1}), table.update(2, {"m": 2}, default=row(-2)))
        assert results == [None, None]
        assert store.rows == {1: {"n": 1, "m": 1}, 2: {"n": -2, "m": 2}}

    run(main())


@both_kinds
def test_at_most_max_in_flight_batches_are_under_way(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore()
        batching = Batching(kind=kind, max_size=2, max_delay=None, max_in_flight=2)
        async with open_table(store.table, batching=batching) as table:
            puts = [asyncio.ensure_future(table.put(key, row(key))) for key in range(10)]
            for running in (2, 2, 2, 2, 1):
                await idle()
                assert len(store.running) == running
                store.running[-1].succeed()
            await asyncio.gather(*puts)
        assert len(store.calls) == 5

    run(main())


@both_kinds
def test_no_two_batches_with_a_key_in_common_are_under_way(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore()
        batching = Batching(kind=kind, max_size=2, max_delay=None, max_in_flight=None)
        async with open_table(store.table, batching=batching) as table:
            puts = [asyncio.ensure_future(table.put(key, row(number))) for number, key in enumerate([1, 2, 2, 3, 4, 5])]
            flush = asyncio.ensure_future(table.flush())
            await idle()
            assert [1, 2] in [call.keys for call in store.running]
            assert all(2 not in call.keys for call in store.running[1:])
            store.answer = Call.succeed
            for call in list(store.running):
                call.succeed()
            await asyncio.gather(flush, *puts)
        assert store.history(2) == [row(1), row(2)]

    run(main())


@both_kinds
def test_a_cancelled_caller_takes_nothing_out_of_its_batch(kind: Kind) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=by_size(kind, 2)) as table:
            first = asyncio.ensure_future(table.put(1, row(1)))
            await idle()
            first.cancel()
            await idle()
            await table.put(2, row(2))
            assert first.cancelled()
        assert store.rows == {1: row(1), 2: row(2)}

    run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": None, "max_delay": None},
        {"max_size": 0},
        {"max_delay": -1.0},
        {"max_in_flight": 0},
        {"kind": "other"},
    ],
)
def test_wrong_limits_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"max|kind"):
        Batching(**options)  # type: ignore[arg-type]
