"""Tables whose schema changes, and processes that fork, while an AsyncTable is open."""

import asyncio
import os

import pytest

from structable.access import Batching, Cache, open_table
from structable.spi import Field, InvalidFieldError, Storage, TableSpecification, UpdateMessage

ITEMS = TableSpecification("items", [Field.string("id"), Field.int("n")], primary_key=["id"])
NUMBERED = TableSpecification("items", [Field.long("number"), Field.string("n")], primary_key=["number"])

any_batching = pytest.mark.parametrize("batching", [None, Batching()], ids=["alone", "complete"])


@any_batching
def test_a_table_that_was_created_anew_with_another_key(structable_storage: Storage, batching: Batching | None) -> None:
    admin = structable_storage.admin
    admin.create(ITEMS)

    async def main() -> None:
        async with open_table(structable_storage.table("items"), batching=batching) as table:
            await table.put(("a",), {"n": 1})
            admin.drop("items")
            admin.create(NUMBERED)
            with pytest.raises(InvalidFieldError):
                await table.put(("a",), {"n": 1})
            while True:  # the schema is read again, beside the calls
                try:
                    await table.put((5,), {"n": "five"})
                    break
                except InvalidFieldError:
                    await asyncio.sleep(0.001)
            found = await table.get((5,))
            assert found == {"number": 5, "n": "five"}

    asyncio.run(main())


@any_batching
def test_new_fields_are_known_in_every_kind_of_write(structable_storage: Storage, batching: Batching | None) -> None:
    admin = structable_storage.admin
    admin.create(ITEMS)

    async def main() -> None:
        async with open_table(structable_storage.table("items"), batching=batching) as table:
            await table.put(("a",), {"n": 1})
            admin.create_or_update(ITEMS.evolve(fields=[*ITEMS.fields, Field.string("new")]))
            await asyncio.gather(
                table.put_many([(("b",), {"new": "b"}), (("c",), {"n": 1})]),
                table.update(("a",), {"new": "a"}),
                table.update(("d",), {"n": 1}, default={"new": "d"}),
                table.upsert(("e",), {"new": "e"}),
                table.upsert_many([(("f",), {"new": "f"})]),
                table.update_many([(("g",), UpdateMessage({"n": 1}, {"new": "g"}))]),
            )
            found = await table.get_many([(key,) for key in "abcdefg"])
            assert [row["new"] for row in found.values()] == ["a", "b", None, "d", "e", "f", "g"]

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@any_batching
def test_a_float_that_became_a_double_is_rounded_no_more(
    structable_storage: Storage, batching: Batching | None
) -> None:
    """The schema that was last seen judges a row, and changes none."""
    spec = TableSpecification("floats", [Field.int("k"), Field.float("v")], ["k"])
    structable_storage.admin.create(spec)

    async def main() -> None:
        async with open_table(structable_storage.table("floats"), batching=batching) as table:
            await table.put((0,), {"v": 0.5})
            structable_storage.admin.create_or_update(spec.evolve(fields=[Field.int("k"), Field.double("v")]))
            await asyncio.gather(
                table.put((1,), {"v": 0.1}),
                table.upsert((2,), {"v": 0.1}),
                table.put_many([((3,), {"v": 0.1})]),
                table.update((4,), {}, default={"v": 0.1}),
            )
            await table.update((1,), {"v": 0.1})

    asyncio.run(main())
    assert [row["v"] for row in structable_storage.table("floats").scan()] == [0.5, 0.1, 0.1, 0.1, 0.1]


def test_cached_rows_have_floats_as_the_store_does(structable_storage: Storage) -> None:
    spec = TableSpecification("floats", [Field.int("k"), Field.float("v")], ["k"])
    structable_storage.admin.create(spec)

    async def main() -> None:
        async with open_table(structable_storage.table("floats"), cache=Cache()) as table:
            await table.put((1,), {"v": 0.1})
            assert await table.get((1,)) == structable_storage.table("floats").read((1,))

    asyncio.run(main())


@any_batching
def test_a_key_by_names_is_of_these_names(structable_storage: Storage, batching: Batching | None) -> None:
    """Of a table that was created anew with its key in another order, or with another key."""
    admin = structable_storage.admin
    fields = [Field.int("a"), Field.int("b"), Field.int("n")]
    admin.create(TableSpecification("pairs", fields, ["a", "b"]))

    async def main() -> None:
        async with open_table(structable_storage.table("pairs"), batching=batching) as table:
            await table.put({"a": 1, "b": 2}, {"n": 0})
            admin.drop("pairs")
            admin.create(TableSpecification("pairs", fields, ["b", "a"]))
            rows = [{"a": 1, "b": 2, "n": 12}, {"a": 2, "b": 1, "n": 21}]
            structable_storage.table("pairs").insert_many(rows)
            assert await table.get({"a": 1, "b": 2}) == rows[0]
            assert list((await table.get_many([{"a": 1, "b": 2}])).values()) == rows[:1]
            await table.delete({"a": 1, "b": 2})
            assert list(structable_storage.table("pairs").scan()) == rows[1:]
            admin.drop("pairs")
            admin.create(TableSpecification("pairs", fields, ["n", "b"]))
            structable_storage.table("pairs").insert({"n": 2, "b": 1, "a": 0})
            with pytest.raises(InvalidFieldError):
                await table.delete({"a": 2, "b": 1})
            assert structable_storage.table("pairs").count() == 1

    asyncio.run(main())


def test_a_forked_process_has_to_open_its_own(structable_storage: Storage) -> None:
    structable_storage.admin.create(ITEMS)

    async def main() -> None:
        async with open_table(structable_storage.table("items")) as table:

            async def get() -> object:
                return await table.get(("a",))

            await table.put(("a",), {"n": 1})
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    asyncio.run(get())
                except RuntimeError as error:
                    status = 0 if "fork" in str(error) else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert await get() == {"id": "a", "n": 1}

    asyncio.run(main())
