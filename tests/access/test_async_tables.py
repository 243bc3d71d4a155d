"""An AsyncTable over a store: what each method does, and what it refuses."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from structable.access import AsyncTable, Batching, open_table
from structable.spi import (
    Field,
    InvalidFieldError,
    Key,
    RecordNotFoundError,
    Row,
    Storage,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    UpdateMessage,
    connect,
)

ITEMS = TableSpecification(
    "items", [Field.string("id"), Field.int("n"), Field.string("note")], primary_key=["id"], indexes=["n"]
)
Table = AsyncTable[Key, Row]

WAYS = {"alone": None, "complete": Batching(), "compact": Batching("compact"), "by one": Batching(max_size=1)}
ways = pytest.mark.parametrize("batching", WAYS.values(), ids=WAYS)
ways_of_updates = pytest.mark.parametrize("batching", [WAYS["alone"], WAYS["complete"]], ids=["alone", "complete"])


@pytest.fixture
def storage(structable_storage: Storage) -> Storage:
    structable_storage.admin.create(ITEMS)
    return structable_storage


def run(storage: Storage, batching: Batching | None, body: Callable[[Table], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_table(storage.table("items"), batching=batching) as table:
            await body(table)

    asyncio.run(main())


def row(key: str, n: int | None = None, note: str | None = None) -> dict[str, object]:
    return {"id": key, "n": n, "note": note}


@ways
def test_put_get_delete(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        await table.put(("a",), {"n": 1, "note": "x"})
        await table.put({"id": "b"}, {"id": "b", "n": 2})
        assert await table.get(("a",)) == row("a", 1, "x")
        await table.put(("a",), {"n": 3})
        found = await table.get({"id": "a"})
        assert isinstance(found, Row)
        assert (found.key, found.n, found.note) == (("a",), 3, None)
        await table.delete(("a",))
        await table.put(("b",), None)
        assert [await table.get((key,)) for key in "ab"] == [None, None]

    run(storage, batching, body)
    assert storage.table("items").count() == 0


@ways
def test_bulk_calls(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        await table.put_many([((key,), {"n": 1}) for key in "abcd"])
        await table.put_many([(("a",), {"n": 5}), (("b",), None), (("a",), {"n": 2}), (("e",), None)])
        await table.upsert_many([(("c",), {"note": "x"}), (("c",), {"n": 4}), (("f",), {"n": 6})])
        await table.delete_many([("d",), ("d",), ("z",)])
        found = await table.get_many([("f",), ("z",), ("a",), ("c",), ("a",)])
        assert list(found) == [("f",), ("a",), ("c",)]
        assert list(found.values()) == [row("f", 6), row("a", 2), row("c", 4, "x")]
        assert await table.get_many([]) == {}
        await asyncio.gather(table.put_many([]), table.delete_many([]), table.upsert_many([]))

    run(storage, batching, body)
    assert [found.key for found in storage.table("items").scan()] == [("a",), ("c",), ("f",)]


@ways_of_updates
def test_updates(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        await table.put(("a",), {"n": 1})
        await table.update(("a",), {"note": "x"})
        await table.update(("b",), {"note": "y"}, {"n": 7, "note": "default"})
        await table.upsert(("a",), {"n": 2})
        assert await table.get_many([("a",), ("b",)]) == {("a",): row("a", 2, "x"), ("b",): row("b", 7, "y")}
        with pytest.raises(RecordNotFoundError, match="'c'"):
            await table.update(("c",), {"n": 1})
        messages = [
            (("z",), UpdateMessage({"n": 1})),
            (("c",), UpdateMessage({"n": 1})),
            (("c",), UpdateMessage({"n": 1}, {"note": "d"})),
            (("c",), UpdateMessage({"n": 2})),
            (("z",), UpdateMessage({"n": 1})),
        ]
        assert await table.update_many(messages) == [("z",), ("c",)]
        assert await table.update_many([]) == []
        assert await table.get(("c",)) == row("c", 2, "d")

    run(storage, batching, body)


@ways
def test_calls_of_one_key_keep_their_order_without_being_awaited(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        reads = []
        for number in range(20):
            table.put(("a",), {"n": number})
            reads.append(table.get(("a",)))
        table.delete(("a",))
        reads += [table.get(("a",)), table.get(("a",))]
        found = await asyncio.gather(*reads)
        assert [one and one["n"] for one in found] == [*range(20), None, None]

    run(storage, batching, body)


@ways
def test_bad_arguments_change_nothing_and_fail_no_other_call(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        good = [table.put((str(number),), {"n": number}) for number in range(5)]
        with pytest.raises(ValueError, match="key is None"):
            table.get(None)  # type: ignore[arg-type]
        for call in (
            lambda: table.get("a"),  # type: ignore[arg-type]
            lambda: table.get(("a", "b")),
            lambda: table.delete((1,)),
            lambda: table.put(("x",), {"id": "y"}),
            lambda: table.put(("x",), 5),  # type: ignore[arg-type]
            lambda: table.upsert(("x",), {"id": "y", "n": 1}),
            lambda: table.put_many([(("x",), {"n": 1}), (("x",), {"id": "y"})]),
        ):
            with pytest.raises(InvalidFieldError):
                call()
        with pytest.raises(TypeError, match="keys"):
            table.get_many("ab")  # type: ignore[arg-type]
        bad = [
            table.put(("x",), {"n": "text"}),
            table.put(("x",), {"unknown": 1}),
            table.upsert(("x",), {"n": 1 << 31}),
            table.put_many([(("x",), {"n": 1}), (("0",), None), (("y",), {"n": "text"})]),
        ]
        good += [table.put((str(number),), {"n": number}) for number in range(5, 9)]
        for one in bad:
            with pytest.raises(InvalidFieldError):
                await one
        await asyncio.gather(*good)

    run(storage, batching, body)
    assert [found["n"] for found in storage.table("items").scan()] == list(range(9))


def test_a_row_that_only_the_store_can_refuse_fails_alone_in_its_batch(structable_storage: Storage) -> None:
    spec = TableSpecification(
        "sums",
        [Field.string("id"), Field.byte("n")],
        primary_key=["id"],
        options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    )
    structable_storage.admin.create(spec)

    async def main() -> None:
        async with open_table(structable_storage.table("sums"), batching=Batching()) as table:
            await table.put(("a",), {"n": 127})
            merged = [table.upsert((key,), {"n": 1}) for key in "abc"]
            ends = await asyncio.gather(*merged, return_exceptions=True)
            assert [type(end) for end in ends] == [InvalidFieldError, type(None), type(None)]

    asyncio.run(main())
    assert [found["n"] for found in structable_storage.table("sums").scan()] == [127, 1, 1]


@ways
def test_a_field_that_was_added_can_be_used_at_once(storage: Storage, batching: Batching | None) -> None:
    async def body(table: Table) -> None:
        await table.put(("a",), {"n": 1})
        more = ITEMS.evolve(fields=[*ITEMS.fields, Field.int("more")])
        storage.admin.create_or_update(more)
        await asyncio.gather(table.put(("a",), {"more": 1}), table.put(("b",), {"n": 1}))
        assert (await table.get(("a",))) == {**row("a"), "more": 1}

    run(storage, batching, body)


def test_compact_batches_have_no_updates(storage: Storage) -> None:
    async def body(table: Table) -> None:
        with pytest.raises(UnsupportedOperationError, match="compact"):
            table.update(("a",), {"n": 1})
        with pytest.raises(UnsupportedOperationError, match="compact"):
            table.update_many([(("a",), UpdateMessage({"n": 1}))])

    run(storage, Batching("compact"), body)


def test_a_closed_table_refuses_calls(storage: Storage) -> None:
    async def main() -> None:
        table = open_table(storage.table("items"), batching=Batching(max_delay=None))
        async with table:
            table.put(("a",), {"n": 1})
            assert table.pending == 1
        assert storage.table("items").count() == 1
        for call in (lambda: table.get(("a",)), lambda: table.put(("a",), None), table.flush):
            with pytest.raises(TransactionClosedError):
                call()
        await table.close()
        with pytest.raises(TransactionClosedError):
            async with table:
                raise AssertionError("it cannot be entered again")

    asyncio.run(main())


def test_a_table_belongs_to_the_loop_of_its_first_call(storage: Storage) -> None:
    table = open_table(storage.table("items"))
    with pytest.raises(RuntimeError, match="no running event loop"):
        table.get(("a",))

    async def get() -> object:
        return await table.get(("a",))

    assert asyncio.run(get()) is None
    with pytest.raises(RuntimeError, match="event loop of its first call"):
        asyncio.run(get())


def test_tables_that_cannot_be_opened(storage: Storage) -> None:
    storage.admin.create(TableSpecification("log", [Field.int("n")], options={"write-mode": "append-only"}))
    with pytest.raises(UnsupportedOperationError, match="no primary key"):
        open_table(storage.table("log"))
    with storage.transaction() as transaction, pytest.raises(UnsupportedOperationError, match=r"storage\.table"):
        open_table(transaction.table("items"))
    with pytest.raises(TypeError, match="FunctionTable"):
        open_table("items")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="threads is 0"):
        open_table(storage.table("items"), threads=0)


def test_a_store_that_is_only_read(tmp_path: object) -> None:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": "a", "n": 1})

    async def main() -> None:
        with connect(url, read_only=True) as storage:
            async with open_table(storage.table("items"), batching=Batching()) as table:
                assert await table.get(("a",)) == row("a", 1)
                for write in (table.put(("a",), {"n": 1}), table.put_many([(("a",), {"n": 1})])):
                    with pytest.raises(UnsupportedOperationError, match="read_only"):
                        await write
                assert await table.update_many([]) == []

    asyncio.run(main())
