"""How often a client waits for the gateway; counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from structable.spi import Field, Isolation, Range, Row, Storage, StructuredTable, TableSpecification, col, connect
from tests.calls_of_types import CALLS_OF_TYPES, READ_FIRST, create_tables_of_types

from .support.internals import drained, engine_of, hold_finaliser
from .support.internals import round_trips as round_trips_of


@pytest.fixture
def storage(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    # Background work would count: nothing is finalised or cleaned up, and no heartbeat is due.
    with connect(f"{hbase_url}?housekeeping=3600&session_timeout=36000") as storage:
        fields = [Field.string("id"), Field.string("city"), Field.long("hits")]
        for name, indexes in (("plain", []), ("indexed", ["city"]), ("filled", [])):
            storage.admin.create(TableSpecification(name, fields, ["id"], indexes=indexes))
        storage.table("filled").upsert_many(rows(50))
        numbers = [Field.int("queue"), Field.int("number"), Field.string("note"), Field.long("hits")]
        storage.admin.create(TableSpecification("queues", numbers, ["queue", "number"]))
        everything = [{"queue": queue, "number": number} for queue in range(40) for number in range(queue % 7)]
        storage.table("queues").upsert_many(everything)
        with storage.transaction() as transaction:
            for name in ("plain", "indexed"):
                transaction.table(name).read(("nobody",))  # the schema is cached from here on
        drained(storage)  # creating a table is a transaction, too
        hold_finaliser(monkeypatch)
        yield storage


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"{number:06}", "city": f"city-{number}", "hits": 0} for number in range(count)]


def round_trips(storage: Storage, work: Callable[[], object]) -> int:
    engine = engine_of(storage)
    before = round_trips_of(engine.gateway)
    work()
    return round_trips_of(engine.gateway) - before


@pytest.mark.parametrize("count", [1, 50, 500])
@pytest.mark.parametrize("name", ["plain", "indexed"])
@pytest.mark.parametrize("isolation", list(Isolation))
def test_begin_and_commit_take_three(storage: Storage, isolation: Isolation, name: str, count: int) -> None:
    transaction = storage.transaction(isolation)
    begin = round_trips(storage, lambda: transaction.table(name))
    writing = round_trips(storage, lambda: transaction.table(name).upsert_many(rows(count)))
    commit = round_trips(storage, transaction.commit)
    # The entries of an index need the old rows, looked up in one call.
    assert (begin, writing, commit) == (1, 0, 2 + (name == "indexed"))
    assert storage.table(name).multi_read([(f"{count - 1:06}",)])


@pytest.mark.parametrize("count", [1, 50, 500])
def test_a_change_feed_adds_none(storage: Storage, count: int) -> None:
    """Images of rows that were read before are put with the rows; of others, they are read in one call."""
    fed = storage.admin.get_specification("plain").evolve(name="fed", options={"changelog-producer": "lookup"})
    storage.admin.create(fed)
    for read_before in (False, True):
        transaction = storage.transaction()
        table = transaction.table("fed")
        if read_before:
            table.multi_read([(row["id"],) for row in rows(count)])
        table.upsert_many(rows(count))
        assert round_trips(storage, transaction.commit) == 2 + (not read_before)
    # The clock, the gate and the floor, and the statuses of what is not finalised yet.
    storage.changes("fed").latest()
    assert round_trips(storage, storage.changes("fed").latest) in (4, 5)


def test_one_commit_of_two_tables_takes_as_many(storage: Storage) -> None:
    transaction = storage.transaction()
    for name in ("plain", "indexed"):
        transaction.table(name).upsert_many(rows(50))
    assert round_trips(storage, transaction.commit) == 2 + 1


def test_a_read_takes_one(storage: Storage) -> None:
    table = storage.table("plain")
    assert round_trips(storage, lambda: table.read(("000001",))) == 1
    with storage.transaction() as transaction:
        inside = transaction.table("plain")
        assert round_trips(storage, lambda: inside.read(("000001",))) == 1
        many = [(row["id"],) for row in rows(500)]
        assert round_trips(storage, lambda: inside.multi_read(many)) == 1


def test_increments_take_no_read(storage: Storage) -> None:
    transaction = storage.transaction()
    assert round_trips(storage, lambda: transaction.table("plain")) == 1
    assert round_trips(storage, lambda: transaction.table("plain").increment(("000001",), "hits")) == 0
    assert round_trips(storage, transaction.commit) == 2


CALLS: dict[str, tuple[int, Callable[[StructuredTable], object]]] = {
    "read": (1, lambda table: table.read((6, 1))),
    "multi_read": (1, lambda table: table.multi_read([(6, number) for number in range(500)])),
    "scan of a key": (1, lambda table: list(table.scan(Range.prefix((6, 1))))),
    "scan with a limit": (2, lambda table: list(table.scan(Range.prefix((6,)), limit=3))),
    "scan of few rows": (3, lambda table: list(table.scan(Range.prefix((6,))))),
    "upsert of a whole row": (0, lambda table: table.upsert({"queue": 6, "number": 1, "note": "x", "hits": 1})),
    "replace": (0, lambda table: table.replace({"queue": 6, "number": 1})),
    "increment": (0, lambda table: table.increment((6, 1), "hits")),
    "increment_many": (0, lambda table: table.increment_many([((6, n), "hits", 1) for n in range(5)])),
    "upsert of some fields": (1, lambda table: table.upsert({"queue": 6, "number": 1, "note": "x"})),
    "upsert_many of some fields": (1, lambda table: table.upsert_many([{"queue": 6, "number": n} for n in range(5)])),
    "delete": (1, lambda table: table.delete((6, 1))),
    "delete_many": (1, lambda table: table.delete_many([(6, n) for n in range(5)])),
    "insert": (1, lambda table: table.insert({"queue": 6, "number": 99})),
    "update": (1, lambda table: table.update({"queue": 6, "number": 1, "note": "x"})),
    "compare_and_swap": (1, lambda table: table.compare_and_swap((6, 1), "note", None, "x")),
    "update_all": (3, lambda table: table.update_all(Range.prefix((6,)), {"note": "x"})),
    "delete_all": (3, lambda table: table.delete_all(Range.prefix((6,)))),
    "count": (3, lambda table: table.count([Range.prefix((6,))])),
}
SEEN = ("upsert of some fields", "upsert_many of some fields", "delete", "delete_many", "update", "compare_and_swap")


def test_round_trips_of_each_call(storage: Storage) -> None:
    """The table of docs/spi.md: each call, of rows not seen and of rows seen."""
    found: dict[str, int] = {}
    seen: dict[str, int] = {}
    for name, (_, call) in CALLS.items():
        transaction = storage.transaction()
        assert round_trips(storage, lambda: transaction.table("queues")) == 1  # noqa: B023
        found[name] = round_trips(storage, lambda: call(transaction.table("queues")))  # noqa: B023
        transaction.rollback()
        if name in SEEN:
            transaction = storage.transaction()
            assert transaction.table("queues").count([Range.prefix((6,))], col("number") >= 0) == 6
            seen[name] = round_trips(storage, lambda: call(transaction.table("queues")))  # noqa: B023
            transaction.rollback()
    assert found == {name: expected for name, (expected, _) in CALLS.items()}
    assert seen == dict.fromkeys(SEEN, 0)


def test_whole_keys_take_one(storage: Storage) -> None:
    wanted = [Range.prefix((row["id"],)) for row in rows(200)]
    with storage.transaction(read_only=True) as transaction:
        table = transaction.table("filled")
        assert round_trips(storage, lambda: table.count(wanted)) == 1
    transaction = storage.transaction()
    filled = transaction.table("filled")
    assert round_trips(storage, lambda: filled.count(wanted, col("hits") == 0)) == 1
    assert round_trips(storage, lambda: list(filled.multi_scan(wanted, reverse=True, limit=3))) == 0  # read before
    assert round_trips(storage, lambda: filled.update_all(wanted[0], {"hits": 1})) == 0
    assert round_trips(storage, lambda: filled.delete_all(Range.prefix(("elsewhere",)))) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_rows_of_many_ranges_take_two(storage: Storage, reverse: bool) -> None:
    order = -1 if reverse else 1
    expected = [(queue, number) for queue in range(40) for number in list(range(queue % 7))[::order][:2]]
    expected.sort(reverse=reverse)
    ranges = [Range.prefix((queue,)) for queue in range(39, -1, -1)]
    found: list[Row] = []
    with storage.transaction(read_only=True) as transaction:
        queues = transaction.table("queues")
        assert round_trips(storage, lambda: list(queues.scan(ranges[3], limit=1, reverse=reverse))) == 2
        heads = queues.multi_scan(ranges, limit_per_range=2, reverse=reverse)
        assert round_trips(storage, lambda: found.extend(heads)) == 2
        assert [row.key for row in found] == expected
        some = queues.multi_scan(ranges, limit_per_range=2, reverse=reverse, limit=5)
        assert [row.key for row in some] == expected[:5]


def test_round_trips_of_table_types(storage: Storage) -> None:
    """The table of docs/spi.md: merges and tables without a key."""
    create_tables_of_types(storage)
    drained(storage)
    found: dict[str, int] = {}
    for name, (table, call) in [*CALLS_OF_TYPES.items()] * 2:  # the first round caches the schemas
        transaction = storage.transaction()
        transaction.table("plain")
        view = transaction.table(table)
        found[name] = round_trips(storage, lambda: call(view))  # noqa: B023
        transaction.rollback()
    assert found == {name: int(name in READ_FIRST) for name in CALLS_OF_TYPES} | {"take out of a bag": 2}
    with storage.transaction() as transaction:
        view = transaction.table("parts")
        assert view.count([Range.all()], col("hits") == 1) == 5
        assert round_trips(storage, lambda: view.upsert({"id": 1, "note": "x"})) == 0
