"""Who sees a failure: its caller, else flush, else asyncio's log."""

import asyncio
import gc
import logging
import traceback
from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from structable.access import AsyncTable, Batching, FunctionTable, TableReadFunction, TableWriteFunction, open_table

from .support.fake_clock import advance, outcomes, run
from .support.fake_store import Broken, Call, FakeStore

Record = Mapping[str, object]
ROW = {"n": 1}

any_batching = pytest.mark.parametrize("batching", [None, Batching(), Batching("compact")], ids=str)


def failing(call: Call) -> None:
    call.fail(Broken(call.operation))


@any_batching
def test_flush_raises_the_first_failure_that_nobody_has_seen_once(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore(failing)
        async with open_table(store.table, batching=batching) as table:
            for key in range(3):
                table.put(key, ROW)
            with pytest.raises(Broken, match="put") as raised:
                await table.flush()
            assert raised.value.__notes__ == ["2 more failed writes were never awaited"]
            await table.flush()
            store.answer = Call.succeed
            table.put("a", ROW)
            await table.flush()

    run(main())


@any_batching
def test_failures_that_callers_see_are_theirs(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore(failing)
        async with open_table(store.table, batching=batching) as table:
            with pytest.raises(Broken):
                await table.put("a", ROW)
            found = await outcomes(table.put("a", ROW), table.delete("b"), table.put_many([("c", ROW)]))
            assert [type(one) for one in found] == [Broken] * 3
            kept = table.put("d", ROW)
            await advance(1)
            assert isinstance(kept.exception(), Broken)
            lost = table.get("e")
            await table.flush()  # a read that failed has left nothing undone
            assert isinstance(lost.exception(), Broken)

    run(main())


@any_batching
def test_the_failure_of_a_cancelled_caller_is_left_to_flush(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=batching) as table:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(table.put("a", ROW), 1)
            store.calls[0].fail(Broken("late"))
            with pytest.raises(Broken, match="late"):
                await table.flush()

    run(main())


@any_batching
def test_leaving_raises_what_flush_would_and_never_hides_the_error_of_the_block(
    batching: Batching | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(error: Exception | None) -> None:
        async with open_table(FakeStore(failing).table, batching=batching) as table:
            table.put("a", ROW)
            if error is not None:
                raise error

    with pytest.raises(Broken):
        run(leave(None))
    with pytest.raises(LookupError) as raised:
        run(leave(LookupError("the block's own")))
    assert "Broken" in raised.value.__notes__[0]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_asyncio_logs_what_neither_a_caller_nor_flush_has_seen() -> None:
    logged: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))
        table = open_table(FakeStore(failing).table)
        for number in range(150):
            table.put(number, ROW)
        for _ in range(50):  # each write takes a few turns of the loop
            await asyncio.sleep(0)
        gc.collect()
        assert len(logged) == 50  # the newest 100 are kept for flush
        with pytest.raises(Broken) as raised:
            await table.close()
        assert raised.value.__notes__ == ["149 more failed writes were never awaited"]
        del raised
        gc.collect()

    asyncio.run(main())
    assert logged == ["Future exception was never retrieved"] * 50


def test_each_caller_has_an_exception_of_its_own() -> None:
    async def main() -> None:
        async with open_table(FakeStore(failing).table, batching=Batching()) as table:
            calls: list[asyncio.Future[Any]] = [table.put(key, ROW) for key in range(20)] + [
                table.get("x"),
                table.get("x"),
                table.get("x"),
            ]

            async def caught(call: asyncio.Future[Any]) -> BaseException:
                try:
                    await call
                except Broken as error:
                    error.add_note("mine")
                    return error
                raise AssertionError("it must fail")

            errors = await asyncio.gather(*map(caught, calls))
            assert len(set(map(id, errors))) == len(calls)
            assert {tuple(error.__notes__) for error in errors} == {("mine",)}
            lengths = {len(traceback.extract_tb(error.__traceback__)) for error in errors}
            assert max(lengths) - min(lengths) <= 1
            assert {error.args for error in errors} == {("put_many",), ("get",)}

    run(main())


class Closing(TableReadFunction[str, int], TableWriteFunction[str, int]):
    """Reads and writes; records and fails as told."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.done: list[str] = []

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.failing:
            raise Broken(what)

    async def get(self, key: str) -> int | None:
        self._do("get")
        return None

    async def put(self, key: str, value: int) -> None:
        self._do("put")

    async def delete(self, key: str) -> None:
        self._do("delete")

    async def open(self) -> None:
        self._do("open")

    async def close(self) -> None:
        self._do("close")


def test_an_object_that_reads_and_writes_is_opened_and_closed_once() -> None:
    async def main() -> None:
        functions = Closing()
        async with open_table(FunctionTable(functions, functions)) as table:
            await table.put("a", 1)
        await table.close()
        assert functions.done == ["open", "put", "close"]

    run(main())


def test_a_failure_of_close_does_not_hide_that_of_a_write() -> None:
    async def main() -> None:
        functions = Closing("put", "close")
        with pytest.raises(Broken, match="put") as raised:
            async with open_table(FunctionTable(functions, functions)) as table:
                table.put("a", 1)
        assert "Broken('close')" in raised.value.__notes__[0]
        alone = Closing("close")
        with pytest.raises(Broken, match="close"):
            async with open_table(FunctionTable(alone, alone)):
                pass

    run(main())


def test_functions_that_are_not_entered_are_opened_by_the_first_call() -> None:
    async def main() -> None:
        functions = Closing()
        table: AsyncTable[Hashable, int] = open_table(FunctionTable(functions, functions))  # type: ignore[arg-type]
        await asyncio.gather(table.get("a"), table.get("b"))
        await table.close()
        assert functions.done == ["open", "get", "get", "close"]
        unused = Closing()
        await open_table(FunctionTable(unused, unused)).close()
        assert unused.done == []

    run(main())


def test_functions_that_cannot_be_opened() -> None:
    async def main() -> None:
        functions, write = Closing(), Closing("open")
        with pytest.raises(Broken, match="open"):
            async with open_table(FunctionTable(functions, write)):
                raise AssertionError("it must not be entered")
        assert functions.done == ["open", "close"]
        table = open_table(FunctionTable(write=write))
        with pytest.raises(Broken, match="open"):
            await table.put("a", 1)
        write.failing = ()
        await table.put("a", 1)
        await table.close()

    run(main())
