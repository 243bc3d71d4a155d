"""Changes of PostgreSQL tables that are in use, by several connections and processes at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import pq

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import Values
from structable.spi import (
    Field,
    FieldSizeLimitError,
    FieldType,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionConflictError,
    connect,
)
from tests.waiting import PROMPT, until

from .support.shared import Schema

TIMEOUT = 30.0


def table(kind: FieldType = FieldType.INT, *more: Field, indexes: tuple[str, ...] = ()) -> TableSpecification:
    """Return the table that the tests change."""
    return TableSpecification("t", [Field.string("k"), Field("v", kind), Field.string("s"), *more], ["k"], indexes)


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        yield storage


@pytest.fixture
def other(postgresql_url: str) -> Iterator[Storage]:
    """Connect as another process would, with a cache of its own, and a short `ddl_timeout`."""
    with connect(postgresql_url, ddl_timeout=0.5) as storage:
        yield storage


@pytest.fixture
def direct(postgresql_schema: Schema) -> Iterator[psycopg.Connection]:
    """Connect without structable."""
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute("select set_config('search_path', %s, false)", [f'"{postgresql_schema.name}"'])
        yield connection


@contextmanager
def holding(storage: Storage, *, write: bool = False) -> Iterator[None]:
    """Hold a transaction open that has used the table."""
    transaction = storage.transaction()
    if write:
        transaction.table("t").upsert({"k": "held", "v": 1})
    assert transaction.table("t").count() >= 0
    try:
        yield
    finally:
        transaction.rollback()


def index_state(direct: psycopg.Connection) -> dict[str, bool]:
    """Return the indexes of the table besides the primary key, and whether each is valid."""
    rows = direct.execute(
        "select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid "
        "where i.indrelid = to_regclass('t') and not i.indisprimary"
    ).fetchall()
    return {name.rpartition("_")[2]: valid for name, valid in rows}


WIDENINGS = [
    (FieldType.BYTE, FieldType.SHORT),
    (FieldType.SHORT, FieldType.INT),
    (FieldType.INT, FieldType.LONG),
    (FieldType.FLOAT, FieldType.DOUBLE),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDENINGS)
@pytest.mark.parametrize("known", ["before", "after", "never"])
def test_older_snapshot_never_sees_a_rewritten_table_empty(
    storage: Storage, other: Storage, narrow: FieldType, wide: FieldType, known: str
) -> None:
    """A snapshot taken before a widening sees the old rows or gets a conflict, whenever it first meets the table."""
    storage.admin.create(table(narrow))
    storage.admin.create(TableSpecification("u", [Field.int("k")], ["k"]))
    storage.table("t").upsert_many([{"k": str(number), "v": 1} for number in range(10)])
    if known == "before":
        assert other.table("t").read(("1",)) is not None
    transaction = other.transaction()
    transaction.table("u").count()  # the snapshot
    storage.admin.create_or_update(table(wide))
    if known == "after":
        assert other.table("t").count() == 10  # the new version is cached
    try:
        assert transaction.table("t").count() == 10
        assert transaction.table("t").read(("1",)) is not None
    except TransactionConflictError:
        pass
    finally:
        transaction.rollback()
    row = other.table("t").read(("1",))
    assert row is not None
    assert row["v"] == 1


def test_reads_during_widenings_are_never_empty(storage: Storage, other: Storage) -> None:
    """Auto-commit reads, prepared ones, transactions and scans go on while a table is rewritten again and again."""
    specs = [table(kind) for kind in (FieldType.SHORT, FieldType.INT, FieldType.LONG)]
    stop = threading.Event()

    def read_on(kind: int) -> int:
        done = 0
        while not stop.is_set():
            match kind:
                case 0:
                    row = other.table("t").read(("7",))
                    assert row is not None
                    assert row["v"] == 7
                case 1:
                    assert other.run(lambda tx: tx.table("t").count(), read_only=True, max_attempts=100) == 50
                case _:
                    assert other.run(lambda tx: len(list(tx.table("t").scan())), max_attempts=100) == 50
            done += 1
        return done

    for _ in range(4):
        storage.admin.create(specs[0])
        storage.table("t").upsert_many([{"k": str(number), "v": number} for number in range(50)])
        stop.clear()
        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read_on, kind) for kind in range(3)]
            try:
                for spec in specs[1:]:
                    storage.admin.create_or_update(spec)
            finally:
                stop.set()
            assert all(reader.result() > 0 for reader in readers)
        storage.admin.drop("t")


def test_statement_that_waits_for_the_rewrite(storage: Storage, other: Storage, direct: psycopg.Connection) -> None:
    """A read that waited for the lock of a widening reads the new table; so does its whole transaction."""
    storage.admin.create(table())
    storage.table("t").upsert({"k": "a", "v": 1})
    for _ in range(6):  # prepared, and with a plan that is kept
        assert other.table("t").read(("a",)) is not None
    for action in (
        lambda: other.table("t").read(("a",)),
        lambda: other.run(lambda tx: tx.table("t").read(("a",))),
    ):
        direct.execute("begin")
        direct.execute("lock table t in access exclusive mode")
        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(action)
            until(
                lambda: bool(
                    direct.execute("select from pg_locks where relation = 't'::regclass and not granted").fetchall()
                )
            )
            token = direct.execute(
                "select proname from pg_proc where pronamespace = current_schema()::regnamespace"
            ).fetchall()
            (name,) = token[0]
            number, version = (int(part, 16) for part in name.removeprefix("_version_").split("_"))
            # As the admin call does it, with the lock held until the reader waits for it.
            direct.execute("alter table t alter column v type bigint")
            direct.execute(f"drop function {name}()")
            direct.execute(
                f"create function _version_{number:x}_{version + 1:x}() returns boolean language sql immutable "
                "as 'select true'"
            )
            direct.execute(
                "update _structable_tables set version = version + 1, changed_by = pg_current_xact_id(), "
                "specification = replace(specification, '\"int\"', '\"long\"')"
            )
            direct.execute("commit")
            row = reader.result(TIMEOUT)
        assert row is not None
        assert row["v"] == 1


def test_waiting_change_does_not_stop_readers(storage: Storage, postgresql_url: str) -> None:
    """While a change waits for an open transaction, others read: its attempts at the lock are short."""
    storage.admin.create(table())
    storage.table("t").upsert({"k": "a"})
    longest = 0.0
    with connect(postgresql_url, ddl_timeout=4) as patient, holding(storage), ThreadPoolExecutor(1) as pool:
        change = pool.submit(patient.admin.create_or_update, table(FieldType.LONG))
        while not change.done():
            began = time.monotonic()
            assert storage.table("t").read(("a",)) is not None
            longest = max(longest, time.monotonic() - began)
        with pytest.raises(StorageUnavailableError, match="ddl_timeout"):
            change.result()
    assert longest < 3


CHANGES: dict[str, Callable[[Storage], None]] = {
    "add": lambda storage: storage.admin.create_or_update(table(FieldType.INT, Field.int("n"))),
    "widen": lambda storage: storage.admin.create_or_update(table(FieldType.LONG)),
    "index": lambda storage: storage.admin.create_or_update(table(indexes=("s",))),
    "index of a new field": lambda storage: storage.admin.create_or_update(
        table(FieldType.INT, Field.string("n"), indexes=("n",))
    ),
    "drop": lambda storage: storage.admin.drop("t"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("write", [False, True], ids=["reader", "writer"])
def test_change_that_waited_too_long_has_changed_nothing(
    storage: Storage, other: Storage, direct: psycopg.Connection, change: str, write: bool
) -> None:
    """After `ddl_timeout` the table is as before, accepts large values, and the same call succeeds later."""
    storage.admin.create(table())
    with holding(storage, write=write):
        began = time.monotonic()
        with pytest.raises(StorageUnavailableError, match="ddl_timeout"):
            CHANGES[change](other)
        assert time.monotonic() - began < PROMPT
        assert storage.admin.get_specification("t") == table()
        assert other.table("t").specification == table()
        assert index_state(direct) == {}
        other.table("t").upsert({"k": "b", "s": "x" * 3_000})
    other.table("t").upsert({"k": "b", "s": "short"})
    # The build of an index waits for every transaction of the database, those of other tests too.
    CHANGES[change](storage)
    assert other.admin.exists("t") is (change != "drop")


def test_create_never_waits(storage: Storage, other: Storage) -> None:
    """Creating a table waits for no open transaction, not even one that reads the catalog."""
    storage.admin.create(table())
    with holding(storage, write=True), storage.transaction() as transaction:
        transaction.table("t").count()
        other.admin.create(TableSpecification("u", [Field.int("k")], ["k"]))
        other.admin.create_or_update(TableSpecification("w", [Field.int("k")], ["k"]))
    assert storage.admin.list() == ["t", "u", "w"]


def test_catalog_is_read_while_a_change_waits(storage: Storage, other: Storage, postgresql_url: str) -> None:
    """A change that waits for a table holds no lock on the catalog."""
    storage.admin.create(table())
    with holding(storage), connect(postgresql_url, ddl_timeout=2) as patient, ThreadPoolExecutor(1) as pool:
        change = pool.submit(patient.admin.create_or_update, table(FieldType.LONG))
        done = 0
        while not change.done():
            assert other.admin.list()[:1] == ["t"]
            other.admin.create_or_update(table())  # as a release of before does when it starts
            other.admin.create(TableSpecification(f"u{done}", [Field.int("k")], ["k"]))
            done += 1
        with pytest.raises(StorageUnavailableError):
            change.result()
    assert done > 1


def test_row_too_large_for_a_new_index(storage: Storage, direct: psycopg.Connection) -> None:
    """The refusal names a row whose value is too large, and nothing is left of the attempt."""
    storage.admin.create(table())
    rows = storage.table("t")
    for key, size in (("a", 2_001), ("k" * 600, 1_901), ("a", 100_000)):
        rows.upsert({"k": key, "s": "x" * size})
        with pytest.raises(FieldSizeLimitError):
            storage.admin.create_or_update(table(indexes=("s",)))
        assert storage.admin.get_specification("t") == table()
        assert index_state(direct) == {}
        rows.upsert({"k": "b", "s": "y" * 5_000})  # no limit is left behind
        rows.delete(("b",))
        rows.delete((key,))
    storage.admin.create_or_update(table(indexes=("s",)))


def test_values_written_during_the_build_fit(storage: Storage, other: Storage) -> None:
    """Writers of values of all sizes continue while an index is built: refusals are our own errors."""
    stop = threading.Event()
    refusals: list[Exception] = []

    def write(worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                other.table("t").upsert({"k": f"{worker}", "s": "x" * (1_000 if number % 2 else 2_600)})
            except FieldSizeLimitError as refusal:
                refusals.append(refusal)

    storage.admin.create(table())
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, worker) for worker in range(2)]
        try:
            for _ in range(10):
                try:
                    storage.admin.create_or_update(table(indexes=("s",)))
                except FieldSizeLimitError:
                    continue
                storage.admin.drop_index("t", "s")
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert storage.admin.get_specification("t") == table()


@pytest.mark.parametrize("same", [True, False], ids=["same change", "different changes"])
def test_two_processes_change_one_table(storage: Storage, postgresql_url: str, same: bool) -> None:
    """Calls on one table take turns: each finds the result of the one before."""
    wider = [
        table(FieldType.INT, Field.int("a"), indexes=("s",)),
        table(FieldType.INT, Field.int("a"), Field.int("b"), indexes=("s", "a")),
        table(FieldType.LONG, Field.int("a"), Field.int("b"), indexes=("s", "a")),
    ]
    for _ in range(3):
        storage.admin.create(table())
        storage.table("t").upsert_many([{"k": str(number), "v": 1, "s": "a"} for number in range(100)])
        with connect(postgresql_url) as second, ThreadPoolExecutor(4) as pool:
            calls = [
                pool.submit(one.admin.create_or_update, wider[-1] if same else wider[place])
                for place, one in enumerate((storage, second, storage))
            ]
            for call in calls:
                call.result()  # a call that comes late finds that the table has more, and keeps it
        assert storage.admin.get_specification("t") == wider[-1]
        assert len(list(storage.table("t").scan_index("s", "a"))) == 100
        storage.admin.drop("t")


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("target", ["old field", "new field"])
def test_killed_at_any_step(
    storage: Storage,
    direct: psycopg.Connection,
    postgresql_url: str,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    target: str,
) -> None:
    """The connection of an admin call ends before its nth round trip: the table works, and the next call finishes."""
    wanted = table(FieldType.LONG, Field.string("n"), indexes=("s",) if target == "old field" else ("n",))
    storage.admin.create(table())
    storage.table("t").upsert_many([{"k": str(number), "v": 1, "s": "a"} for number in range(20)])
    from structable.backends.postgresql.driver.connection import ServerConnection

    count = 0
    pipeline = ServerConnection.pipeline

    def dying(self: ServerConnection, calls: object) -> object:
        nonlocal count
        count += 1
        if count == step:
            direct.execute("select pg_terminate_backend(%s, 10000)", [self.process])
        return pipeline(self, calls)  # type: ignore[arg-type]

    with connect(postgresql_url) as dead:
        monkeypatch.setattr(ServerConnection, "pipeline", dying)
        try:
            dead.admin.create_or_update(wanted)
        except StorageUnavailableError:
            assert storage.admin.get_specification("t") == table()
        finally:
            monkeypatch.undo()
    storage.table("t").upsert({"k": "0", "v": 2})
    assert storage.table("t").count() == 20
    storage.admin.create_or_update(wanted)
    assert storage.admin.get_specification("t") == wanted
    assert set(index_state(direct).values()) == {True}
    assert len(list(storage.table("t").scan_index("s", "a"))) == 20 if target == "old field" else True


def test_invalid_index_is_built_again(storage: Storage, direct: psycopg.Connection) -> None:
    """An index that an interrupted build left is dropped and built anew; it is not used before."""
    storage.admin.create(table())
    storage.table("t").upsert({"k": "a", "s": "x"})
    (number,) = direct.execute("select id from _structable_tables").fetchone() or (0,)
    storage.table("t").upsert({"k": "b", "s": "x"})
    with pytest.raises(psycopg.errors.UniqueViolation):
        direct.execute(f"create unique index concurrently _i{number:x}_s on t (s)")
    assert index_state(direct) == {"s": False}
    storage.admin.create_or_update(table(indexes=("s",)))
    assert index_state(direct) == {"s": True}
    assert [row.key for row in storage.table("t").scan_index("s", "x")] == [("a",), ("b",)]


def test_added_column_rewrites_nothing(storage: Storage, direct: psycopg.Connection) -> None:
    """New fields and BYTE to SHORT leave the table's file as it is."""
    storage.admin.create(table(FieldType.BYTE))
    before = direct.execute("select pg_relation_filenode('t')").fetchone()
    storage.admin.create_or_update(table(FieldType.SHORT, Field.decimal("d", 5, 2)))
    assert direct.execute("select pg_relation_filenode('t')").fetchone() == before


def test_statement_timeout_does_not_end_a_build(postgresql_url: str) -> None:
    """`statement_timeout` is for operations; the build of an index may take longer."""
    with connect(postgresql_url, statement_timeout=0.2) as storage:
        storage.admin.create(table())
        storage.table("t").upsert_many([{"k": str(number), "s": str(number)} for number in range(5_000)])
        with psycopg.connect(postgresql_url.partition("?")[0]) as blocker:
            blocker.execute("select pg_current_xact_id()")
            with ThreadPoolExecutor(1) as pool:
                change = pool.submit(storage.admin.create_or_update, table(FieldType.LONG, indexes=("s",)))
                with pytest.raises(TimeoutError):
                    change.result(1)
                blocker.rollback()
                change.result()
        assert storage.table("t").specification.indexes == ("s",)


def test_interrupted_call_leaves_no_lock(storage: Storage, other: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin call that is interrupted as it has locked its table leaves the lock to no connection of the pool."""
    rows = ServerConnection.rows

    def interrupted(connection: ServerConnection, result: pq.abc.PGresult) -> list[Values]:
        found = rows(connection, result)
        if result.fname(0) == b"pg_try_advisory_lock":
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ServerConnection, "rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            storage.admin.create(table())
    other.admin.create(table())
    assert storage.admin.list() == ["t"]
