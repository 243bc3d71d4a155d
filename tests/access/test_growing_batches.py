"""The open batch while no other one may begin."""

import asyncio
from collections.abc import Hashable, Mapping

from structable.access import Batching, open_table

from .support.fake_clock import advance, run
from .support.fake_store import Call, FakeStore

Record = Mapping[str, object]


def sizes(store: FakeStore) -> list[int]:
    return [len(call.pairs) for call in store.calls]


def test_a_batch_grows_beyond_its_delay_while_no_other_may_begin() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=Batching(max_size=5, max_delay=1.0, max_in_flight=1)) as table:
            keys: list[Hashable] = list(range(9))
            calls = [table.put(keys.pop(), {"n": 1})]
            await advance(1)
            assert sizes(store) == [1]
            calls += [table.put(keys.pop(), {"n": 1})]
            await advance(10)
            calls += [table.put(keys.pop(), {"n": 1})]
            await advance(10)
            assert (sizes(store), table.pending) == ([1], 2)
            store.calls[0].succeed()
            await advance(0)
            assert (sizes(store), table.pending) == ([1, 2], 0)
            # Full, it waits in its place, and the next one opens.
            calls += [table.put(keys.pop(), {"n": 1}) for _ in range(6)]
            assert table.pending == 1
            await advance(10)
            assert (sizes(store), table.pending) == ([1, 2], 1)
            store.calls[1].succeed()
            await advance(0)
            assert (sizes(store), table.pending) == ([1, 2, 5], 1)
            store.calls[2].succeed()
            await advance(0)
            assert (sizes(store), table.pending) == ([1, 2, 5, 1], 0)
            store.calls[3].succeed()
            await asyncio.gather(*calls)

    run(main())


def test_a_batch_within_its_delay_is_not_sent_by_the_end_of_another() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=Batching(max_delay=1.0)) as table:
            first = table.put("a", {"n": 1})
            await advance(1)
            second = table.put("b", {"n": 1})
            await advance(0.5)
            store.calls[0].succeed()
            await first
            await advance(0.4)
            assert table.pending == 1
            await advance(0.2)
            assert table.pending == 0
            store.calls[1].succeed()
            await second

    run(main())


def test_flush_ends_what_grows() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=Batching(max_delay=1.0)) as table:
            table.put("a", {"n": 1})
            await advance(1)
            table.put("b", {"n": 1})
            await advance(2)
            flushing = table.flush()
            assert table.pending == 0
            table.put("c", {"n": 1})
            for number in range(3):
                await advance(3)
                assert flushing.done() == (number == 2)
                store.calls[number].succeed()
            await flushing

    run(main())


def test_a_batch_grows_while_one_that_was_sent_waits_for_a_key() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=Batching(max_delay=1.0, max_in_flight=None)) as table:
            calls = []
            for number in range(5):
                calls += [table.put("hot", {"n": number}), table.put(number, {"n": number})]
                await advance(1)
            assert [call.keys for call in store.running] == [["hot", 0]]
            store.calls[0].succeed()
            await advance(0)
            assert [call.keys for call in store.running] == [["hot", 1]]
            store.answer = Call.succeed
            store.calls[1].succeed()
            await asyncio.gather(*calls)
        # The last batch has a round for each write of the hot key.
        assert [sorted(map(str, call.keys)) for call in store.calls[2:]] == [["2", "3", "4", "hot"], ["hot"], ["hot"]]
        assert store.rows["hot"] == {"n": 4}

    run(main())


def test_a_batch_that_waits_for_a_bulk_call_delays_no_other_keys() -> None:
    async def main() -> None:
        store = FakeStore()
        async with open_table(store.table, batching=Batching(max_delay=1.0, max_in_flight=2)) as table:
            slow = table.put_many([("a", {"n": 1}), ("b", {"n": 1})])
            blocked = table.put("a", {"n": 2})
            await advance(1)
            free = table.put("c", {"n": 3})
            await advance(1)
            assert [call.keys for call in store.running] == [["a", "b"], ["c"]]
            store.calls[1].succeed()
            await free
            again = [table.put("a", {"n": 4}), table.put("c", {"n": 4})]
            await advance(5)
            assert table.pending == 2  # it would wait for the batch that waits
            store.answer = Call.succeed
            store.calls[0].succeed()
            await asyncio.gather(slow, blocked, *again)
        assert store.rows == {"a": {"n": 4}, "b": {"n": 1}, "c": {"n": 4}}

    run(main())
