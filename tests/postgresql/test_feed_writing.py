"""What PostgreSQL records in change feeds, whoever writes, and how feeds begin and end in the database."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from structable.spi import (
    Change,
    ChangesLostError,
    DataCorruptionError,
    FeedPosition,
    Field,
    Range,
    Storage,
    TableNotFoundError,
    TableSpecification,
    TransactionConflictError,
    Value,
    connect,
)
from tests.waiting import until

from .support.shared import Schema

FIELDS = [Field.int("k"), Field.float("v")]  # of one width: columns in this order
LOOKUP = {"changelog-producer": "lookup"}


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        for name in ("t", "u"):
            storage.admin.create(TableSpecification(name, FIELDS, ["k"], options=LOOKUP))
        yield storage


@pytest.fixture
def server(postgresql_schema: Schema, storage: Storage) -> Iterator[psycopg.Connection]:
    """Return a connection of a program that does not know structable."""
    with session(postgresql_schema) as connection:
        yield connection


def session(schema: Schema) -> psycopg.Connection:
    connection = psycopg.connect(schema.conninfo, autocommit=True)
    connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(schema.name)))
    return connection


def changes(storage: Storage, table: str, since: FeedPosition | None = None) -> list[tuple[str, Value, Value]]:
    with storage.changes(table).read(since) as found:
        return [(one.kind.value, one.row["k"], one.row["v"]) for one in found]


def versions(storage: Storage, table: str) -> list[int | None]:
    with storage.changes(table).read() as found:
        return [one.version for one in found]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["update t set v = v + 1 where k = 1"], [("-U", 1, 1.0), ("+U", 1, 2.0)]),
        (["update t set v = v"], []),
        (["update t set v = 'NaN' where k = 3"], []),
        (["update t set v = '-0' where k = 4"], []),
        (["update t set v = 9 where k = 99", "delete from t where k = 99"], []),
        (["delete from t where k < 3"], [("-D", 1, 1.0), ("-D", 2, 2.0)]),
        (["insert into t values (9, null)"], [("+I", 9, None)]),
        (["insert into t values (9, 1)", "delete from t where k = 9"], []),
        (["update t set v = 5 where k = 1", "update t set v = 1 where k = 1"], []),
        (["update t set v = 5 where k = 1", "delete from t where k = 1"], [("-D", 1, 1.0)]),
        (["update t set k = k + 10 where k = 1"], [("-D", 1, 1.0), ("+I", 11, 1.0)]),
        (
            ["insert into t values (1, 7), (8, 8) on conflict (k) do update set v = excluded.v"],
            [("-U", 1, 1.0), ("+U", 1, 7.0), ("+I", 8, 8.0)],
        ),
        (
            ["with d as (delete from t where k = 1 returning k) insert into t select k, 6 from d"],
            [("-U", 1, 1.0), ("+U", 1, 6.0)],
        ),
        (
            ["savepoint a", "update t set v = 3 where k = 1", "rollback to a", "update t set v = 4 where k = 2"],
            [("-U", 2, 2.0), ("+U", 2, 4.0)],
        ),
        (["reset all", "update {0}.t set v = 4 where k = 1"], [("-U", 1, 1.0), ("+U", 1, 4.0)]),
    ],
)
def test_sql_by_hand_is_recorded(
    storage: Storage,
    server: psycopg.Connection,
    postgresql_schema: Schema,
    statements: list[str],
    expected: list[tuple[str, Value, Value]],
) -> None:
    server.execute("insert into t values (1, 1), (2, 2), (3, 'NaN'), (4, 0)")
    since = storage.changes("t").latest()
    with server.transaction():
        for one in statements:
            server.execute(one.format(postgresql_schema.name))
    assert set(changes(storage, "t", since)) == set(expected)


def test_a_table_without_a_feed_has_no_triggers(storage: Storage, server: psycopg.Connection) -> None:
    storage.admin.create(TableSpecification("plain", FIELDS, ["k"]))
    assert server.execute("select count(*) from pg_trigger where tgrelid = 'plain'::regclass").fetchone() == (0,)


def test_a_transaction_has_one_version_in_all_feeds(storage: Storage, server: psycopg.Connection) -> None:
    with server.transaction():
        for table in ("t", "u", "t"):
            server.execute(f"insert into {table} select count(*), 0 from {table}")
    with storage.transaction() as tx:
        tx.table("t").upsert({"k": 5})
        tx.table("u").upsert({"k": 5})
    assert versions(storage, "t") == [(first := versions(storage, "u"))[0], first[0], first[1]]


def test_a_transaction_draws_one_version_for_all_feeds(storage: Storage, server: psycopg.Connection) -> None:
    def drawn() -> int:
        found = server.execute("select last_value from _structable_versions").fetchone()
        assert found is not None
        return int(found[0])

    before = drawn()
    with server.transaction():
        server.execute("insert into t values (1, 0)")
        with server.transaction(force_rollback=True):
            server.execute("insert into u values (1, 0)")
        server.execute("insert into u values (2, 0)")
        server.execute("truncate t")
    assert drawn() == before + 1
    assert changes(storage, "u") == [("+I", 2, 0.0)]
    assert storage.changes("t").earliest().version == before + 1
    assert server.execute("select count(*) from _structable_touched").fetchone() == (0,)


def test_constraints_checked_early_do_not_divide_a_transaction(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema
) -> None:
    server.execute("insert into t values (1, 0), (2, 0)")
    since = storage.changes("t").latest()
    with session(postgresql_schema) as other, server.transaction():
        server.execute("update t set v = 1 where k = 1")
        server.execute("set constraints all immediate")
        other.execute("update t set v = 1 where k = 2")
        server.execute("update t set v = 2 where k = 2")
        server.execute("update u set v = 2 where k = 2")
    assert changes(storage, "t", since) == [
        ("-U", 2, 0.0),
        ("+U", 2, 1.0),
        ("-U", 1, 0.0),
        ("+U", 1, 1.0),
        ("-U", 2, 1.0),
        ("+U", 2, 2.0),
    ]
    assert len(set(versions(storage, "t")[2:])) == 2


def test_an_update_by_hand_of_a_table_without_a_key_leaves_out_equal_rows(
    storage: Storage, server: psycopg.Connection
) -> None:
    storage.admin.create(TableSpecification("bag", FIELDS, options={"write-mode": "change-log", **LOOKUP}))
    storage.table("bag").insert_many([{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 2}])
    begin = storage.changes("bag").latest()
    server.execute("update bag set v = v")
    assert changes(storage, "bag", begin) == []
    assert storage.changes("bag").advance(begin, 1) == storage.changes("bag").latest()
    with server.transaction():
        server.execute("update bag set v = 2 where k = 1")
        server.execute("update bag set v = 3 where k = 2")
        server.execute("insert into bag select k, 4, _id || 'x' from bag where k = 2")
    expected = [("+I", 1, 2.0), ("+I", 2, 3.0), ("+I", 2, 4.0), ("-D", 1, 1.0), ("-D", 2, 2.0)]
    assert sorted(changes(storage, "bag", begin)) == expected


def _place(one: Change) -> tuple[int, Value, str]:
    """Return a change's place in the feed; the keys of a commit are in no order."""
    assert one.version is not None
    return one.version, one.row["k"], one.kind.value


@pytest.mark.parametrize("setting", ["feed_1", "again_1", "drawn", "touched"])
def test_forged_settings_change_no_version_of_others(
    storage: Storage, server: psycopg.Connection, setting: str
) -> None:
    server.execute("insert into t values (1, 0), (2, 0)")
    places = server.execute("select ctid::text from _structable_commits").fetchall()
    before = list(storage.changes("t").read())
    for (place,) in [*places, ("(0,1)",), ("",)]:
        forged = {"drawn": f'{{"{place}"}}', "again_1": "7", "touched": f'"{place}",'}
        value = forged.get(setting, place)
        try:
            with server.transaction():
                server.execute("update t set v = v + 1 where k = 1")
                server.execute("select set_config(%s, %s, true)", (f"structable.{setting}", value))
                server.execute("update t set v = v + 1 where k = 2")
                server.execute("update t set v = v + 1 where k = 1")
        except psycopg.Error:
            continue
    after = list(storage.changes("t").read())
    assert sorted(after, key=_place)[: len(before)] == sorted(before, key=_place)
    state: dict[Value, Value] = {}
    for one in after:
        if one.kind.retracts:
            assert state.pop(one.row["k"]) == one.row["v"]
        else:
            state[one.row["k"]] = one.row["v"]
    assert state == {row["k"]: row["v"] for row in storage.table("t").scan()}


def test_truncate_begins_a_new_feed(storage: Storage, server: psycopg.Connection) -> None:
    server.execute("insert into t values (1, 1)")
    lost = storage.changes("t").latest()
    with server.transaction():
        server.execute("truncate t")
        server.execute("insert into t values (2, 2)")
    server.execute("insert into t values (3, 3)")
    with pytest.raises(ChangesLostError, match="gone"):
        storage.changes("t").read(lost)
    assert changes(storage, "t") == [("+I", 3, 3.0)]
    with storage.transaction() as tx:
        assert tx.position("t").feed != lost.feed
        assert [row["k"] for row in tx.table("t").scan()] == [2, 3]


def test_an_ended_feed_leaves_nothing(storage: Storage, server: psycopg.Connection) -> None:
    storage.table("t").upsert({"k": 1})
    storage.table("u").upsert({"k": 1})
    storage.admin.create_or_update(TableSpecification("t", FIELDS, ["k"], options={"changelog-producer": "none"}))
    storage.table("t").upsert({"k": 2})
    storage.admin.drop("u")

    def left() -> list[Any]:
        return server.execute(
            "select relname::text from pg_class where relname ~ '^_feed_' "
            "and relnamespace = current_schema::regnamespace union all "
            "select proname::text from pg_proc where proname ~ '^_feed_' "
            "and pronamespace = current_schema::regnamespace"
        ).fetchall()

    until(lambda: not left())
    assert server.execute("select count(*) from _structable_feeds").fetchone() == (0,)
    left_commits = server.execute("select count(*) from _structable_commits").fetchone()
    assert left_commits in ((0,), (1,))  # the newest version of the store stays known
    assert server.execute("select count(*) from _structable_touched").fetchone() == (0,)


def test_a_feed_that_ends_while_it_expires_is_gone(storage: Storage, server: psycopg.Connection) -> None:
    feed = storage.changes("t")
    storage.table("t").upsert({"k": 1})
    newest = feed.latest()
    server.execute(
        "create function wait() returns trigger language plpgsql as "
        "'begin while not pg_try_advisory_xact_lock(1234) loop perform pg_sleep(0.01); end loop; return null; end'"
    )
    server.execute("create trigger wait after delete on _structable_feeds for each row execute function wait()")
    server.execute("select pg_advisory_lock(1234)")

    def waiting(kind: str) -> bool:
        query = "select from pg_stat_activity where datname = current_database() and wait_event = %s"
        return server.execute(query, (kind,)).fetchone() is not None

    with ThreadPoolExecutor() as threads:
        try:
            dropped = threads.submit(storage.admin.drop, "t")
            until(lambda: waiting("PgSleep"))  # not for a lock, which a drop awaits only briefly before it tries again
            expired = threads.submit(feed.expire, newest)
            until(lambda: waiting("transactionid"))
        finally:
            server.execute("select pg_advisory_unlock(1234)")
        dropped.result()
        with pytest.raises(TableNotFoundError):
            expired.result()


@pytest.mark.parametrize("key", [["k"], []])
def test_fields_have_the_names_of_variables(storage: Storage, key: list[str]) -> None:
    names = ("k", "t", "again", "n", "o", "r", "several", "done", "fresh", "found", "recording")
    options = {**LOOKUP, **({} if key else {"write-mode": "change-log"})}
    storage.admin.create(TableSpecification("named", [Field.int(name) for name in names], key, options=options))
    rows = [dict.fromkeys(names, number) for number in range(3)]
    for some in ([rows[0]], rows[1:]):
        storage.table("named").insert_many(some)
        storage.table("named").delete_all(Range.all())
    with storage.changes("named").read() as found:
        assert [(str(change.kind), dict(change.row)) for change in found] == [
            *(("+I", rows[0]), ("-D", rows[0])),
            *(("+I", row) for row in rows[1:]),
            *(("-D", row) for row in rows[1:]),
        ]


@pytest.mark.parametrize("count", [1, 2])
def test_sql_by_hand_changes_keys_of_rows_without_other_fields(
    storage: Storage, server: psycopg.Connection, count: int
) -> None:
    storage.admin.create(TableSpecification("keys", [Field.int("a"), Field.int("b")], ["a", "b"], options=LOOKUP))
    storage.table("keys").insert_many({"a": number, "b": 0} for number in range(count))
    for text in ("update keys set a = a", "update keys set b = b + 1", "update keys set b = b"):
        assert server.execute(text.encode()).rowcount == count
    with storage.changes("keys").read() as found:
        told = Counter((str(change.kind), change.row["a"], change.row["b"]) for change in found)
    assert told == Counter(
        (kind, number, b) for number in range(count) for kind, b in (("+I", 0), ("-D", 0), ("+I", 1))
    )


def test_a_disabled_trigger_is_found(storage: Storage, server: psycopg.Connection) -> None:
    server.execute("alter table t disable trigger user")
    with pytest.raises(DataCorruptionError, match="trigger _feed_1_insert of the change feed is gone or disabled"):
        storage.admin.create_or_update(TableSpecification("t", [*FIELDS, Field.int("w")], ["k"]))


def test_older_software_refuses_a_table_with_a_feed(storage: Storage, server: psycopg.Connection) -> None:
    found = server.execute("select specification from _structable_tables where name = 't'").fetchone()
    assert found is not None
    assert json.loads(found[0])["requires"] == ["table-types", "change-feeds"]


@pytest.mark.parametrize("is_vacuumed", [False, True])
@pytest.mark.parametrize("producer", ["none", "lookup", "input"])
def test_serializable_transactions_find_no_false_conflicts(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema, producer: str, is_vacuumed: bool
) -> None:
    """Each reads and writes a table that the other does not touch."""
    for name in ("a", "b"):
        storage.admin.create(TableSpecification(name, FIELDS, ["k"], options={"changelog-producer": producer}))
        storage.table(name).upsert({"k": 0, "v": 0.0})
    if is_vacuumed:  # the planner knows then that they are empty or small, and prefers to read them whole
        server.execute("vacuum analyze _structable_touched, _structable_commits")
    conflicts = 0
    with session(postgresql_schema) as one, session(postgresql_schema) as other:
        for number in range(50):
            try:
                for connection, table in ((one, "a"), (other, "b")):
                    connection.execute("begin isolation level serializable")
                    connection.execute(f"select v from {table} where k = 0")
                for connection, table in ((one, "a"), (other, "b")):
                    connection.execute(f"update {table} set v = v + 1 where k = 0")
                    connection.execute(f"insert into {table} values ({number + 1})")
                one.execute("commit")
                other.execute("commit")
            except psycopg.errors.SerializationFailure:
                conflicts += 1
                one.execute("rollback")
                other.execute("rollback")
    assert conflicts == 0


def test_turning_a_feed_on_ends_transactions_that_would_not_be_recorded(postgresql_url: str) -> None:
    plain = TableSpecification("late", FIELDS, ["k"])
    with connect(postgresql_url) as storage, connect(postgresql_url) as other:
        storage.admin.create(plain)
        transaction = storage.transaction()
        transaction.table("late").read((1,))
        other.admin.create_or_update(plain.evolve(options=LOOKUP))
        transaction.table("late").upsert({"k": 1})
        with pytest.raises(TransactionConflictError):
            transaction.commit()
        storage.table("late").upsert({"k": 2})
        assert changes(storage, "late") == [("+I", 2, None)]
