"""Limits of a server, and its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from structable.backends.postgresql.driver import statement
from structable.spi import (
    Field,
    FieldSizeLimitError,
    InvalidSpecificationError,
    Range,
    Storage,
    StructuredTable,
    TableSpecification,
    Transaction,
    UnsupportedOperationError,
    Value,
    col,
    connect,
)
from structable.spi.authors import MAX_ROW_SIZE

from .support.server import Server

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n"), Field.bytes("p"), Field.string("s")], ["k"], ["s"])
FULL = bytes(MAX_ROW_SIZE - 4)


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(TABLE)
        yield storage


@pytest.mark.parametrize(
    "grow",
    [
        lambda t: t.upsert({"k": 1, "n": 5}),
        lambda t: t.upsert_many([{"k": 1, "n": 5}]),
        lambda t: t.update({"k": 1, "n": 5}),
        lambda t: t.compare_and_swap((1,), "n", None, 5),
        lambda t: t.increment((1,), "n"),
        lambda t: t.update_all(Range.all(), {"n": 5}),
    ],
    ids=["upsert", "upsert_many", "update", "compare_and_swap", "increment", "update_all"],
)
def test_full_row_takes_no_number(storage: Storage, grow: Callable[[StructuredTable], object]) -> None:
    """A row of 8 MiB has no room for the eight bytes of an integer, either."""
    table = storage.table("t")
    table.upsert({"k": 1, "p": FULL})
    with pytest.raises(FieldSizeLimitError):
        grow(table)
    table.upsert({"k": 1, "p": FULL[8:]})
    grow(table)


@pytest.mark.parametrize("many", [False, True], ids=["upsert", "upsert_many"])
def test_full_value_beside_a_number(storage: Storage, many: bool) -> None:
    """Fixed-width fields of the existing row count, too."""
    storage.admin.create(TableSpecification("u", [Field.int("k"), Field.long("n"), Field.bytes("p")], ["k"]))
    table = storage.table("u")
    table.upsert({"k": 1, "n": 7})

    def put(value: bytes) -> None:
        row: dict[str, Value] = {"k": 1, "p": value}
        if many:
            table.upsert_many([row])
        else:
            table.upsert(row)

    with pytest.raises(FieldSizeLimitError):
        put(FULL)
    put(FULL[8:])


def test_table_of_too_many_fields_is_refused(storage: Storage) -> None:
    fields = [Field.int("k"), *(Field.long(f"f{place}") for place in range(1_600))]
    with pytest.raises(InvalidSpecificationError, match=r"1,601 fields.* 1600"):
        storage.admin.create(TableSpecification("wide", fields, ["k"]))


def test_row_that_no_page_holds(storage: Storage) -> None:
    """1,100 numbers are more than 8 kB: the server refuses them at the commit, and nothing is written."""
    names = [f"f{place}" for place in range(1_100)]
    storage.admin.create(TableSpecification("wide", [Field.int("k"), *map(Field.long, names)], ["k"]))
    with pytest.raises(UnsupportedOperationError, match="row is too big"):
        storage.table("wide").upsert({"k": 1, **dict.fromkeys(names, 1)})
    assert storage.table("wide").count() == 0


def test_more_values_than_a_statement_takes(storage: Storage) -> None:
    """The call is refused, and the transaction continues."""
    ranges = [Range((key,), (key + 1,)) for key in range(65_536)]
    with storage.transaction() as tx:
        table = tx.table("t")
        table.upsert({"k": 1})
        with pytest.raises(UnsupportedOperationError, match="65,535"):
            table.count(ranges)
    assert storage.table("t").count(ranges[:1_000]) == 1
    assert (
        storage.table("t").count([Range.prefix((key,)) for key in range(70_000)]) == 1
    )  # whole keys are one value: an array


def test_more_bytes_than_a_statement_takes(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is refused before anything is sent, and the transaction continues."""
    monkeypatch.setattr(statement, "_MOST_BYTES", 20_000)
    large = bytes(30_000)
    with storage.transaction() as tx:
        table = tx.table("t")
        table.upsert({"k": 1, "p": b"small"})
        for use in (
            lambda: table.multi_read([(key,) for key in range(5_000)]),
            lambda: table.count(where=col("p") == large),
            lambda: table.count(where=col("k").isin(range(5_000))),
            lambda: list(table.scan(where=col("p").isin([large]))),
            lambda: table.explain(where=col("p") == large),
            lambda: table.delete_all(Range.all(), where=col("p") == large),
            lambda: table.update_all(Range.all(), {"p": large}),
        ):
            with pytest.raises(UnsupportedOperationError, match="20,000 bytes at most"):
                use()
    with pytest.raises(UnsupportedOperationError, match="20,000 bytes at most"):
        storage.plan_scan("t", where=col("p") == large)
    assert storage.table("t").read((1,)) == {"k": 1, "n": None, "p": b"small", "s": None}
    with storage.plan_scan("t", where=col("p") == b"small") as plan:
        assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == 1


def memory(process: int | str) -> int:
    """Return the bytes of a process's private memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def test_many_scans_in_a_transaction_hold_no_memory_of_the_server(postgresql_server: Server) -> None:
    """An exhausted cursor takes tens of kilobytes until it is closed."""
    with connect(postgresql_server.url("s")) as storage, psycopg.connect(postgresql_server.superuser_conninfo) as other:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many([{"k": key, "s": str(key % 5)} for key in range(20)])
        with storage.transaction(read_only=True) as tx:
            assert tx.table("t").count() == 20
            [(process,)] = other.execute(
                "select pid from pg_stat_activity where application_name = 'structable' and state like 'idle in%'"
            ).fetchall()
            scans = [tx.table("t").scan_index("s", str(place % 5)) for place in range(200)]
            before = memory(process)
            for place in range(1_000):
                assert len(list(tx.table("t").scan_index("s", str(place % 5)))) == 4
            assert memory(process) - before < 16 << 20
            assert [len(list(scan)) for scan in scans] == [4] * 200


def test_large_rows_are_sent_before_they_are_many(storage: Storage) -> None:
    """A transaction defers writes up to 8 MiB, not 256 rows of any size."""
    value = bytes(1 << 20)
    tx = storage.transaction()
    table = tx.table("t")
    before = memory("self")
    for key in range(200):
        table.upsert({"k": key, "n": 1, "s": "", "p": value + bytes([key])})
    held = memory("self") - before
    tx.commit()
    assert held < 100 << 20
    assert storage.table("t").count() == 200


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "vacuumed"])
def test_plans_made_for_a_small_table_do_not_stay(postgresql_server: Server, analyzed: bool) -> None:
    """A table that has grown is not read as a whole for some of its rows, before the server has its statistics, too."""
    spec = TableSpecification(
        "t", [Field.string("a"), Field.long("b"), Field.int("n"), Field.string("s")], ["a", "b"], ["s"]
    )
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
        with connect(postgresql_server.url("s")) as storage:
            storage.admin.create(spec)

            def use(transaction: Transaction) -> None:
                table = transaction.table("t")
                for begin in range(0, 100, 10):
                    rows: list[dict[str, Value]] = [
                        {"a": f"a{begin + place}", "b": begin + place, "n": 1, "s": f"s{begin}"} for place in range(10)
                    ]
                    keys = [(row["a"], row["b"]) for row in rows]
                    table.upsert_many(rows)
                    assert len(table.multi_read(keys)) == 10
                    assert len(table.multi_read([(keys[0][0], b) for _, b in keys])) == 1
                    assert len(table.multi_read([("b", 30_000 - begin - place) for place in range(10)])) in (0, 10)
                    assert table.count([Range((f"a{begin}", begin), (f"a{begin}", begin + 10))]) == 1
                    assert table.count([Range.prefix(key) for key in keys]) == 10
                    prefixes = [Range.prefix(key[:1]) for key in keys]
                    assert len(list(table.multi_scan(prefixes, limit_per_range=1))) == 10
                    assert len(list(table.multi_scan(prefixes))) == 10
                    assert len(list(table.scan(prefixes[0]))) == 1
                    assert len(list(table.scan(prefixes[0], limit=1, reverse=True))) == 1
                    assert len(list(table.scan(prefixes[0], where=col("n") == 1, limit=1))) == 1
                    assert len(list(table.scan(Range.at_least(keys[0]), limit=1))) == 1
                    assert len(list(table.scan_index("s", f"s{begin}", limit=5))) == 5
                    assert len(list(table.scan_index("s", f"s{begin}"))) == 10
                    assert len(list(table.scan_index("s", f"s{begin}", range=Range.at_least(("a",))))) == 10
                    assert not list(table.scan_index("s", "none", range=Range.prefix(("b",))))
                    assert not list(table.scan_index("s", f"s{begin}", range=Range.prefix(("b",)), limit=1))
                    newest = Range(("b", 31_000 - begin - 2), ("b",), end_inclusive=True)
                    found = list(table.scan_index("s", "s", range=newest, reverse=True, columns=["n"]))
                    assert len(found) in (0, begin + 2)
                    table.increment_many([(key, "n", 1) for key in keys])
                    table.increment(keys[0], "n")
                    table.upsert_many([{"a": key[0], "b": key[1], "n": 5} for key in keys])
                    assert table.update_all(Range.prefix(keys[1]), {"n": 7}) == 1
                    assert table.delete_all(Range.prefix(keys[2])) == 1
                    table.delete_many(keys[3:])
                    assert table.read(keys[3]) is None

            storage.run(use)
            if analyzed:
                connection.execute("vacuum analyze s.t")
                storage.run(use)
            storage.table("t").upsert_many([{"a": "b", "b": key, "n": 1, "s": "s"} for key in range(1_000, 31_000)])
            storage.run(use)
        assert rows_read(connection, inserted=30_000) < 30_000


def test_index_of_large_values_is_used_in_a_prefix_that_grows(postgresql_server: Server) -> None:
    """Its plan is made while the few rows of a prefix would cost less by the key, and sorted."""
    fields = [Field.long("a"), Field.long("b"), Field.string("s"), Field.int("n"), Field.int("m")]
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
        with connect(postgresql_server.url("s") + "&pool_size=1") as storage:
            storage.admin.create(TableSpecification("t", fields, ["a", "b"], ["s"]))
            table = storage.table("t")
            table.upsert_many({"a": key, "b": key, "s": f"{key}{'x' * 400}"} for key in range(5_000))
            connection.execute("vacuum analyze s.t")
            assert not list(table.scan_index("s", "rare", range=Range.prefix((5,))))
            table.upsert_many({"a": -1, "b": key, "s": "often" if key else "rare"} for key in range(20_000))
            for _ in range(3):
                assert len(list(table.scan_index("s", "rare", range=Range.prefix((-1,))))) == 1
        assert rows_read(connection, inserted=25_000) < 20_000


def test_lookups_of_keys_stop_at_the_row(postgresql_server: Server) -> None:
    """The index of the key still lists versions that were rolled back, after the row."""
    keys = [(key, -key) for key in range(200)]
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
        with connect(postgresql_server.url("s") + "&pool_size=1") as storage:
            fields = [Field.long("a"), Field.long("b"), Field.int("n"), Field.int("m")]
            storage.admin.create(TableSpecification("t", fields, ["a", "b"], ["n"]))
            storage.table("t").upsert_many({"a": a, "b": b, "n": 0} for a, b in keys)
            tx = storage.transaction()
            for n in range(5):
                tx.table("t").upsert_many({"a": a, "b": b, "n": n} for a, b in keys)
                assert tx.table("t").read(keys[0])
            tx.rollback()
        before = rows_read(connection, inserted=len(keys))
        with connect(postgresql_server.url("s") + "&pool_size=1") as storage:
            table = storage.table("t")
            assert len(table.multi_read(keys)) == 200
            assert table.count([Range.prefix(key) for key in keys], col("m").is_null()) == 200
            assert len(list(table.multi_scan([Range.prefix(key) for key in keys], limit_per_range=3))) == 200
            assert len(list(table.multi_scan([Range.prefix(key) for key in keys], columns=["n"]))) == 200
            table.increment_many([(key, "n", 1) for key in keys[:100]])
            table.delete_many(keys[100:])
        assert rows_read(connection, inserted=len(keys)) - before == 5 * len(keys)


def rows_read(connection: psycopg.Connection, *, inserted: int) -> int:
    """Return how many rows and entries of indexes were read of a table, after that many rows were inserted."""
    query = (
        "select seq_tup_read + idx_tup_read, n_tup_ins from pg_stat_all_tables join (select relid, "
        "sum(idx_tup_read) as idx_tup_read from pg_stat_all_indexes group by relid) as indexes using (relid) "
        "where schemaname = 's' and relname = 't'"
    )
    deadline = time.monotonic() + 30
    read = found = 0
    while found < inserted and time.monotonic() < deadline:  # the server counts when a connection ends
        time.sleep(0.05)
        [(read, found)] = connection.execute(query.encode()).fetchall()
    assert found >= inserted
    return read
