"""How often a client waits for the gateway; counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from structable.spi import Field, Isolation, Storage, TableSpecification, connect

from .support.internals import drained, engine_of, hold_finaliser


@pytest.fixture
def storage(hbase_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    # Background work would count: nothing is finalised or cleaned up, and no heartbeat is due.
    with connect(f"{hbase_url}?housekeeping=3600&session_timeout=36000") as storage:
        fields = [Field.string("id"), Field.string("city"), Field.long("hits")]
        for name, indexes in (("plain", []), ("indexed", ["city"])):
            storage.admin.create(TableSpecification(name, fields, ["id"], indexes=indexes))
        with storage.transaction() as transaction:
            for name in ("plain", "indexed"):
                transaction.table(name).read(("nobody",))  # caches their schemas
        drained(storage)  # creating a table is a transaction, too
        hold_finaliser(monkeypatch)
        yield storage


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"{number:06}", "city": f"city-{number}", "hits": 0} for number in range(count)]


def round_trips(storage: Storage, work: Callable[[], object]) -> int:
    engine = engine_of(storage)
    before = engine.gateway.round_trips
    work()
    return engine.gateway.round_trips - before


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
