"""Reading PostgreSQL's feeds: large commits, several statements of one, long values, and expiry meanwhile."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from structable.spi import ChangesLostError, FeedPosition, Field, Storage, TableSpecification, connect, read_split

from .support.shared import Schema

FIELDS = [Field.int("k"), Field.long("v"), Field.string("s")]
LOOKUP = {"changelog-producer": "lookup"}
LARGE = 10_000  # entries, several chunks


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(TableSpecification("t", FIELDS, ["k"], options=LOOKUP))
        yield storage


@pytest.fixture
def server(postgresql_schema: Schema, storage: Storage) -> Iterator[psycopg.Connection]:
    """Return a connection of a program that does not know structable."""
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(postgresql_schema.name)))
        yield connection


Seen = tuple[str, int | None, Any, Any]


def read(storage: Storage, since: FeedPosition | None = None, *, table: str = "t", net: bool = False) -> list[Seen]:
    with storage.changes(table).read(since, net=net) as found:
        return [(one.kind.change_type, one.version, one.row["k"], one.row["v"]) for one in found]


def planned(
    storage: Storage, url: str, since: FeedPosition | None = None, *, splits: int = 1, net: bool = False
) -> list[Seen]:
    """Return the changes as other processes read them; no split divides a pair."""
    plan = storage.changes("t").plan(since, splits=splits, net=net)
    found: list[Seen] = []
    for split in plan.splits:
        rows = [row for batch in read_split(url, pickle.loads(pickle.dumps(split))) for row in batch.to_pylist()]
        assert not rows or rows[0]["_change_type"] != "update_postimage"
        found += [(row["_change_type"], row["_commit_version"], row["k"], row["v"]) for row in rows]
    return found


def in_pairs(found: list[Seen]) -> None:
    """Check that each row after follows the row before it."""
    for place, (kind, version, key, _) in enumerate(found):
        if kind == "update_postimage":
            assert found[place - 1][:3] == ("update_preimage", version, key)


def test_commits_of_more_entries_than_a_chunk(
    storage: Storage, server: psycopg.Connection, postgresql_url: str
) -> None:
    server.execute("insert into t (k, v) select k, k from generate_series(1, 3) k")
    server.execute(f"insert into t (k, v) select k, k from generate_series(101, {LARGE + 100}) k")
    server.execute("update t set v = v + 1 where k > 100")
    server.execute("delete from t where k < 3 or k > 200")
    inserts = LARGE + 3
    found = read(storage)
    in_pairs(found)
    assert Counter(kind for kind, *_ in found) == {
        "insert": inserts,
        "update_preimage": LARGE,
        "update_postimage": LARGE,
        "delete": LARGE - 100 + 2,
    }
    assert [version for _, version, *_ in found] == sorted(version for _, version, *_ in found)  # type: ignore[type-var]
    for splits in (1, 3, 20):
        again = planned(storage, postgresql_url, splits=splits)
        in_pairs(again)
        assert again == found
    plan = storage.changes("t").plan(splits=8)
    assert 5 <= len(plan.splits) <= 12
    sizes = [sum(batch.num_rows for batch in storage.read_split(split)) for split in plan.splits]
    assert max(sizes) < sum(sizes) / 2
    assert Counter(read(storage, net=True)) == Counter(planned(storage, postgresql_url, splits=4, net=True))
    assert len(read(storage, net=True)) == 101


def test_many_commits(storage: Storage, server: psycopg.Connection, postgresql_url: str) -> None:
    """Chunks end with commits, and splits with them."""
    server.execute("do $$ begin for i in 1..6000 loop insert into t (k, v) values (i, i); commit; end loop; end $$")
    found = read(storage)
    assert [key for _, _, key, _ in found] == list(range(1, 6001))
    assert len({version for _, version, *_ in found}) == 6000
    assert planned(storage, postgresql_url, splits=5) == found
    feed = storage.changes("t")
    middle = feed.advance(feed.earliest(), 2500)
    assert len(read(storage, middle)) == 3500


def test_a_large_commit_of_several_statements_is_net(
    storage: Storage, server: psycopg.Connection, postgresql_url: str
) -> None:
    server.execute(f"insert into t (k, v) select k, 0 from generate_series(1, {LARGE}) k")
    before = storage.changes("t").latest()
    with server.transaction():
        server.execute("update t set v = 1 where k <= 8000")
        server.execute("update t set v = 2 where k <= 7000")
        server.execute("delete from t where k <= 1000")
        server.execute("insert into t (k, v) select k, 5 from generate_series(1, 500) k")
        server.execute("insert into t (k, v) select k, 6 from generate_series(20001, 20010) k")
        server.execute("delete from t where k > 20005")
        server.execute("update t set v = 0 where k between 6001 and 7000")
    found = read(storage, before)
    in_pairs(found)
    kinds = {key: [] for _, _, key, _ in found}  # type: dict[int, list[tuple[str, int]]]
    for kind, _, key, value in found:
        kinds[key].append((kind, value))
    assert kinds[1] == [("update_preimage", 0), ("update_postimage", 5)]
    assert kinds[501] == [("delete", 0)]
    assert kinds[1001] == [("update_preimage", 0), ("update_postimage", 2)]
    assert 6001 not in kinds
    assert kinds[7001] == [("update_preimage", 0), ("update_postimage", 1)]
    assert kinds[20005] == [("insert", 6)]
    assert 20006 not in kinds
    assert len(kinds) == 7000 + 5
    assert len({version for _, version, *_ in found}) == 1
    assert Counter(planned(storage, postgresql_url, before)) == Counter(found)
    divided = planned(storage, postgresql_url, before, splits=4)
    in_pairs(divided)
    assert Counter(divided) == Counter(found)
    feed = storage.changes("t")
    assert feed.advance(before, 1) == feed.latest()


def test_statements_of_other_keys_are_not_netted_again(
    storage: Storage, server: psycopg.Connection, postgresql_url: str
) -> None:
    with server.transaction():
        for begin in range(0, LARGE, 2000):
            server.execute(f"insert into t (k, v) select k, 0 from generate_series({begin + 1}, {begin + 2000}) k")
    found = read(storage)
    assert [key for _, _, key, _ in found] == list(range(1, LARGE + 1))
    assert planned(storage, postgresql_url, splits=3) == found


def test_small_commits_of_several_statements_are_net(postgresql_url: str) -> None:
    """Whatever the order of their keys, and whether a part of the key repeats or all of it."""
    spec = TableSpecification("t", [Field.string("a"), Field.long("b"), Field.long("v")], ["a", "b"], options=LOOKUP)
    given = {
        "ascending": [("a", 1), ("a", 2), ("b", 1), ("c", 0)],
        "descending": [("c", 0), ("b", 1), ("a", 2), ("a", 1)],
        "one again": [("a", 2), ("b", 1), ("a", 1), ("b", 1), ("c", 3)],
        "one at once": [("a", 1), ("a", 2), ("a", 2), ("b", 1)],
        "to and fro": [("b", 1), ("a", 2), ("b", 1)],
    }
    with connect(postgresql_url) as storage:
        storage.admin.create(spec)
        for name, keys in given.items():
            begin = storage.changes("t").latest()
            with storage.transaction() as tx:
                table = tx.table("t")
                for v, (a, b) in enumerate(keys):
                    table.upsert({"a": a, "b": b, "v": v})
                    assert table.read((a, b))
            plan = storage.changes("t").plan(begin)
            batches = [batch for split in plan.splits for batch in read_split(postgresql_url, split)]
            rows = [row for batch in batches for row in batch.to_pylist()]
            found = sorted((row["_change_type"], row["a"], row["b"], row["v"]) for row in rows)
            last = {key: v for v, key in enumerate(keys)}
            assert found == sorted(("insert", *key, v) for key, v in last.items()), name
            table = storage.table("t")
            table.delete_many(keys)


def test_long_values_come_in_small_chunks(storage: Storage, server: psycopg.Connection, postgresql_url: str) -> None:
    """Random text is stored outside the rows."""
    text = "select string_agg(md5(random()::text || g), '') from generate_series(1, 20000)"
    server.execute(f"insert into t (k, v, s) select k, k, ({text} g) from generate_series(1, 60) k")
    for key in range(61, 70):
        server.execute(f"insert into t (k, v, s) select {key}, 0, ({text} g)")
    server.execute("update t set v = -1 where k <= 10")
    rows = {row["k"]: row["s"] for row in storage.table("t").scan()}
    with storage.changes("t").read() as changes:
        found = list(changes)
    assert len(found) == 60 + 9 + 20
    assert all(change.row["s"] == rows[change.row["k"]] for change in found)
    batches = [
        row
        for split in storage.changes("t").plan(splits=3).splits
        for batch in read_split(postgresql_url, split)
        for row in batch.to_pylist()
    ]
    assert [(row["k"], row["v"], row["s"]) for row in batches] == [tuple(change.row.values()) for change in found]


def test_compressed_values_come_in_small_chunks(
    storage: Storage, server: psycopg.Connection, postgresql_url: str
) -> None:
    """Repeated text is compressed to about a hundredth, and stays in the rows."""
    server.execute("insert into t (k, v, s) select k, 0, 'short' from generate_series(1, 50) k")
    for begin in (51, 201):
        server.execute(
            f"insert into t (k, v, s) select k, k, repeat('x', 150000) from generate_series({begin}, {begin + 149}) k"
        )
    query = "select pg_relation_size(reltoastrelid) from pg_class where oid = '_feed_1'::regclass"
    assert server.execute(query).fetchone() == (0,)
    expected = [(k, "short" if k <= 50 else "x" * 150_000) for k in range(1, 351)]
    with storage.changes("t").read() as changes:
        assert [(change.row["k"], change.row["s"]) for change in changes] == expected
    for splits in (1, 3):
        plan = storage.changes("t").plan(splits=splits)
        batches = [batch for split in plan.splits for batch in read_split(postgresql_url, split)]
        assert [(row["k"], row["s"]) for batch in batches for row in batch.to_pylist()] == expected
        assert max(batch.nbytes for batch in batches) < 16 << 20


def test_expiry_while_changes_are_read(storage: Storage, server: psycopg.Connection) -> None:
    """A reader gets what it has read already, then the error: never a hole."""
    for _ in range(2):
        server.execute("insert into t (k, v) select k, 0 from generate_series(1, 9000) k")
        server.execute("delete from t")
    feed = storage.changes("t")
    plan = feed.plan(splits=2)
    with feed.read() as changes:
        seen = [next(changes)]
        feed.expire(feed.latest())
        with pytest.raises(ChangesLostError) as lost:
            seen.extend(changes)
    assert 1 < len(seen) < 36_000
    assert [change.row["k"] for change in seen] == [k for _ in range(4) for k in range(1, 9001)][: len(seen)]
    assert lost.value.earliest == feed.earliest()
    for split in plan.splits:
        with pytest.raises(ChangesLostError):
            list(storage.read_split(split))
    assert read(storage) == []
    assert server.execute("select count(*) from _feed_1").fetchone() == (0,)


def test_bags_are_net_by_value(storage: Storage, server: psycopg.Connection, postgresql_url: str) -> None:
    storage.admin.create(TableSpecification("bag", FIELDS, options={"write-mode": "change-log", **LOOKUP}))
    with storage.transaction() as transaction:
        bag = transaction.table("bag")
        bag.insert_many([{"k": 1, "v": 1}] * 3 + [{"k": 2, "v": 2}])
        bag.count()
        bag.apply_changes([("-D", {"k": 1, "v": 1}), ("-D", {"k": 2, "v": 2}), ("+I", {"k": 3})])
    assert Counter(read(storage, table="bag")) == {
        ("insert", storage.changes("bag").latest().version, 1, 1): 2,
        ("insert", storage.changes("bag").latest().version, 3, None): 1,
    }
    rows = [
        row
        for split in storage.changes("bag").plan(splits=2).splits
        for batch in read_split(postgresql_url, split)
        for row in batch.to_pylist()
    ]
    assert Counter((row["_change_type"], row["k"]) for row in rows) == {("insert", 1): 2, ("insert", 3): 1}


def test_wide_tables(storage: Storage, postgresql_url: str) -> None:
    """So many columns cannot be joined in one query."""
    fields = [Field.int("k"), *(Field.int(f"f{place}") for place in range(600))]
    storage.admin.create(TableSpecification("wide", fields, ["k"], options=LOOKUP))
    storage.table("wide").upsert({"k": 1, "f599": 1})
    storage.table("wide").upsert({"k": 1, "f0": 2})
    rows = [
        row
        for split in storage.changes("wide").plan().splits
        for batch in read_split(postgresql_url, split)
        for row in batch.to_pylist()
    ]
    assert [(row["_change_type"], row["f0"], row["f599"]) for row in rows] == [
        ("insert", None, 1),
        ("update_preimage", None, 1),
        ("update_postimage", 2, 1),
    ]
