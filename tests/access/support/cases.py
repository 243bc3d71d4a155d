"""What an asynchronous table promises over any store; a class of tests subclasses this for each."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from structable.access import AsyncTable, Batching, Cache, blocking, open_table, send_to, send_update_to
from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    Key,
    RecordNotFoundError,
    Row,
    Storage,
    StructuredTable,
    TableSpecification,
    UpdateMessage,
    Value,
    connect,
)
from structable.spi.authors import lowered_limit

from .fake_clock import outcomes

ROOT = Path(__file__).parents[3]
Table = AsyncTable[Key, Row]

PLACES = [f"f{place}" for place in range(8)]
USERS = TableSpecification(
    "users", [Field.string("id"), Field.string("name"), *(Field.long(place) for place in PLACES)], ["id"]
)
HOT_ROWS = TableSpecification("hot_rows", [Field.string("id"), Field.long("ours"), Field.long("theirs")], ["id"])
TOTALS = TableSpecification(
    "totals",
    [Field.string("shop"), Field.int("day"), Field.long("sum"), Field.string("last")],
    ["shop", "day"],
    options={
        "merge-engine": "aggregation",
        "fields.sum.aggregate-function": "sum",
        "fields.last.aggregate-function": "last_non_null_value",
    },
)

COMPLETE = Batching(kind="complete", max_size=16, max_delay=0.005, max_in_flight=4)
COMPACT = Batching(kind="compact", max_size=16, max_delay=0.005, max_in_flight=4)
any_batching = pytest.mark.parametrize("batching", [None, COMPLETE, COMPACT], ids=["alone", "complete", "compact"])
any_order = pytest.mark.parametrize("batching", [None, COMPLETE], ids=["alone", "complete"])


class StoreCases:
    """Subclassed for each store, with a fixture `url`."""

    rounds = 200
    processes = True  # whether another process can use the store

    @pytest.fixture
    def storage(self, url: str) -> Iterator[Storage]:
        with connect(url) as storage:
            yield storage

    @pytest.fixture
    def user_table(self, storage: Storage) -> StructuredTable:
        storage.admin.create(USERS)
        return storage.table("users")

    @pytest.fixture
    def hot_table(self, storage: Storage) -> StructuredTable:
        storage.admin.create(HOT_ROWS)
        return storage.table("hot_rows")

    @pytest.fixture
    def total_table(self, storage: Storage) -> StructuredTable:
        storage.admin.create(TOTALS)
        return storage.table("totals")

    @any_order
    def test_concurrent_updates_of_one_row_all_stay(
        self, user_table: StructuredTable, batching: Batching | None
    ) -> None:
        async def main() -> None:
            async with open_table(user_table, batching=batching) as users:
                calls: list[Awaitable[None]] = []
                for number in range(64):
                    key = (f"hot {number % 4}",)
                    calls.append(users.update(key, {PLACES[number // 4 % 8]: number}, default={"name": "new"}))
                await asyncio.gather(*calls)

        asyncio.run(main())
        for hot in range(4):
            row = user_table.read((f"hot {hot}",))
            assert row is not None
            assert row.name == "new"
            assert [row[place] for place in PLACES] == [32 + 4 * place + hot for place in range(8)]

    @any_batching
    def test_concurrent_upserts_are_merged_by_the_engine(
        self, total_table: StructuredTable, batching: Batching | None
    ) -> None:
        async def main() -> None:
            async with open_table(total_table, batching=batching) as totals:
                calls: list[Awaitable[None]] = []
                for number in range(60):
                    calls.append(totals.upsert((f"shop {number % 3}", 1), {"sum": number, "last": f"{number}"}))
                calls.append(totals.upsert_many([((f"shop {shop}", 1), {"sum": 1000}) for shop in range(3)]))
                await asyncio.gather(*calls)
                assert await totals.get(("shop 0", 1)) == {
                    "shop": "shop 0",
                    "day": 1,
                    "sum": sum(range(0, 60, 3)) + 1000,
                    "last": "57",
                }
                await totals.put(("shop 0", 1), {"sum": 5})
                await totals.delete(("shop 1", 1))

        asyncio.run(main())
        table = total_table
        assert [row.sum for row in table.scan()] == [5, sum(range(2, 60, 3)) + 1000]

    @pytest.mark.parametrize("cache", [None, Cache(max_rows=3, absent=True)], ids=["read", "cached"])
    @any_batching
    def test_calls_of_a_key_take_effect_in_their_order(
        self, user_table: StructuredTable, batching: Batching | None, cache: Cache | None
    ) -> None:
        """A program of random calls, few awaited before all are made, gives what a dict gives one by one."""
        chance = random.Random(7)
        compact = batching is not None and batching.kind == "compact"

        async def main() -> None:
            rows: dict[str, dict[str, Value]] = {}
            calls: list[Awaitable[object]] = []
            expected: list[object] = []
            async with open_table(user_table, batching=batching, cache=cache) as users:
                for number in range(self.rounds):
                    name = f"user {chance.randrange(5)}"
                    call, result = self._random_call(users, chance.randrange(4 if compact else 7), name, number, rows)
                    calls.append(call)
                    expected.append(result)
                    if cache is not None and number % 10 == 9:
                        await outcomes(*calls[-5:])
                results = await outcomes(*calls)
            for number, (result, right) in enumerate(zip(results, expected, strict=True)):
                if right is RecordNotFoundError:
                    assert isinstance(result, RecordNotFoundError), number
                else:
                    assert result == right, number
            assert {row.id: dict(row) for row in user_table.scan()} == rows

        asyncio.run(main())

    def _random_call(
        self, users: Table, kind: int, name: str, number: int, rows: dict[str, dict[str, Value]]
    ) -> tuple[Awaitable[object], object]:
        empty: dict[str, Value] = {"id": name, "name": None, **dict.fromkeys(PLACES)}
        match kind:
            case 0:
                return users.get((name,)), dict(rows[name]) if name in rows else None
            case 1:
                rows[name] = {**empty, "f0": number}
                return users.put((name,), {"f0": number}), None
            case 2:
                rows.pop(name, None)
                return users.delete((name,)), None
            case 3:
                return users.get_many([(name,)]), {(name,): dict(rows[name])} if name in rows else {}
            case 4:
                if name not in rows:
                    return users.update((name,), {"f1": number}), RecordNotFoundError
                rows[name] = {**rows[name], "f1": number}
                return users.update((name,), {"f1": number}), None
            case 5:
                rows[name] = {**rows.get(name, {**empty, "f2": -number}), "f1": number}
                return users.update((name,), {"f1": number}, default={"f2": -number}), None
            case _:
                rows[name] = {**rows.get(name, empty), "f3": number}
                return users.upsert((name,), {"f3": number}), None

    @any_order
    def test_missing_rows_fail_alone_or_start_from_their_default(
        self, user_table: StructuredTable, batching: Batching | None
    ) -> None:
        async def main() -> None:
            async with open_table(user_table, batching=batching) as users:
                await users.put(("there",), {"name": "old"})
                results = await outcomes(
                    users.update(("there",), {"f0": 1}, default={"name": "default"}),
                    users.update(("absent",), {"f0": 2}),
                    users.update(("new",), {"f0": 3}, default={"name": "default"}),
                )
                assert isinstance(results[1], RecordNotFoundError)
                assert results[::2] == [None, None]
                missing = await users.update_many(
                    [
                        (("there",), UpdateMessage({"f1": 1})),
                        (("absent",), UpdateMessage({"f1": 2})),
                        (("late",), UpdateMessage({"f1": 3}, {"name": "late"})),
                    ]
                )
                assert missing == [("absent",)]
                found = await users.get_many([("there",), ("absent",), ("new",), ("late",)])
                assert {key: (row.name, row.f0, row.f1) for key, row in found.items()} == {
                    ("there",): ("old", 1, 1),
                    ("new",): ("default", 3, None),
                    ("late",): ("late", None, 3),
                }

        asyncio.run(main())

    @any_batching
    def test_a_bad_row_fails_alone(self, user_table: StructuredTable, batching: Batching | None) -> None:
        async def main() -> None:
            async with open_table(user_table, batching=batching) as users:
                bad: list[tuple[object, dict[str, Value]]] = [
                    ((1,), {"f0": 1}),
                    (("bad",), {"f0": "text"}),
                    (("bad",), {"nothing": 1}),
                    (("bad",), {"id": "another"}),
                    (("bad", "more"), {"f0": 1}),
                    ("bad", {"f0": 1}),
                    (("k" * 5000,), {"f0": 1}),
                ]
                calls: list[Awaitable[object]] = [users.put(("good 1",), {"f0": 1})]
                calls += [self._later(users, key, row) for key, row in bad]
                calls.append(users.put(("good 2",), {"f0": 2}))
                results = await outcomes(*calls)
            assert results[0] is None
            assert results[-1] is None
            assert all(isinstance(result, InvalidFieldError) for result in results[1:-1]), results
            assert isinstance(results[-2], FieldSizeLimitError)

        asyncio.run(main())
        assert [row.id for row in user_table.scan()] == ["good 1", "good 2"]

    async def _later(self, users: Table, key: object, row: dict[str, Value]) -> None:
        await users.put(key, row)  # type: ignore[arg-type]

    @any_batching
    def test_rows_too_large_for_one_transaction_are_written(
        self, user_table: StructuredTable, batching: Batching | None
    ) -> None:
        async def main() -> None:
            async with open_table(user_table, batching=batching) as users:
                await asyncio.gather(*(users.put((f"{number}",), {"name": "x" * 2_000}) for number in range(10)))
                if batching is not COMPACT:
                    await asyncio.gather(*(users.update((f"{number}",), {"name": "y" * 2_000}) for number in range(10)))

        with lowered_limit(10_000):
            asyncio.run(main())
        assert user_table.count() == 10

    @any_order
    def test_no_update_is_lost_beside_another_process(
        self, hot_table: StructuredTable, url: str, batching: Batching | None
    ) -> None:
        if not self.processes:
            pytest.skip("no other process can use the store")
        hot_table.replace({"id": "hot", "ours": 0, "theirs": 0})
        command = [sys.executable, "-m", "tests.access.support.other_writer", url]
        other = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "begun\n"

            async def main() -> None:
                async with open_table(hot_table, batching=batching) as rows:
                    for wave in range(5):
                        await asyncio.gather(*(rows.update(("hot",), {"ours": 10 * wave + n}) for n in range(10)))

            asyncio.run(main())
            other.stdin.close()
            count = int(other.stdout.read())
        row = hot_table.read(("hot",))
        assert row == {"id": "hot", "ours": 49, "theirs": count}

    @pytest.mark.parametrize("mode", ["replace", "upsert"])
    @any_batching
    def test_sent_messages_are_written_in_the_order_of_each_key(
        self, total_table: StructuredTable, batching: Batching | None, mode: Literal["replace", "upsert"]
    ) -> None:
        messages: list[tuple[tuple[Value, ...], dict[str, Value] | None]] = [
            ((f"shop {n % 4}", n % 2), None if n % 19 == 18 else {"sum": n, "last": f"{n}"}) for n in range(60)
        ]

        async def main() -> None:
            async with open_table(total_table, batching=batching) as totals:
                assert [each async for each in send_to(totals, messages, mode=mode)] == messages

        asyncio.run(main())
        rows: dict[tuple[Value, ...], dict[str, Value]] = {}
        for key, value in messages:
            if value is None:
                rows.pop(key, None)
            elif mode == "upsert" and key in rows:
                rows[key] = {"sum": rows[key]["sum"] + value["sum"], "last": value["last"]}  # type: ignore[operator]
            else:
                rows[key] = value
        assert {row.key: {"sum": row.sum, "last": row.last} for row in total_table.scan()} == rows

    @any_order
    def test_sent_updates_are_applied_in_the_order_of_each_key(
        self, user_table: StructuredTable, batching: Batching | None
    ) -> None:
        messages = [
            ((f"user {n % 3}",), UpdateMessage({PLACES[n % 8]: n, "name": f"{n}"}, {"f7": -n})) for n in range(48)
        ]

        async def arriving() -> AsyncIterator[tuple[tuple[Value, ...], UpdateMessage]]:
            for message in messages:
                await asyncio.sleep(0)
                yield message

        async def main() -> None:
            async with open_table(user_table, batching=batching) as users:
                assert [each async for each in send_update_to(users, arriving(), concurrency=8)] == messages

        asyncio.run(main())
        expected: dict[str, dict[str, Value]] = {}
        for (name,), message in messages:
            row = expected.setdefault(str(name), {**dict.fromkeys(PLACES), **(message.default or {})})
            row.update(message.update)
        assert {row.id: {n: row[n] for n in (*PLACES, "name")} for row in user_table.scan()} == expected

    def test_the_blocking_form_does_the_same(self, user_table: StructuredTable) -> None:
        with blocking(open_table(user_table, batching=Batching())) as users:
            users.put(("a",), {"name": "ada"})
            users.update(("a",), {"f0": 1})
            assert users.get(("a",)) == {"id": "a", "name": "ada", **dict.fromkeys(PLACES), "f0": 1}
            assert users.get_many([("a",), ("b",)]).keys() == {("a",)}
            users.delete(("a",))
            assert users.get(("a",)) is None
