"""A table over a StructuredTable that fails at random: what failed left no trace, all else took effect in order."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from tenacity import stop_after_attempt, wait_fixed

from structable.access import AsyncTable, Batching, Cache, Retry, open_table
from structable.spi import (
    Field,
    Key,
    RecordNotFoundError,
    Row,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    UpdateMessage,
    Value,
    connect,
)
from structable.spi.authors import Answer, AutoCommitTable, RowWrites

from .support.fake_clock import outcomes

Result = TypeVar("Result")
Rows = dict[str, dict[str, Value]]

SPECIFICATION = TableSpecification("t", [Field.string("id"), Field.long("a"), Field.long("b")], ["id"])
FAULTS = (TransactionConflictError, StorageUnavailableError)
KEYS = ["x", "y", "z"]


class FailingTable(AutoCommitTable):
    """Fails some of its calls before they do anything."""

    rate = 0.0

    def __init__(self, storage: Storage, chance: random.Random) -> None:
        super().__init__(storage, "t")
        self._chance = chance
        self._lock = threading.Lock()

    def _fail(self) -> None:
        with self._lock:
            if self._chance.random() < self.rate:
                raise self._chance.choice(FAULTS)("by the test")

    def _read(self, body: Callable[[StructuredTable], Result]) -> Result:
        self._fail()
        return super()._read(body)

    def _write(self, writes: RowWrites) -> Answer | None:
        self._fail()
        return super()._write(writes)


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect(f"memory://{uuid.uuid4().hex}") as storage:
        storage.admin.create(SPECIFICATION)
        yield storage


def call(
    table: AsyncTable[Key, Row], kind: str, keys: list[str], number: int, *, default: bool
) -> tuple[Awaitable[object], Callable[[Rows, object], object]]:
    """Make a call; return it with what a success does to rows, or finds in them."""
    row: dict[str, Value] = {"a": number}
    message = UpdateMessage(row, {"b": -number} if default else None)
    key = keys[0]

    def put(rows: Rows, key: str) -> None:
        rows[key] = {"id": key, "a": number, "b": None}

    def put_many(rows: Rows, result: object) -> None:
        for each in keys:
            put(rows, each)

    def change(rows: Rows, key: str, start: dict[str, Value]) -> None:
        rows[key] = {**rows.get(key, {"id": key, "a": None, "b": None, **start}), "a": number}

    def read(rows: Rows, result: object) -> None:
        assert result == rows.get(key)

    def read_many(rows: Rows, result: object) -> None:
        assert result == {(each,): rows[each] for each in keys if each in rows}

    def updated_many(rows: Rows, result: object) -> None:
        missing = [(each,) for each in dict.fromkeys(keys) if each not in rows and not default]
        assert result == missing
        for each in keys:
            if (each,) not in missing:
                change(rows, each, {"b": -number})

    match kind:
        case "get":
            return table.get((key,)), read
        case "get_many":
            return table.get_many([(each,) for each in keys]), read_many
        case "put":
            return table.put((key,), row), lambda rows, _: put(rows, key)
        case "put_many":
            return table.put_many([((each,), row) for each in keys]), put_many
        case "delete":
            return table.delete((key,)), lambda rows, _: rows.pop(key, None)
        case "upsert":
            return table.upsert((key,), row), lambda rows, _: change(rows, key, {})
        case "update":
            return table.update((key,), row, default=message.default), lambda rows, _: change(rows, key, {"b": -number})
        case _:
            return table.update_many([((each,), message) for each in keys]), updated_many


@pytest.mark.parametrize("seed", range(24))
def test_what_failed_left_no_trace_and_all_else_took_effect_in_order(storage: Storage, seed: int) -> None:
    chance = random.Random(seed)
    kinds = ["get", "get_many", "put", "put_many", "delete", "upsert"]
    batching = chance.choice([None, Batching(max_size=5, max_in_flight=3), Batching(kind="compact", max_size=5)])
    if batching is None or batching.kind == "complete":
        kinds += ["update", "update", "update_many"]
    retry = chance.choice([None, Retry(stop=stop_after_attempt(2), wait=wait_fixed(0.001))])
    cache = chance.choice([None, Cache(max_rows=2, absent=True)])

    async def main() -> None:
        failing = FailingTable(storage, random.Random(seed))
        calls: list[Awaitable[object]] = []
        effects: list[tuple[str, Callable[[Rows, object], object]]] = []
        async with open_table(
            failing, batching=batching, read_retry=retry, write_retry=retry, cache=cache, threads=4
        ) as table:
            failing.rate = chance.choice([0.0, 0.1, 0.5])
            for number in range(150):
                keys = [chance.choice(KEYS) for _ in range(chance.randint(1, 3))]
                made, effect = call(table, chance.choice(kinds), keys, number, default=chance.random() < 0.5)
                calls.append(made)
                effects.append((keys[0], effect))
                if chance.random() < 0.1:
                    await outcomes(*calls[-4:])
            results = await outcomes(*calls)
        rows: Rows = {}
        for (key, effect), result in zip(effects, results, strict=True):
            if isinstance(result, RecordNotFoundError):
                assert key not in rows
            elif isinstance(result, BaseException):
                assert isinstance(result, FAULTS)
            else:
                effect(rows, result)
        assert {row.id: dict(row) for row in storage.table("t").scan()} == rows

    asyncio.run(main())
