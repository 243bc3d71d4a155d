"""`update_many` finds rows first and changes them where they are: among other writes, for keys of all types."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from structable.spi import (
    Field,
    FieldSizeLimitError,
    Isolation,
    Range,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    UpdateMessage,
    col,
    connect,
)

from .support.proxy import Proxy
from .support.shared import Schema

ITEMS = TableSpecification(
    "items", [Field.long("id"), Field.long("n"), Field.string("tag"), Field.string("note")], ["id"], ["tag"]
)


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(ITEMS)
        yield storage


def test_round_trips_do_not_depend_on_rows(postgresql_schema: Schema) -> None:
    """Two in a call of its own, and one in a transaction before its commit, whatever the messages name."""
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(ITEMS)
        table = storage.table("items")
        table.upsert_many([{"id": key} for key in range(0, 2_000, 2)])

        def updates(count: int) -> list[Any]:
            kinds: list[dict[str, Any]] = [{"n": 1}, {"tag": "t"}, {"n": 2, "note": "x"}, {}]
            rows = [{"id": key, **kinds[key // 2 % 4]} for key in range(count)]
            return [UpdateMessage(row, {"note": "new"}) if row["id"] % 3 == 0 else row for row in rows]

        def in_transaction(count: int) -> None:
            with storage.transaction() as tx:
                tx.table("items").update_many(updates(count), {"tag": "d"})

        table.update_many(updates(5))
        for count in (1, 10, 1_000):
            assert proxy.trips_of(lambda count=count: table.update_many(updates(count))) == 2  # type: ignore[misc]
            assert proxy.trips_of(lambda count=count: in_transaction(count)) == 2  # type: ignore[misc]
        assert proxy.trips_of(lambda: table.update_many([])) == 0


AN_HOUR_EAST = dt.timezone(dt.timedelta(hours=1))
KEYS: list[tuple[Field, list[Any]]] = [
    (Field.string("k"), ["", "a", "A", "\u00e9", "e\u0301", "\U0001f600"]),
    (Field.bytes("k"), [b"", b"\0", b"a", b"\xff"]),
    (Field.boolean("k"), [True, False]),
    (Field.byte("k"), [-128, 127]),
    (Field.date("k"), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (Field.timestamp("k"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 1, tzinfo=AN_HOUR_EAST)]),
    (Field.timestamp_ntz("k"), [dt.datetime(2024, 1, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "values"), KEYS, ids=[field.type.value for field, _ in KEYS])
def test_keys_of_all_types(postgresql_url: str, field: Field, values: list[Any]) -> None:
    """A row is found by any value that is equal to its key, as `update` finds it."""
    with connect(postgresql_url) as storage:
        for name in ("many", "loop"):
            storage.admin.create(TableSpecification(name, [field, Field.int("x"), Field.int("y")], ["k", "x"]))
            storage.table(name).upsert_many([{"k": value, "x": 1} for value in values[::2]])
        missing: list[tuple[Any, ...]] = []
        updates = [{"k": value, "x": x, "y": place} for place, value in enumerate(values) for x in (1, 2)]
        for row in updates:
            try:
                storage.table("loop").update(row)
            except RecordNotFoundError as error:
                if error.key not in missing:
                    missing.append(error.key)
        assert repr(storage.table("many").update_many(updates)) == repr(missing)
        found = [[tuple(row.values()) for row in storage.table(name).scan()] for name in ("many", "loop")]
        assert repr(found[0]) == repr(found[1])


def test_changed_table(storage: Storage, postgresql_url: str) -> None:
    """A field that another process added or widened is known to the next call."""
    table = storage.table("items")
    table.upsert_many([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    with connect(postgresql_url) as other:
        other.admin.create_or_update(ITEMS.evolve(fields=[*ITEMS.fields, Field.int("more")]))
    assert table.update_many([{"id": 1, "more": 5}, {"id": 3, "n": 1}, {"id": 2, "n": 3}]) == [(3,)]
    assert [(row["n"], row["more"]) for row in table.scan()] == [(1, 5), (3, None)]


def test_large_calls(storage: Storage) -> None:
    """Calls of more keys and bytes than one statement has; a row that gets too large refuses all of it."""
    table = storage.table("items")
    table.upsert_many([{"id": key, "note": "x" * 100} for key in range(0, 12_000, 2)])
    assert len(table.update_many([{"id": key, "n": key} for key in range(12_000)])) == 6_000
    assert table.update_many([{"id": key, "note": "y" * 4_000} for key in range(0, 12_000, 2)]) == []
    table.update_many([{"id": 0, "note": "z" * (5 << 20)}])
    with pytest.raises(FieldSizeLimitError):
        table.update_many(
            [{"id": 2, "n": 0}, {"id": 0, "tag": "t" * 2_000, "n": 0}, {"id": 0, "note": "z" * (9 << 20)}]
        )
    with storage.transaction() as tx:
        inside = tx.table("items")
        large: list[dict[str, Any]] = [{"id": key, "note": "w" * (3 << 20)} for key in range(4, 14, 2)]
        inside.update_many([{"id": 2, "n": -1}, *large])
        assert inside.update_many([{"id": 2, "tag": "q"}, {"id": 3, "tag": "q"}]) == [(3,)]
    assert [row["n"] for row in table.scan(limit=2)] == [0, -1]
    assert table.count(where=col("note").startswith("w")) == 5


@pytest.mark.parametrize("isolation", Isolation)
def test_among_other_writes_of_a_transaction(postgresql_url: str, isolation: Isolation) -> None:
    """Random programs of writes in one transaction end as they do on memory, and return the same."""
    chance = random.Random(5)
    with connect(postgresql_url) as storage, connect("memory://") as model:
        for one in (storage, model):
            one.admin.create(ITEMS)
        for _ in range(40):
            program = [step(chance) for _ in range(chance.randint(2, 12))]
            results = []
            for one in (storage, model):
                with one.transaction(isolation) as tx:
                    results.append([run(tx.table("items")) for run in program])
            assert results[0] == results[1]
            assert list(storage.table("items").scan()) == list(model.table("items").scan())
            assert list(storage.table("items").scan_index("tag", "t")) == list(
                model.table("items").scan_index("tag", "t")
            )


def step(chance: random.Random) -> Callable[[StructuredTable], object]:
    """Return a call on a few keys."""
    key, number, tag = chance.randrange(6), chance.randrange(100), chance.choice(["t", "u", None])
    named: list[dict[str, Any]] = [{"n": number}, {"tag": tag}, {"n": number, "tag": tag}, {}]
    row: dict[str, Any] = {"id": key, **chance.choice(named)}
    updates: list[Any] = [{"id": chance.randrange(6), "n": chance.randrange(100)} for _ in range(chance.randint(1, 4))]
    updates.append(UpdateMessage(row, {"note": "d"}) if chance.random() < 0.5 else row)
    steps: list[Callable[[StructuredTable], object]] = [
        lambda table: table.update_many(updates),
        lambda table: table.update_many(updates, {"note": "call"}),
        lambda table: table.upsert(row),
        lambda table: table.replace(row),
        lambda table: table.delete((key,)),
        lambda table: table.increment((key,), "n", 2),
        lambda table: table.update_all(Range.at_least((key,)), {"tag": tag}),
        lambda table: table.delete_all(Range.prefix((key,))),
        lambda table: table.read((key,)),
        lambda table: table.multi_read([(key,), (key + 1,)]),
        lambda table: table.delete_many([(key,), (key + 1,)]),
    ]
    return chance.choice([steps[0], steps[1], *steps])


def test_calls_at_once(storage: Storage) -> None:
    """Of calls that put defaults and count at the same time, none is lost and none doubled."""
    table = storage.table("items")

    def raise_all(place: int) -> None:
        for _ in range(20):
            while True:
                try:
                    with storage.transaction() as tx:
                        inside = tx.table("items")
                        rows = {row["id"]: row["n"] for row in inside.multi_read([(key,) for key in range(5)])}
                        inside.update_many([{"id": key, "n": int(str(rows.get(key, 0))) + 1} for key in range(5)], {})
                    break
                except TransactionConflictError:
                    continue
            table.update_many([{"id": 100 + place, "tag": "own"}, {"id": 50, "note": "hot"}], {"n": 7})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(raise_all, range(4)))
    assert [row["n"] for row in table.scan(Range.below((5,)))] == [80] * 5
    assert table.count(where=col("n") == 7) == 5


def test_no_lock_before_the_commit(storage: Storage, postgresql_schema: Schema) -> None:
    """Of two transactions the first to commit wins: the call locks no row."""
    storage.table("items").upsert_many([{"id": 1}, {"id": 2}])
    first, second = storage.transaction(), storage.transaction()
    for tx in (first, second):
        tx.table("items").update_many([{"id": 1, "n": 1}, {"id": 3, "n": 1}], {})
    second.commit()
    with pytest.raises(TransactionConflictError):
        first.commit()
    with psycopg.connect(postgresql_schema.conninfo) as raw:
        assert raw.execute(f"select count(*) from {postgresql_schema.name}.items".encode()).fetchone() == (3,)
