"""Messages sent to a table over functions: their order, defaults of updates, and the first failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from functools import partial

import pytest

from structable.access import AsyncTable, Batching, Cache, FunctionTable, open_table, send_to, send_update_to
from structable.spi import RecordNotFoundError, UnsupportedOperationError, UpdateMessage, Value

from .support.fake_clock import idle, run
from .support.fake_store import Broken, Call, FakeStore

Table = AsyncTable[Hashable, Mapping[str, object]]
KEYS = range(20)
Message = tuple[Hashable, Mapping[str, object] | None]
COMPLETE = Batching(kind="complete", max_size=10, max_delay=0.1)
COMPACT = Batching(kind="compact", max_size=10, max_delay=0.1)


def row(number: int) -> dict[str, Value]:
    return {"n": number}


def message(number: int, default: int | None = None) -> UpdateMessage:
    return UpdateMessage({"m": number}, None if default is None else {"n": default})


async def arriving(messages: Iterable[Message]) -> AsyncIterator[Message]:
    for each in messages:
        await asyncio.sleep(0.001)
        yield each


async def following(sent: AsyncIterator[object]) -> object:
    return await anext(sent)


async def consume(sent: AsyncIterator[object]) -> list[object]:
    return [each async for each in sent]


def test_rows_that_are_sent_are_written_and_the_messages_come_back_in_order() -> None:
    async def main() -> None:
        messages: list[Message] = [(key, None if key % 5 == 0 else row(key)) for key in KEYS]
        sources: list[Iterable[Message] | AsyncIterator[Message]] = [messages, iter(messages), arriving(messages)]
        for source in sources:
            store = FakeStore(Call.succeed)
            store.rows[0] = row(0)
            async with open_table(store.table) as table:
                sent = send_to(table, source)
                assert store.calls == []
                assert await consume(sent) == messages
            assert store.rows == {key: row(key) for key in KEYS if key % 5}

    run(main())


def test_first_updates_start_from_their_defaults() -> None:
    async def main() -> None:
        for inserting in (False, True):
            store = FakeStore(Call.succeed, inserting=inserting)
            store.rows[0] = row(100)
            async with open_table(store.table) as table:
                messages = [(key, message(key, default=key)) for key in KEYS]
                assert await consume(send_update_to(table, messages)) == messages
                first = store.operations().count("insert_if_absent" if inserting else "put")
                assert first == len(KEYS) - 1
                again = [(key, message(-key, default=1000)) for key in KEYS]
                assert await consume(send_update_to(table, again)) == again
            assert store.rows == {key: {"n": key or 100, "m": -key} for key in KEYS}

    run(main())


def test_an_update_of_an_absent_row_without_a_default_fails() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table) as table:
            with pytest.raises(RecordNotFoundError):
                await consume(send_update_to(table, [(1, message(1))]))
        assert store.operations() == ["update"]

    run(main())


def test_defaults_that_are_not_wanted_are_not_put() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table) as table:
            with pytest.raises(RecordNotFoundError) as raised:
                await consume(send_update_to(table, [(1, message(1, default=1))], defaults=False))
        assert "defaults=True" in "".join(raised.value.__notes__)
        assert store.operations() == ["update"]

    run(main())


def test_no_default_is_put_after_another_failure() -> None:
    async def main() -> None:
        store = FakeStore(lambda call: call.fail(Broken("no")))
        async with open_table(store.table) as table:
            with pytest.raises(Broken):
                await consume(send_update_to(table, [(1, message(1, default=1))]))
        assert store.operations() == ["update"]

    run(main())


def test_a_missing_row_may_be_the_cause_of_the_error_at_any_depth() -> None:
    def wrapped(depth: int) -> Exception:
        error: Exception = RecordNotFoundError("fake", (1,))
        for _ in range(depth):
            outer = Broken("wrapped")
            outer.__cause__ = error
            error = outer
        return error

    def fail_with(failures: list[Exception], call: Call) -> None:
        if failures:
            call.fail(failures.pop())
        else:
            call.succeed()

    async def main() -> None:
        for depth in (0, 1, 5):
            failures = [wrapped(depth)]
            store = FakeStore(partial(fail_with, failures))
            async with open_table(store.table) as table:
                await consume(send_update_to(table, [(1, message(1, default=7))]))
            assert store.rows == {1: {"n": 7, "m": 1}}
            assert store.operations() == ["update", "put", "update"]

    run(main())


def test_a_default_that_cannot_be_put_is_logged_and_the_update_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Another process may have put it first."""

    async def main() -> None:
        def answer(call: Call) -> None:
            if call.operation == "put":
                call.store.rows[1] = row(5)
                call.fail(Broken("there is one"))
            else:
                call.succeed()

        store = FakeStore(answer)
        async with open_table(store.table) as table:
            await consume(send_update_to(table, [(1, message(1, default=7))]))
        assert store.rows == {1: {"n": 5, "m": 1}}

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "there is one" in caplog.text


def test_the_failure_of_the_update_after_the_default_is_raised_with_a_note() -> None:
    async def main() -> None:
        def answer(call: Call) -> None:
            if call.operation == "update" and 1 in call.store.rows:
                call.fail(Broken("no"))
            else:
                call.succeed()

        store = FakeStore(answer)
        async with open_table(store.table) as table:
            with pytest.raises(Broken) as raised:
                await consume(send_update_to(table, [(1, message(1, default=7))]))
        assert "default" in "".join(raised.value.__notes__)
        assert store.operations() == ["update", "put", "update"]

    run(main())


def test_the_first_failure_comes_in_place_of_its_message_and_the_others_end() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table) as table:
            sent = send_to(table, [(key, row(key)) for key in range(6)], concurrency=4)
            task = asyncio.ensure_future(following(sent))
            await idle()
            assert [call.keys for call in store.running] == [[0], [1], [2], [3]]
            for call in list(store.running):
                if call.keys in ([1], [2]):
                    call.fail(Broken(call.keys[0]))
                elif call.keys == [0]:
                    call.succeed()
            assert await task == (0, row(0))
            end = asyncio.ensure_future(following(sent))
            await idle()
            assert not end.done()
            for call in list(store.running):
                call.succeed()
            with pytest.raises(Broken, match="1"):
                await end
            with pytest.raises(StopAsyncIteration):
                await anext(sent)
        assert store.running == []
        assert store.rows.keys() >= {0, 3}
        assert len(store.calls) <= 5

    run(main())


def test_at_most_concurrency_messages_are_in_flight_and_those_of_a_key_one_after_the_other() -> None:
    async def main() -> None:
        most = 0

        def answer(call: Call) -> None:
            nonlocal most
            most = max(most, len(call.store.running))
            asyncio.get_running_loop().call_later(0.01 / (1 + len(call.store.calls)), call.succeed)

        store = FakeStore(answer)
        async with open_table(store.table) as table:
            messages = [(number % 7, row(number)) for number in range(100)]
            assert await consume(send_to(table, messages, concurrency=5)) == messages
        assert most == 5
        assert store.overlaps == []
        for key in range(7):
            assert store.history(key) == [value for of, value in messages if of == key]

    run(main())


def test_an_abandoned_iteration_leaves_nothing_behind() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table) as table:
            async for each in send_to(table, [(key, row(key)) for key in KEYS], concurrency=4):
                assert each == (0, row(0))
                break
            await idle()
        assert 1 <= len(store.calls) < len(KEYS)

    run(main())


@pytest.mark.parametrize(
    ("send", "wrong", "other"),
    [(send_to, (2, message(2)), "send_update_to"), (send_update_to, (2, row(2)), "send_to")],
)
def test_a_message_of_the_other_function_is_refused_in_its_place(
    send: Callable[..., AsyncIterator[object]], wrong: object, other: str
) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        store.rows[1] = row(1)
        right = (1, row(1)) if send is send_to else (1, message(1))
        async with open_table(store.table) as table:
            sent = send(table, [right, wrong, right])
            assert await anext(sent) == right
            with pytest.raises(TypeError, match=other):
                await anext(sent)

    run(main())


def test_updates_are_refused_before_any_message_where_batches_are_compact() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(store.table, batching=Batching(kind="compact")) as table:
            with pytest.raises(UnsupportedOperationError, match="compact"):
                send_update_to(table, [(1, message(1))])

    run(main())


def test_a_table_that_only_reads_refuses_messages() -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed)
        async with open_table(FunctionTable(read=store.reads)) as table:
            with pytest.raises(UnsupportedOperationError):
                await consume(send_to(table, [(1, row(1))]))
            with pytest.raises(UnsupportedOperationError):
                await consume(send_update_to(table, [(1, message(1))]))

    run(main())


@pytest.mark.parametrize(
    "batching",
    [None, COMPLETE, COMPACT],
)
@pytest.mark.parametrize("cache", [None, Cache(), Cache(max_rows=2)])
def test_a_stream_looked_up_in_one_table_is_sent_to_another(batching: Batching | None, cache: Cache | None) -> None:
    async def main() -> None:
        profiles, joined = FakeStore(Call.succeed), FakeStore(Call.succeed)
        profiles.rows = {key: {"name": f"name {key}"} for key in range(4)}
        views = [(number, number % 5) for number in range(50)]

        async with (
            open_table(profiles.table, batching=batching, cache=cache) as table,
            open_table(joined.table, batching=batching) as target,
        ):
            found = await asyncio.gather(*(table.get(member) for _, member in views))
            messages = [
                (view, {"view": view, **profile})
                for (view, _), profile in zip(views, found, strict=True)
                if profile is not None
            ]
            assert await consume(send_to(target, messages)) == messages
        assert joined.rows == {
            view: {"view": view, "name": f"name {member}"} for view, member in views if member in profiles.rows
        }
        if batching is not None:
            assert len(joined.calls) == 4

    run(main())


@pytest.mark.parametrize("batching", [None, COMPLETE])
def test_updates_of_a_stream_in_batches_sum_up(batching: Batching | None) -> None:
    async def main() -> None:
        store = FakeStore(Call.succeed, merge=lambda old, changes: {"n": old["n"] + changes["n"]})  # type: ignore[operator]
        async with open_table(store.table, batching=batching) as table:
            messages = [(number % 4, UpdateMessage({"n": 1}, {"n": 0})) for number in range(100)]
            assert await consume(send_update_to(table, messages)) == messages
        assert store.rows == {key: {"n": 25} for key in range(4)}

    run(main())


def test_an_abandoned_iteration_of_sent_messages_ends_what_is_in_flight() -> None:
    async def main() -> None:
        store = FakeStore(lambda call: asyncio.get_running_loop().call_later(0.003, call.succeed))

        async def send() -> None:
            async for _ in send_to(table, ((key, row(1)) for key in range(1000)), concurrency=8):
                await asyncio.sleep(0.001)

        for steps in range(12):
            async with open_table(store.table) as table:
                task = asyncio.create_task(send())
                await asyncio.sleep(0.001 * steps)
                task.cancel()
                await asyncio.wait([task])
            assert store.running == []

    run(main())
