"""Functions that break their contract, odd exceptions, cancellation at every step, and loops that end too early."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from tenacity import stop_never, wait_fixed

from structable.access import (
    AsyncTable,
    Batching,
    Cache,
    FunctionTable,
    RateLimit,
    Retry,
    TableReadFunction,
    open_table,
)
from structable.spi import UpdateMessage

from .support.fake_clock import advance, idle, outcomes, run
from .support.fake_store import Broken, Call, FakeStore, Flaky

Record = Mapping[str, object]
Table = AsyncTable[Hashable, Record]

ROW = {"n": 1}
COMPLETE = Batching(kind="complete", max_size=None, max_delay=0.01, max_in_flight=2)
COMPACT = Batching(kind="compact", max_size=None, max_delay=0.01, max_in_flight=2)

any_batching = pytest.mark.parametrize("batching", [None, COMPLETE, COMPACT], ids=["alone", "complete", "compact"])


def answering(results: Mapping[str, Callable[[Call], object]]) -> Callable[[Call], object]:
    """Answer the named operations so, and let all others succeed."""

    def answer(call: Call) -> None:
        results.get(call.operation, Call.succeed)(call)

    return answer


async def still_works(table: Table, store: FakeStore) -> None:
    """The table serves the keys of earlier calls, and others."""
    store.answer = Call.succeed
    for key in ("a", "b", "c", "other"):
        await table.put(key, {"last": key})
    found = await asyncio.gather(*(table.get(key) for key in ("a", "b", "c", "other")))
    assert found == [{"last": key} for key in ("a", "b", "c", "other")]


@pytest.mark.parametrize("result", [None, [], 5, "ab", {"foreign": ROW}, {None: ROW}], ids=repr)
@pytest.mark.parametrize("cache", [None, Cache()])
@any_batching
def test_a_wrong_result_of_get_many_fails_these_gets_alone(
    batching: Batching | None, cache: Cache | None, result: object
) -> None:
    async def main() -> None:
        store = FakeStore(answering({"get_many": lambda call: call.give(result)}))
        async with open_table(store.table, batching=batching, cache=cache) as table:
            found = await outcomes(table.get("a"), table.get("b"), table.put("c", ROW), table.get_many(["d", "e"]))
            assert found[2] is None
            assert store.rows == {"c": ROW}
            if isinstance(result, dict):
                assert found[3] == {}
            else:
                assert isinstance(found[3], TypeError), found
                assert "get_many" in str(found[3])
            if batching is not None:
                assert all(each is None or isinstance(each, TypeError) for each in found[:2])
            calls = len(store.calls)
            store.answer = Call.succeed
            assert await table.get("foreign") is None
            assert len(store.calls) > calls
            await still_works(table, store)

    run(main())


@pytest.mark.parametrize("result", [True, 5, [[]], ["foreign"]], ids=repr)
@pytest.mark.parametrize("batching", [None, COMPLETE])
def test_a_wrong_result_of_update_many_fails_these_updates_alone(batching: Batching | None, result: object) -> None:
    async def main() -> None:
        store = FakeStore(answering({"update_many": lambda call: call.give(result)}))
        store.rows = {"a": ROW, "b": ROW}
        async with open_table(store.table, batching=batching) as table:
            updates = [("a", UpdateMessage(ROW)), ("b", UpdateMessage(ROW, ROW))]
            calls: list[Awaitable[object]] = [table.update("a", ROW), table.update("b", ROW), table.get("c")]
            found = await outcomes(*calls, table.update_many(updates))
            assert found[2] is None
            if result == ["foreign"]:
                assert found[3] == []
            else:
                assert isinstance(found[3], TypeError), found
                assert "update_many" in str(found[3])
            await still_works(table, store)

    run(main())


@any_batching
def test_a_function_that_is_not_asynchronous_fails_its_calls(batching: Batching | None) -> None:
    class Reads(TableReadFunction[Hashable, Record]):
        def get(self, key: Hashable) -> Record:  # type: ignore[override]
            if key == "stop":
                raise StopIteration
            return ROW

    async def main() -> None:
        async with open_table(FunctionTable(read=Reads()), batching=batching) as table:
            found = await outcomes(table.get("a"), table.get("b"), table.get("stop"))
        assert all(isinstance(each, TypeError | RuntimeError) for each in found), found

    run(main())


class NeedsArguments(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class RefusesCopies(Exception):
    def __reduce__(self) -> str:
        raise RuntimeError("not to be copied")

    def __copy__(self) -> Exception:
        raise RuntimeError("not to be copied")


class Odd(BaseException):
    pass


ERRORS: list[Callable[[], BaseException]] = [
    lambda: NeedsArguments(7, reason="no"),
    lambda: RefusesCopies("no"),
    lambda: Odd("no"),
    lambda: asyncio.CancelledError("no"),
    lambda: GeneratorExit("no"),
    lambda: TimeoutError("no"),
    lambda: ExceptionGroup("no", [ValueError("no")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error()).__name__)
@pytest.mark.parametrize("options", [{}, {"cache": Cache()}, {"rate_limit": RateLimit(read=1e6)}], ids=str)
@any_batching
def test_any_error_reaches_the_callers_of_its_call_and_nobody_else(
    batching: Batching | None, options: dict[str, object], error: Callable[[], BaseException]
) -> None:
    async def main() -> None:
        store = FakeStore()
        read_retry = Retry(stop=stop_never, wait=wait_fixed(0.01))
        async with open_table(store.table, batching=batching, read_retry=read_retry, **options) as table:  # type: ignore[call-overload]
            gets = [asyncio.ensure_future(table.get(key)) for key in "aab"]
            writes = [asyncio.ensure_future(each) for each in (table.put("c", ROW), table.delete("other"))]
            await advance(0.02)
            reads = [call for call in store.running if call.operation.startswith("get")]
            for call in reads:
                call.fail(error())
            await advance(0.001)
            assert all(get.done() for get in gets)
            assert not any(write.done() for write in writes)
            # The callers were not cancelled, only something that the function awaited.
            expected = RuntimeError if isinstance(error(), asyncio.CancelledError) else type(error())
            assert [type(get.exception()) for get in gets] == [expected] * 3
            later = asyncio.ensure_future(table.put("c", {"n": 2}))
            await advance(0.02)
            for call in list(store.running):
                call.succeed()
            await asyncio.gather(*writes)
            await advance(0.02)
            for call in list(store.running):
                call.succeed()
            await later
            assert store.overlaps == []
            await still_works(table, store)

    run(main())


@any_batching
def test_one_exception_instance_may_fail_many_calls(batching: Batching | None) -> None:
    async def main() -> None:
        error = NeedsArguments(7, reason="always the same")
        store = FakeStore(lambda call: call.fail(error))
        async with open_table(store.table, batching=batching) as table:
            found = await outcomes(*(table.get(number) for number in range(20)))
            assert [type(each) for each in found] == [NeedsArguments] * 20
            assert len(getattr(error, "__notes__", [])) <= 1
            await still_works(table, store)

    run(main())


def test_a_value_that_cannot_be_copied_is_given_to_one_caller_and_fails_no_other() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        lock = threading.Lock()
        store.rows = {"a": {"lock": lock}, "b": ROW}
        for batching in (COMPLETE, COMPACT, None):
            async with open_table(store.table, batching=batching) as table:
                assert await table.get("a") == {"lock": lock}
                found = await outcomes(table.get("a"), table.get("a"), table.get("b"))
                assert found[2] == ROW
                assert found[0] == {"lock": lock}
                assert found[1] == {"lock": lock} or isinstance(found[1], TypeError)

    run(main())


@asynccontextmanager
async def opened(batching: Batching | None) -> AsyncIterator[tuple[FakeStore, Table]]:
    store = FakeStore(lambda call: asyncio.get_running_loop().call_later(0.003, call.succeed))
    store.rows = {"a": ROW, "b": ROW}
    retry = Retry(wait=wait_fixed(0.01))
    async with open_table(
        store.table, batching=batching, read_retry=retry, write_retry=retry, rate_limit=RateLimit(read=300, write=300)
    ) as table:
        yield store, table


CALLS: dict[str, Callable[[Table], Awaitable[object]]] = {
    "get": lambda table: table.get("a"),
    "get_many": lambda table: table.get_many(["a", "b"]),
    "put": lambda table: table.put("a", {"n": 2}),
    "put_many": lambda table: table.put_many([("a", {"n": 2}), ("b", None)]),
    "update": lambda table: table.update("a", {"m": 2}, default=ROW),
    "update_many": lambda table: table.update_many([("c", UpdateMessage(ROW, {})), ("b", UpdateMessage(ROW))]),
    "delete": lambda table: table.delete("a"),
    "flush": lambda table: table.flush(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batching", [None, COMPLETE])
def test_a_call_whose_caller_is_cancelled_at_any_step_is_carried_out(name: str, batching: Batching | None) -> None:
    async def attempt(steps: int) -> tuple[bool, Mapping[Hashable, Record]]:
        async with opened(batching) as (store, table):

            async def caller() -> None:
                await CALLS[name](table)

            task = asyncio.create_task(caller())
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 10 else 0.0007)
            # From its first step on the call is made.
            cancelled = task.cancel()
            await asyncio.wait([task])
            await table.flush()
        assert store.overlaps == []
        assert store.cancelled == []
        return cancelled, store.rows

    cancelled, expected = run(attempt(1000))
    assert not cancelled
    for steps in range(1, 40):
        assert run(attempt(steps))[1] == expected, steps


@pytest.mark.parametrize("batching", [None, COMPLETE, COMPACT])
def test_leaving_that_is_cancelled_at_any_step_ends_every_call_and_closes_the_functions(
    batching: Batching | None,
) -> None:
    async def main(steps: int) -> None:
        store = FakeStore(lambda call: asyncio.get_running_loop().call_later(0.003, call.succeed))
        calls: list[asyncio.Future[object]] = []

        async def owner() -> None:
            async with open_table(store.table, batching=batching) as table:
                for key in ("a", "a", "b"):
                    calls.append(asyncio.ensure_future(table.put(key, ROW)))
                    calls.append(asyncio.ensure_future(table.get(key)))
                await asyncio.sleep(0.001)

        task = asyncio.create_task(owner())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.wait([task])
        await advance(1)
        assert all(call.done() for call in calls)
        assert store.running == []
        assert sorted(store.closed) == sorted(store.opened)

    for steps in range(60):
        run(main(steps))


def test_leaving_that_is_cancelled_ends_at_once_and_the_calls_go_on() -> None:
    async def main() -> None:
        store = FakeStore(lambda call: call.fail(Flaky("again")))
        retry = Retry(stop=stop_never, wait=wait_fixed(1))
        calls: list[asyncio.Future[None]] = []

        async def owner() -> None:
            async with open_table(store.table, write_retry=retry) as table:
                calls.append(table.put("a", ROW))

        task = asyncio.create_task(owner())
        await advance(100)
        assert not task.done()
        task.cancel()
        await idle()
        assert task.cancelled()
        assert not calls[0].done()
        store.answer = Call.succeed
        await calls[0]
        await advance(1)
        assert sorted(store.closed) == ["reads", "writes"]

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@any_batching
def test_an_interrupt_in_a_function_ends_the_loop(batching: Batching | None, error: type[BaseException]) -> None:
    def interrupt(call: Call) -> None:
        raise error

    async def main() -> None:
        store = FakeStore(answering({"get": interrupt, "get_many": interrupt}))
        async with open_table(store.table, batching=batching) as table:
            await asyncio.gather(*(table.get(key) for key in "ab"), *(table.put(key, ROW) for key in "abc"))

    with pytest.raises(error):
        asyncio.run(main())
    gc.collect()


@any_batching
def test_a_loop_may_end_with_calls_pending(batching: Batching | None) -> None:
    tables: list[Table] = []
    calls: list[asyncio.Future[object]] = []

    async def main() -> None:
        table: Table = open_table(FakeStore().table, batching=batching)
        await table.__aenter__()
        tables.append(table)
        for key in "ab":
            calls.append(asyncio.ensure_future(table.get(key)))
            calls.append(asyncio.ensure_future(table.put(key, ROW)))
        await asyncio.sleep(0.05)

    asyncio.run(main())

    async def other() -> None:
        with pytest.raises(RuntimeError, match="loop"):
            await tables[0].get("a")

    asyncio.run(other())
    assert all(call.done() for call in calls)
    tables.clear()
    gc.collect()


@pytest.mark.parametrize("max_in_flight", [1, None])
def test_a_loop_may_end_with_thousands_of_calls_of_one_key_pending(max_in_flight: int | None) -> None:
    calls: list[asyncio.Future[None]] = []

    async def main(batching: Batching | None) -> None:
        table: Table = open_table(FakeStore().table, batching=batching)
        await table.__aenter__()
        calls.extend(table.put("hot", ROW) for _ in range(3_000))
        await asyncio.sleep(0)

    for batching in (None, Batching(max_size=1, max_delay=None, max_in_flight=max_in_flight)):
        asyncio.run(main(batching))
        assert all(call.cancelled() for call in calls)
        calls.clear()


@any_batching
def test_a_call_whose_future_is_dropped_is_carried_out(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=batching) as table:
            table.put("a", ROW)
            gc.collect()
            await idle()
            gc.collect()
        assert store.rows == {"a": ROW}

    run(main())


@any_batching
def test_a_failure_that_its_caller_sees_is_not_raised_by_a_flush_as_well(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore(lambda call: call.fail(Broken("no")))
        async with open_table(store.table, batching=batching) as table:
            found = await outcomes(table.put("a", ROW), table.flush())
            assert isinstance(found[0], Broken)
            assert found[1] is None

    run(main())


@any_batching
def test_a_function_may_use_other_keys_of_its_own_table(batching: Batching | None) -> None:
    class Reads(TableReadFunction[int, int]):
        table: AsyncTable[int, int]

        async def get(self, key: int) -> int:
            return 0 if key == 0 else 1 + (await self.table.get(key - 1) or 0)

    async def main() -> None:
        reads = Reads()
        unlimited = None if batching is None else Batching(kind=batching.kind, max_delay=0.01, max_in_flight=None)
        async with open_table(FunctionTable(read=reads), batching=unlimited) as table:
            reads.table = table
            assert await table.get(5) == 5

    run(main())


def test_many_calls_of_one_key_and_of_many_keys_end() -> None:
    """Neither the stack nor the time grows faster than their number."""

    async def main() -> None:
        for batching in (None, COMPLETE, COMPACT):
            store = FakeStore(Call.succeed)
            async with open_table(store.table, batching=batching) as table:
                calls = [table.put("hot", {"n": number}) for number in range(5_000)]
                calls += [table.put(number, {"n": number}) for number in range(5_000)]
                await asyncio.gather(*calls)
            assert store.rows["hot"] == {"n": 4_999}
            assert len(store.rows) == 5_001

    run(main())


@pytest.mark.parametrize("kind", ["complete", "compact"])
def test_leaving_within_an_open_batch_of_every_kind_of_failure_raises_once(
    kind: Literal["complete", "compact"],
) -> None:
    """A failed write that nobody awaited is raised by leaving, and nothing is left for the log."""

    async def main() -> None:
        store = FakeStore(lambda call: call.fail(Broken("no")))
        table: Table = open_table(store.table, batching=Batching(kind=kind))

        async def leave() -> None:
            async with table:
                table.put("a", ROW)
                table.delete("b")

        with pytest.raises(Broken, match="no"):
            await leave()
        assert sorted(store.closed) == ["reads", "writes"]

    run(main())
