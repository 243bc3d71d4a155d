"""A table over functions: which method each call reaches, what fails, is retried and is held back by a rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping

import pytest
from tenacity import wait_fixed

from structable.access import AsyncTable, FunctionTable, RateLimit, Retry, open_table
from structable.spi import UnsupportedOperationError, UpdateMessage

from .support.fake_clock import run
from .support.fake_store import Call, FakeStore, Flaky

Table = AsyncTable[Hashable, Mapping[str, object]]
Use = Callable[[Table], Awaitable[object]]

ROW = {"n": 1}
READS: dict[str, Use] = {
    "get": lambda table: table.get("a"),
    "get_many": lambda table: table.get_many(["a", "b"]),
}
WRITES: dict[str, Use] = {
    "put": lambda table: table.put("a", ROW),
    "put_many": lambda table: table.put_many([("a", ROW), ("b", ROW)]),
    "update": lambda table: table.update("a", {"n": 2}),
    "update_many": lambda table: table.update_many([("a", UpdateMessage({"n": 2})), ("b", UpdateMessage({"n": 2}))]),
    "delete": lambda table: table.delete("a"),
    "delete_many": lambda table: table.delete_many(["a", "b"]),
}
USES = READS | WRITES


def filled(answer: Callable[[Call], object] = Call.succeed) -> FakeStore:
    store = FakeStore(answer)
    store.rows = {"a": ROW, "b": ROW}
    return store


def fails_first(error: BaseException, times: int = 1) -> Callable[[Call], object]:
    def answer(call: Call) -> None:
        if len(call.store.calls) <= times:
            call.fail(error)
        else:
            call.succeed()

    return answer


@pytest.mark.parametrize("name", USES)
def test_a_call_reaches_the_method_of_its_name_once(name: str) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            await USES[name](table)
        assert store.operations() == [name]

    run(main())


@pytest.mark.parametrize("name", WRITES)
def test_a_write_without_a_write_function_is_unsupported(name: str) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(FunctionTable(read=store.reads)) as table:
            with pytest.raises(UnsupportedOperationError):
                await WRITES[name](table)
            assert await table.get("a") == ROW
        assert store.operations() == ["get"]

    run(main())


@pytest.mark.parametrize("name", READS)
def test_a_read_without_a_read_function_is_unsupported(name: str) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(FunctionTable(write=store.writes)) as table:
            with pytest.raises(UnsupportedOperationError):
                await READS[name](table)
            await table.put("a", ROW)
        assert store.operations() == ["put"]

    run(main())


@pytest.mark.parametrize(("roles"), [("reads",), ("writes",), ("reads", "writes")])
def test_only_the_functions_that_there_are_are_opened_once_and_closed_once(roles: tuple[str, ...]) -> None:
    async def main() -> None:
        store = filled()
        source: FunctionTable[Hashable, Mapping[str, object]] = FunctionTable(
            read=store.reads if "reads" in roles else None, write=store.writes if "writes" in roles else None
        )
        async with open_table(source) as table:
            assert sorted(store.opened) == sorted(roles)
            await table.flush()
            assert store.closed == []
        assert sorted(store.closed) == sorted(store.opened) == sorted(roles)

    run(main())


def test_a_table_without_functions_is_refused() -> None:
    with pytest.raises(ValueError, match="read"):
        FunctionTable(read=None, write=None)


def test_two_tables_do_not_see_one_another() -> None:
    async def main() -> None:
        one, other = filled(), FakeStore(Call.succeed)
        async with open_table(one.table) as first, open_table(other.table) as second:
            assert [await first.get("a"), await second.get("a")] == [ROW, None]
        assert (len(one.calls), len(other.calls)) == (1, 1)

    run(main())


@pytest.mark.parametrize("name", USES)
def test_a_retriable_error_is_retried_after_the_wait(name: str) -> None:
    async def main() -> None:
        store = filled(fails_first(Flaky("again")))
        retry = Retry(wait=wait_fixed(0.25))
        async with open_table(store.table, read_retry=retry, write_retry=retry) as table:
            await USES[name](table)
        assert store.operations() == [name, name]
        first, second = store.calls
        assert second.started - first.started == pytest.approx(0.25)

    run(main())


@pytest.mark.parametrize("name", USES)
def test_without_a_policy_nothing_is_retried(name: str) -> None:
    async def main() -> None:
        store = filled(fails_first(Flaky("again")))
        async with open_table(store.table) as table:
            with pytest.raises(Flaky):
                await USES[name](table)
        assert store.operations() == [name]

    run(main())


@pytest.mark.parametrize(
    ("name", "credits"),
    [("get", 3), ("get_many", 6), ("put", 6), ("put_many", 12), ("update", 6), ("delete", 3), ("delete_many", 6)],
)
def test_a_call_takes_the_credits_of_its_keys_and_values(name: str, credits: int) -> None:  # noqa: A002
    async def main() -> None:
        store = filled()
        limit = RateLimit(read=12, write=12, credits=lambda key, value: 3 if value is None else 6)
        async with open_table(store.table, rate_limit=limit) as table:
            loop = asyncio.get_running_loop()
            start = loop.time()
            for _ in range(13):
                await USES[name](table)
            # One second's worth goes at once; each later credit takes its share of a second.
            assert loop.time() - start == pytest.approx((13 * credits - 12) / 12)

    run(main())


def test_credits_are_taken_before_each_attempt() -> None:
    async def main() -> None:
        store = filled(fails_first(Flaky("again"), times=3))
        retry = Retry(wait=wait_fixed(0))
        async with open_table(store.table, read_retry=retry, rate_limit=RateLimit(read=1)) as table:
            await table.get("a")
        started = [call.started - store.calls[0].started for call in store.calls]
        assert started == pytest.approx([0, 1, 2, 3])

    run(main())


def test_a_value_of_none_is_a_delete() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            await table.put("a", None)
            await table.put_many([("b", None), ("c", ROW)])
        assert store.rows == {"c": ROW}
        assert store.operations()[0] == "delete"
        assert sorted(call.operation.removesuffix("_many") for call in store.calls[1:]) == ["delete", "put"]

    run(main())


def test_an_empty_list_makes_no_call() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            assert await table.get_many([]) == {}
            await table.put_many([])
            assert await table.update_many([]) == []
            await table.delete_many([])
        assert store.calls == []

    run(main())


def test_a_key_of_none_is_refused() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            uses: list[Callable[[], Awaitable[object]]] = [
                lambda: table.get(None),
                lambda: table.get_many(["a", None]),
                lambda: table.put(None, ROW),
                lambda: table.put_many([("a", ROW), (None, ROW)]),
                lambda: table.update(None, ROW),
                lambda: table.update_many([(None, UpdateMessage(ROW))]),
                lambda: table.delete(None),
                lambda: table.delete_many([None]),
            ]
            for use in uses:
                with pytest.raises(ValueError, match="None"):
                    await use()
        assert store.calls == []

    run(main())


def test_get_many_returns_what_there_is() -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            assert await table.get_many(["a", "c", "a"]) == {"a": ROW}

    run(main())


def test_a_function_without_bulk_methods_is_called_key_by_key() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed, bulk=False)
        async with open_table(store.table) as table:
            await table.put_many([("a", ROW), ("b", ROW)])
            assert await table.get_many(["a", "b", "c"]) == {"a": ROW, "b": ROW}
            assert await table.update_many([("a", UpdateMessage({"n": 5})), ("c", UpdateMessage({"n": 5}))]) == ["c"]
            await table.delete_many(["b", "c"])
        assert store.rows == {"a": {"n": 5}}
        assert sorted(store.operations()) == ["delete"] * 2 + ["get"] * 3 + ["put"] * 2 + ["update"] * 2

    run(main())


@pytest.mark.parametrize("pairs", [[1], [("a", ROW, ROW)], [("a",)], ["ab"], {"a": ROW}, 5, "ab"], ids=repr)
def test_pairs_that_are_none_are_refused(pairs: object) -> None:
    async def main() -> None:
        store = filled()
        async with open_table(store.table) as table:
            for call in (table.put_many, table.update_many):
                with pytest.raises(TypeError, match="pair"):
                    await call(pairs)  # type: ignore[arg-type]
        assert store.calls == []

    run(main())


@pytest.mark.parametrize("argument", ["name", "batching", "read_retry", "write_retry", "rate_limit", "cache"])
def test_an_option_of_another_type_is_refused(argument: str) -> None:
    with pytest.raises(TypeError, match=f"{argument} is 5; it must be a"):
        open_table(filled().table, **{argument: 5})  # type: ignore[call-overload]
