"""The threads in which an AsyncTable calls a store."""

import asyncio
import threading
from typing import Any

import pytest

from structable.access import open_table
from structable.spi import Field, Storage, TableSpecification

ITEMS = TableSpecification("items", [Field.long("id"), Field.int("n")], primary_key=["id"])


@pytest.fixture
def storage(structable_storage: Storage) -> Storage:
    structable_storage.admin.create(ITEMS)
    return structable_storage


def test_at_most_so_many_calls_are_made_at_a_time(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    view = storage.table("items")
    read, together, most = view.read, threading.Semaphore(0), threading.Semaphore(3)
    crowded: list[object] = []

    def counted(key: tuple[int]) -> object:
        if not most.acquire(blocking=False):
            crowded.append(key)
        together.release()
        found = read(key)
        most.release()
        return found

    monkeypatch.setattr(view, "read", counted)

    async def main() -> None:
        async with open_table(view, threads=3) as table:
            await asyncio.gather(*(table.get((number,)) for number in range(100)))

    asyncio.run(main())
    assert crowded == []
    assert all(together.acquire(blocking=False) for _ in range(100))


def test_a_thread_that_cannot_be_started_fails_its_call_alone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with open_table(storage.table("items")) as table:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                calls: list[asyncio.Future[Any]] = [table.put((1,), {"n": 1}), table.get((1,)), table.get((2,))]
                for call in calls:
                    with pytest.raises(RuntimeError, match="new thread"):
                        await call
            await table.put((1,), {"n": 2})
            assert await table.get((1,)) == {"id": 1, "n": 2}

    asyncio.run(main())


def test_the_threads_end_with_the_table(storage: Storage) -> None:
    before = set(threading.enumerate())

    async def main() -> list[threading.Thread]:
        async with open_table(storage.table("items")) as table:
            await asyncio.gather(*(table.put((number,), {"n": 1}) for number in range(20)))
            return [thread for thread in threading.enumerate() if thread.name.startswith("structable-access-items")]

    started = asyncio.run(main())
    assert started
    for thread in started:
        thread.join()
    assert set(threading.enumerate()) <= before
