"""The format of a prefix: the first table of a new kind raises it, unless a process of older software is alive."""

from __future__ import annotations

from contextlib import closing

import pytest

from structable.backends.hbase.layout import SESSIONS
from structable.backends.hbase.thrift.requests import increment
from structable.spi import Field, FindingLevel, StorageUnavailableError, TableNotFoundError, TableSpecification, connect

from .support.internals import engine_of
from .support.shared import Place

PLAIN = TableSpecification("plain", [Field.long("k"), Field.long("n")], ["k"])
SUMS = TableSpecification(
    "sums", PLAIN.fields, ["k"], options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
)
FED = PLAIN.evolve(name="fed", options={"changelog-producer": "lookup"})


def stored(server: Place, prefix: str) -> bytes:
    """Return the cell that every version compares with the formats that it knows."""
    with closing(server.connection()) as connection:
        cell: bytes = connection.table(f"{prefix}_tx").row(b"format")[b"c:s"]
        return cell


def put_session(server: Place, prefix: str, number: int, heartbeat: bytes) -> None:
    with closing(server.connection()) as connection:
        connection.table(f"{prefix}_tx").put(b"g" + number.to_bytes(8), {b"c:s": heartbeat})


def test_first_table_with_a_type_raises_the_format(hbase_server: Place, hbase_prefix: str, hbase_url: str) -> None:
    with connect(hbase_url) as storage, connect(hbase_url) as other:
        storage.admin.create(PLAIN)
        assert stored(hbase_server, hbase_prefix) == b"2"
        storage.admin.create(SUMS)
        assert stored(hbase_server, hbase_prefix) == b"3"
        other.table("sums").upsert({"k": 1, "n": 2})
    with connect(hbase_url) as storage:
        storage.table("sums").upsert({"k": 1, "n": 3})
        assert storage.table("sums").read((1,)) == {"k": 1, "n": 5}
        assert "3, in the HBase tables" in next(one.text for one in storage.diagnose() if one.subject == "format")


def test_living_older_process_keeps_the_format(hbase_server: Place, hbase_prefix: str, hbase_url: str) -> None:
    """Software older than format 3 writes two numbers into its heartbeat cell; it goes on undisturbed until it ends."""
    with connect(hbase_url) as storage:
        storage.admin.create(PLAIN)
        put_session(hbase_server, hbase_prefix, 1_000, b"4503599627370496|7")
        for create in (storage.admin.create, storage.admin.create_or_update):
            with pytest.raises(StorageUnavailableError, match=r"session 1000 .* older structable.* end its process"):
                create(SUMS)
        assert stored(hbase_server, hbase_prefix) == b"2"
        with pytest.raises(TableNotFoundError):
            storage.table("sums").count()
        storage.admin.create_or_update(PLAIN)
        for ended in (b"closed", b"dead"):
            put_session(hbase_server, hbase_prefix, 1_000, ended)
            storage.admin.create_or_update(SUMS)
            assert stored(hbase_server, hbase_prefix) == b"3"


def test_older_process_begins_no_session_after_the_raise(
    hbase_server: Place, hbase_prefix: str, hbase_url: str
) -> None:
    """It may have read the format before, as it does not when it begins another session in place of a dead one."""
    with connect(hbase_url) as storage, connect(hbase_url) as other:
        storage.admin.create(SUMS)
        layout, gateway = engine_of(other).layout, engine_of(other).gateway
        with pytest.raises(StorageUnavailableError):
            gateway.call(increment(layout.transactions, SESSIONS, b"c:n", 1))
        first = engine_of(other).transactions.session
        put_session(hbase_server, hbase_prefix, int.from_bytes(first.id), b"dead")
        first.heartbeat()
        other.table("sums").upsert({"k": 1, "n": 2})
        second = engine_of(other).transactions.session
        assert second.id > first.id
    with connect(hbase_url) as storage:
        assert engine_of(storage).transactions.session.id > second.id
        assert storage.table("sums").read((1,)) == {"k": 1, "n": 2}


@pytest.mark.parametrize("first", [None, SUMS], ids=["from 2", "from 3"])
def test_first_feed_raises_the_format(
    hbase_server: Place, hbase_prefix: str, hbase_url: str, first: TableSpecification | None
) -> None:
    """Also where a table with a type raised it before; a later one with a type leaves it."""
    with connect(hbase_url) as storage, connect(hbase_url) as other:
        if first is not None:
            storage.admin.create(first)
        session = engine_of(other).transactions.session
        storage.admin.create(FED)
        assert stored(hbase_server, hbase_prefix) == b"4"
        if first is None:
            storage.admin.create(SUMS)
        assert stored(hbase_server, hbase_prefix) == b"4"
        layout, gateway = engine_of(other).layout, engine_of(other).gateway
        for counter in (b"c:n", b"c:m"):
            with pytest.raises(StorageUnavailableError):
                gateway.call(increment(layout.transactions, SESSIONS, counter, 1))
        put_session(hbase_server, hbase_prefix, int.from_bytes(session.id), b"dead")
        session.heartbeat()
        other.table("fed").upsert({"k": 1, "n": 2})
        following = engine_of(other).transactions.session
        assert following.id > session.id
    with connect(hbase_url) as storage:
        assert engine_of(storage).transactions.session.id > following.id
        assert [change.row["n"] for change in storage.changes("fed").read()] == [2]


def test_living_process_without_feeds_keeps_the_format(hbase_server: Place, hbase_prefix: str, hbase_url: str) -> None:
    """Software of format 3 tells so in its heartbeat cell."""
    with connect(hbase_url) as storage:
        storage.admin.create(PLAIN)
        put_session(hbase_server, hbase_prefix, 1_000, b"4503599627370496|7|3")
        storage.admin.create(SUMS)
        for specification in (FED, PLAIN.evolve(options={"changelog-producer": "lookup"})):
            with pytest.raises(StorageUnavailableError, match=r"session 1000 .* does not know change feeds"):
                storage.admin.create_or_update(specification)
        assert stored(hbase_server, hbase_prefix) == b"3"
        put_session(hbase_server, hbase_prefix, 1_000, b"closed")
        storage.admin.create(FED)
        assert stored(hbase_server, hbase_prefix) == b"4"


def test_feed_skips_remains_of_a_table(hbase_url: str) -> None:
    """An interrupted call may have left the HBase table of the next number, without a gate."""
    with connect(hbase_url) as storage:
        engine = engine_of(storage)
        engine.create_space((2).to_bytes(4))
        storage.admin.create(FED)  # rows in 1, the feed in 3
        storage.table("fed").upsert({"k": 1, "n": 1})
        assert [change.row["n"] for change in storage.changes("fed").read()] == [1]
        storage.admin.create(PLAIN)
        storage.table("plain").upsert({"k": 1, "n": 1})
        problems = [one for one in storage.diagnose() if one.level is FindingLevel.PROBLEM]
        assert not problems
        repaired = [one.text for one in storage.repair()]
        assert any("it was empty and not in the catalog" in text for text in repaired)
