"""A faulty table, role or server: one clear error, at once."""

from __future__ import annotations

import datetime as dt
import operator
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from structable.spi import (
    DataCorruptionError,
    Field,
    Filter,
    InvalidSpecificationError,
    Isolation,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    col,
    connect,
)
from tests.waiting import PROMPT

from .support.fixtures import StartServer
from .support.server import ROLE, Server
from .support.shared import Schema

TABLE = TableSpecification("t", [Field.int("k"), Field.int("n"), Field.string("s")], ["k"], ["s"])


WIDER = TableSpecification("t", [*TABLE.fields, Field.int("m"), Field.int("o")], ["k"], ["s", "n"])


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert({"k": 1, "n": 1, "s": "a"})
        assert storage.table("t").read((1,)) is not None
        yield storage


def by_hand(schema: Schema, *commands: str) -> None:
    """Run SQL past structable."""
    with psycopg.connect(schema.conninfo, autocommit=True) as connection:
        connection.execute(f'set search_path = "{schema.name}"')
        for command in commands:
            connection.execute(command)


USES: list[Callable[[Storage], object]] = [
    lambda storage: storage.table("t").read((1,)),
    lambda storage: list(storage.table("t").scan()),
    lambda storage: storage.run(lambda tx: tx.table("t").upsert({"k": 2, "n": 2, "s": "b"})),
    lambda storage: storage.admin.create_or_update(
        TableSpecification("t", [*TABLE.fields, Field.int("more")], ["k"], ["s"])
    ),
]


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["alter table t drop column n"], "field 'n' is gone"),
        (["alter table t rename column n to m"], "field 'n' is gone"),
        (["drop table t"], "the table itself is gone"),
        (["alter table t rename to other"], "the table itself is gone"),
        (["do $$ begin execute 'drop function ' || (select oid::regprocedure from pg_proc where proname like "
          "'\\_version%' and pronamespace = current_schema()::regnamespace); end $$"], "the function _version"),
    ],
    ids=["column dropped", "column renamed", "table dropped", "table renamed", "token dropped"],
)  # fmt: skip
@pytest.mark.parametrize("fresh", [False, True], ids=["known", "fresh"])
def test_table_changed_by_hand(
    storage: Storage, postgresql_schema: Schema, commands: list[str], expected: str, fresh: bool
) -> None:
    """Every use of the table is a `DataCorruptionError` with its name and the problem, no conflict without end."""
    by_hand(postgresql_schema, *commands)
    with connect(postgresql_schema.url) as other:
        for use in USES:
            began = time.monotonic()
            with pytest.raises(DataCorruptionError, match="table 't'") as refusal:
                use(other if fresh else storage)
            assert expected in str(refusal.value)
            assert time.monotonic() - began < PROMPT
    storage.admin.drop("t")
    assert storage.admin.list() == []


def test_type_changed_by_hand(storage: Storage, postgresql_schema: Schema) -> None:
    """A column of another type is refused by the next change of the table."""
    by_hand(postgresql_schema, "alter table t alter column n type text")
    with pytest.raises(DataCorruptionError, match="field 'n' is of type text, not integer"):
        USES[3](storage)


def test_index_dropped_by_hand(storage: Storage, postgresql_schema: Schema) -> None:
    """If an index was dropped by hand, answers stay right, and the next change of the table reports it."""
    found = "select indexname from pg_indexes where schemaname = current_schema() and indexname like '\\_i%'"
    by_hand(postgresql_schema, f"do $$ begin execute 'drop index ' || ({found}); end $$")
    assert len(list(storage.table("t").scan_index("s", "a"))) == 1
    with pytest.raises(DataCorruptionError, match="index of field 's'"):
        USES[3](storage)
    storage.admin.drop_index("t", "s")
    storage.admin.create_or_update(TABLE)
    assert len(list(storage.table("t").scan_index("s", "a"))) == 1


def test_catalog_row_deleted_by_hand(storage: Storage, postgresql_schema: Schema) -> None:
    """The table does not exist then; a new one of its name is not made over the remains."""
    by_hand(postgresql_schema, "delete from _structable_tables")
    with connect(postgresql_schema.url) as other:
        with pytest.raises(TableNotFoundError):
            other.table("t")
        for make in (other.admin.create, other.admin.create_or_update):
            with pytest.raises(DataCorruptionError, match="'t'"):
                make(TABLE)


@pytest.mark.parametrize(
    "change",
    [
        "specification = '{}'",
        "specification = 'no JSON'",
        "specification = repeat('[', 100000)",
        "specification = repeat('{\"name\":', 100000) || repeat('}', 100000)",
        "specification = replace(specification, '\"int\"', repeat('[', 900) || repeat(']', 900))",
        "specification = replace(specification, '\"k\"', '5')",
        "building = '5'",
        "building = repeat('[', 100000)",
    ],
)
def test_catalog_row_spoiled_by_hand(storage: Storage, postgresql_schema: Schema, change: str) -> None:
    """An unreadable specification is reported briefly, with the catalog's name, on every use."""
    by_hand(postgresql_schema, f"update _structable_tables set {change}")
    with connect(postgresql_schema.url) as other:
        for use in (
            lambda: other.table("t").count(),
            lambda: other.admin.get_specification("t"),
            lambda: other.admin.create_or_update(WIDER),
            lambda: other.plan_scan("t"),
            lambda: other.begin_write("t", mode="upsert", job_id="j"),
        ):
            with pytest.raises(DataCorruptionError, match="_structable_tables") as refusal:
                use()
            assert len(str(refusal.value)) < 5_000


@pytest.mark.parametrize("large", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize(
    ("column", "value", "in_rows"),
    [
        ("at", "infinity", True),
        ("at", "-infinity", True),
        ("at", "10000-01-01 00:00:00+00", True),
        ("ntz", "infinity", True),
        ("ntz", "0001-12-31 23:59:59 BC", True),
        ("day", "infinity", True),
        ("day", "10000-01-01", True),
        ("decimal", "NaN", True),
        ("byte", "128", False),
    ],
)
def test_value_written_by_hand(
    postgresql_url: str, postgresql_schema: Schema, column: str, value: str, in_rows: bool, large: bool
) -> None:
    """A value outside the contract raises `DataCorruptionError`, and is never read as another value."""
    spec = TableSpecification(
        "values",
        [Field.int("k"), Field.timestamp("at"), Field.timestamp_ntz("ntz"), Field.date("day"),
         Field.decimal("decimal", 9, 2), Field.byte("byte"), Field.bytes("b")],
        ["k"],
    )  # fmt: skip
    with connect(postgresql_url) as storage:
        storage.admin.create(spec)
        storage.table("values").upsert({"k": 0, "b": os.urandom(9_000) if large else b""})
        by_hand(postgresql_schema, f"insert into \"values\" (k, {column}) values (1, '{value}')")
        with (
            storage.plan_scan("values") as plan,
            pytest.raises(DataCorruptionError, match="not written by structable"),
        ):
            list(storage.read_split(plan.splits[0]))
        reads: list[Callable[[], object]] = [
            lambda: storage.table("values").read((1,)),
            lambda: storage.table("values").multi_read([(1,)]),
            lambda: list(storage.table("values").scan()),
            lambda: storage.run(lambda tx: tx.table("values").read((1,))),
        ]
        for read in reads if in_rows else []:
            with pytest.raises(DataCorruptionError, match="not written by structable"):
                read()


def test_number_of_another_server(storage: Storage, postgresql_schema: Schema) -> None:
    """A dump restored on a younger server has transaction numbers from its future."""
    by_hand(postgresql_schema, "update _structable_tables set changed_by = '999999999999'")
    with connect(postgresql_schema.url) as other:
        assert other.table("t").count() == 1
        other.table("t").upsert({"k": 3})
        other.admin.create_or_update(TableSpecification("t", [*TABLE.fields, Field.int("more")], ["k"], ["s"]))
        assert other.table("t").count() == 2


def replaced(url: str, *, user: str = "", password: str = "", host: str = "", path: str = "") -> str:
    """Return a URL with other parts."""
    parts = urlsplit(url)
    netloc = f"{user or parts.username}:{password or parts.password}@{host or f'{parts.hostname}:{parts.port}'}"
    return urlunsplit((parts.scheme, netloc, path or parts.path, parts.query, ""))


def refusal(url: str) -> str:
    """Return the message of a refused connection, which comes at once and without the password."""
    began = time.monotonic()
    with pytest.raises(StorageUnavailableError) as found:
        connect(url)
    assert time.monotonic() - began < PROMPT
    messages: list[str] = []
    error: BaseException | None = found.value
    while error is not None:
        messages.append(str(error))
        error = error.__cause__ or error.__context__
    assert "sEcReT" not in "".join(messages)
    return messages[0]


def test_standby_reads_and_refuses_to_write(postgresql_server: Server) -> None:
    """A write on a standby is one clear error, and works after its promotion."""
    server = postgresql_server
    url = server.url("structable")
    with connect(url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert({"k": 1, "n": 1, "s": "a"})
        server.become_standby()
        storage.close()
    with connect(url) as storage, connect(url, read_only=True) as reading:
        for one in (storage, reading):
            assert one.table("t").read((1,)) is not None
            assert len(list(one.table("t").scan_index("s", "a"))) == 1
            assert one.run(lambda tx: tx.table("t").count(), read_only=True) == 1
            assert one.admin.list() == ["t"]
            with one.plan_scan("t") as plan:
                assert sum(batch.num_rows for split in plan.splits for batch in one.read_split(split)) == 1
        transaction = storage.transaction()
        writes: list[Callable[[], object]] = [
            lambda: transaction.table("t").upsert({"k": 2}),
            lambda: storage.admin.create(TableSpecification("u", TABLE.fields, ["k"])),
            lambda: storage.admin.create_or_update(WIDER),
            lambda: storage.admin.drop("t"),
            lambda: storage.begin_write("t", mode="upsert", job_id="j"),
            lambda: connect(server.url("another")),
        ]
        for write in writes:
            with pytest.raises(StorageUnavailableError, match="accepts no writes"):
                write()
        transaction.rollback()
        with pytest.raises(UnsupportedOperationError):
            storage.transaction(Isolation.SERIALIZABLE, read_only=True).table("t").count()
        with psycopg.connect(server.superuser_conninfo, autocommit=True) as connection:
            connection.execute("select pg_promote()")
        storage.table("t").upsert({"k": 2})
        assert reading.table("t").count() == 2


def test_server_that_refuses(postgresql_server: Server) -> None:
    """A wrong password, a missing database, role or right, a stopped server: the server's reason is reported."""
    server = postgresql_server
    url = server.url("structable")
    assert "password authentication failed" in refusal(replaced(url, password="sEcReT"))
    assert "missing" in refusal(replaced(url, path="/missing"))
    assert "password authentication failed" in refusal(replaced(url, user="nobody", password="sEcReT"))
    with psycopg.connect(server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("create role bare login password 'sEcReT-pass'")
        bare = replaced(url, user="bare", password="sEcReT-pass")
        assert "lacks a privilege" in refusal(bare)
        connection.execute("create schema structable")
        assert "lacks a privilege" in refusal(bare)
        # A role needs rights on its schema only.
        connection.execute("grant usage, create on schema structable to bare")
    with connect(bare) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert({"k": 1, "s": "a"})
        storage.admin.create_or_update(TableSpecification("t", [*TABLE.fields, Field.int("m")], ["k"], ["s", "n"]))
        assert storage.table("t").count() == 1
    # A role with the right to read reads.
    with psycopg.connect(server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("create role reader login password 'sEcReT-pass'")
        connection.execute("grant usage on schema structable to reader")
        connection.execute("grant select on all tables in schema structable to reader")
    with connect(replaced(url, user="reader", password="sEcReT-pass")) as storage:
        assert storage.table("t").read((1,)) is not None
        assert len(list(storage.table("t").scan_index("s", "a"))) == 1
        assert storage.run(lambda tx: tx.table("t").count(), read_only=True) == 1
        assert storage.admin.get_specification("t").indexes == ("s", "n")
        writes: list[Callable[[], None]] = [
            lambda: storage.table("t").upsert({"k": 2}),
            lambda: storage.admin.create(TableSpecification("u", [Field.int("k")], ["k"])),
            lambda: storage.admin.create_or_update(WIDER),
            lambda: storage.admin.drop("t"),
        ]
        for write in writes:  # fmt: skip
            began = time.monotonic()
            with pytest.raises(StorageUnavailableError, match="lacks a privilege"):
                write()
            assert time.monotonic() - began < PROMPT
        assert storage.table("t").count() == 1
    server.stop()
    assert "refused" in refusal(url)


def test_not_postgresql_at_the_port(postgresql_url: str) -> None:
    """Another service that answers, or closes, is an error at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.recv(1000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert "cannot connect" in refusal(replaced(postgresql_url, host=f"127.0.0.1:{port}", password="sEcReT"))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_server_too_old(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server before 14 is refused, with its version."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda _: 130_014))
    assert "13.14" in refusal(postgresql_url)
    assert "14" in refusal(postgresql_url)


SETTINGS = [
    "standard_conforming_strings = off",
    "default_transaction_read_only = on",
    "default_transaction_deferrable = on",
    "default_transaction_isolation = 'serializable'",
    "bytea_output = escape",
    "datestyle = 'German'",
    "timezone = 'Asia/Kathmandu'",
    "extra_float_digits = -15",
    "client_encoding = 'LATIN1'",
    "search_path = 'nowhere'",
]


def test_settings_of_the_role(postgresql_server: Server) -> None:
    """Under any settings of a role, strings, times and numbers come back unchanged."""
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        for setting in SETTINGS:
            connection.execute(f"alter role {ROLE} set {setting}".encode())
    row: dict[str, Value] = {
        "k": "a\\'b",
        "p": b"\\\0'",
        "f": 0.1 + 0.2,
        "d": dt.date(2020, 2, 1),
        "t": dt.datetime(2020, 2, 1, 3, tzinfo=dt.UTC),
    }
    fields = [Field.string("k"), Field.bytes("p"), Field.double("f"), Field.date("d"), Field.timestamp("t")]
    with connect(f"{postgresql_server.conninfo}?schema=a%5C%27b") as storage:
        storage.admin.create(TableSpecification("t", fields, ["k"], ["p"]))
        storage.table("t").upsert(row)
        same: Filter = reduce(operator.and_, [col(name) == value for name, value in row.items()])
        assert list(storage.table("t").scan(where=same)) == [row]
        with storage.plan_scan("t", where=same) as plan:
            assert [
                one for split in plan.splits for batch in storage.read_split(split) for one in batch.to_pylist()
            ] == [row]
        storage.admin.create_or_update(TableSpecification("t", [*fields, Field.int("n")], ["k"], ["p", "n"]))
        with storage.transaction(Isolation.SERIALIZABLE, read_only=True) as tx:
            assert tx.table("t").count() == 1


def test_durable_under_any_setting_of_the_role(start_postgresql: StartServer) -> None:
    """A commit that returned survives a crash of the server, even if the role has `synchronous_commit` off."""
    server = start_postgresql(wal_writer_delay="10s")
    with psycopg.connect(server.superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"alter role {ROLE} set synchronous_commit = off".encode())
    with connect(server.url("s")) as storage:
        storage.admin.create(TABLE)
        for key in range(20):
            storage.table("t").upsert({"k": key})
        server.kill()
        server.start()
        assert storage.table("t").count() == 20


def test_database_of_another_encoding(postgresql_server: Server) -> None:
    """It could not store all text, and is refused at once."""
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        connection.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
    assert "has the encoding LATIN1" in refusal(replaced(postgresql_server.url("s"), path="/latin"))


def test_names_differ_by_case_in_turkish_too(postgresql_server: Server) -> None:
    """The lower case of I is another letter there; names belong to no language."""
    with psycopg.connect(postgresql_server.superuser_conninfo, autocommit=True) as connection:
        connection.execute(
            f"create database turkish locale_provider icu icu_locale 'tr' locale 'C' encoding 'UTF8' "
            f"template template0 owner {ROLE}".encode()
        )
    with connect(replaced(postgresql_server.url("s"), path="/turkish")) as storage:
        storage.admin.create(TableSpecification("TITLE", TABLE.fields, ["k"]))
        with pytest.raises(InvalidSpecificationError, match="TITLE"):
            storage.admin.create(TableSpecification("title", TABLE.fields, ["k"]))
