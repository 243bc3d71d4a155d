"""Merges on PostgreSQL: what the format says of them, lost connections, waiting, and hot keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.binding import TableBinding
from structable.spi import (
    CommitOutcomeUnknownError,
    DataCorruptionError,
    Field,
    FieldSizeLimitError,
    InvalidFieldError,
    RowKind,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    UnsupportedOperationError,
    Value,
    WriteMode,
    connect,
)
from structable.spi.authors import MAX_ROW_SIZE
from structable.testing.conformance.merge_case import run_job
from tests.waiting import until

from .support.proxy import COMMIT, Cut, Message, Proxy, statement
from .support.shared import Schema
from .test_faults import waiting

PLAIN = TableSpecification("plain", [Field.int("k"), Field.int("n")], ["k"])
SUMS = TableSpecification(
    "t",
    [Field.int("k"), Field.long("n"), Field.string("list")],
    ["k"],
    options={
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.list.aggregate-function": "listagg",
    },
)
BAG = TableSpecification("bag", [Field.int("n")], options={"write-mode": "change-log"})


@pytest.fixture
def direct(postgresql_url: str) -> Iterator[Storage]:
    """Connect past the proxy."""
    with connect(postgresql_url) as storage:
        storage.admin.create(SUMS)
        storage.table("t").upsert({"k": 1, "n": 0})
        yield storage


@pytest.fixture
def storage(postgresql_url: str, proxy: Proxy, direct: Storage) -> Iterator[Storage]:
    with connect(proxy.url(postgresql_url)) as storage:
        assert storage.table("t").count() == 1
        yield storage


def sums(keys: list[int]) -> pa.RecordBatch:
    """Return rows that add 1 each."""
    columns: list[pa.Array[Any]] = [pa.array(keys, pa.int32()), pa.array([1] * len(keys), pa.int64())]
    return pa.record_batch(columns, ["k", "n"])


def format_of(schema: Schema) -> int:
    with psycopg.connect(schema.conninfo) as connection:
        row = connection.execute(f'select version from "{schema.name}"._structable_format').fetchone()
    assert row is not None
    return int(row[0])


def test_format_rises_with_the_first_table_of_a_type(postgresql_url: str, postgresql_schema: Schema) -> None:
    """Older software refuses a schema once it has such a table; others it opens as before."""
    with connect(postgresql_url) as storage:
        storage.admin.create(PLAIN.evolve(options={"user.note": "x"}))
        assert format_of(postgresql_schema) == 1
        storage.admin.create(BAG)
        assert format_of(postgresql_schema) == 2
    with connect(postgresql_url, read_only=True) as storage:
        assert storage.admin.get_specification("bag") == BAG
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f'update "{postgresql_schema.name}"._structable_format set version = 3')
    with pytest.raises(DataCorruptionError, match="newer"):
        connect(postgresql_url)


def test_options_of_users_change(postgresql_url: str) -> None:
    """`create_or_update` changes options that mean nothing, and keeps the others."""
    with connect(postgresql_url) as storage:
        storage.admin.create(SUMS)
        storage.admin.create_or_update(SUMS.evolve(options={**SUMS.options, "user.note": "x"}))
    with connect(postgresql_url) as storage:
        assert storage.admin.get_specification("t").options == {**SUMS.options, "user.note": "x"}
        storage.table("t").upsert({"k": 1, "n": 1})
        storage.table("t").upsert({"k": 1, "n": 1})
        assert storage.table("t").read((1,)) == {"k": 1, "n": 2, "list": None}


def test_replace_after_an_increment_of_an_absent_row(postgresql_url: str) -> None:
    """A row that a transaction knows to be absent is there after an increment, or a merge, and a replace."""
    with connect(postgresql_url) as storage:
        storage.admin.create(PLAIN)
        storage.admin.create(SUMS)
        with storage.transaction() as transaction:
            plain, sums = transaction.table("plain"), transaction.table("t")
            assert plain.read((1,)) is sums.read((1,)) is None
            plain.increment((1,), "n")
            plain.replace({"k": 1, "n": 7})
            sums.upsert({"k": 1, "n": 1})
            sums.replace({"k": 1, "n": 7})
        assert storage.table("plain").read((1,)) == {"k": 1, "n": 7}
        assert storage.table("t").read((1,)) == {"k": 1, "n": 7, "list": None}


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("many", [False, True])
def test_merge_lost_around_its_commit(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut, many: bool) -> None:
    """A merge of the auto-commit view whose answer was lost is looked up, and counts once either way."""
    trap = proxy.trap(COMMIT, cut)
    if many:
        storage.table("t").upsert_many([{"k": key, "n": 1} for key in range(9)])
    else:
        storage.table("t").upsert({"k": 1, "n": 1})
    trap.wait()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 1


def test_merge_that_cannot_be_looked_up(
    storage: Storage, direct: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not answer, the outcome is unknown, and the merge is not repeated."""
    monkeypatch.setattr("structable.backends.postgresql.driver.commit_outcome._SECONDS", 0.5)
    trap = proxy.trap(COMMIT, Cut.AFTER)
    proxy.refuse()
    with pytest.raises(CommitOutcomeUnknownError):
        storage.table("t").upsert({"k": 1, "n": 1})
    trap.wait()
    proxy.accept()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 1


@pytest.mark.parametrize("cut", Cut)
def test_merge_job_lost_around_its_commit(storage: Storage, direct: Storage, proxy: Proxy, cut: Cut) -> None:
    """A job whose commit was lost is merged once, when it is committed again."""
    job = storage.begin_write("t", mode=WriteMode.UPSERT, job_id="lost")
    rows = sums([1, 2, 1])
    staged = [storage.stage(job, 0, 0, [rows])]
    trap = proxy.trap(COMMIT, cut)
    try:
        storage.commit_write(job, staged)
    except StorageUnavailableError:
        storage.commit_write(job, staged)
    trap.wait()
    assert not storage.commit_write(job, staged)
    assert [(row["k"], row["n"]) for row in direct.table("t").scan()] == [(1, 2), (2, 1)]


def test_merge_waits_for_another_writer(direct: Storage, postgresql_schema: Schema, postgresql_url: str) -> None:
    """A merge of the auto-commit view waits for a writer of its row, and adds to what that writer made."""
    with (
        connect(postgresql_url, application_name="waits") as other,
        psycopg.connect(postgresql_schema.conninfo) as writer,
        ThreadPoolExecutor() as threads,
    ):
        table = other.table("t")
        writer.execute(f'update "{postgresql_schema.name}".t set n = 10 where k = 1')
        merged = threads.submit(table.upsert, {"k": 1, "n": 1})
        until(lambda: waiting(postgresql_schema, "waits"))
        writer.commit()
        merged.result()
        row = table.read((1,))
        assert row is not None
        assert row["n"] == 11


def test_hot_keys_of_a_call(direct: Storage) -> None:
    """Thousands of rows of few keys in one call, while others merge too, count once each."""
    table = direct.table("t")
    rows = [{"k": number % 2, "n": 1, "list": None} for number in range(4_000)]
    threads = [threading.Thread(target=table.upsert_many, args=(rows,)) for _ in range(3)]
    for one in threads:
        one.start()
    for _ in range(50):
        table.upsert({"k": 1, "n": 1})
    for one in threads:
        one.join()
    assert [(row["k"], row["n"]) for row in table.scan()] == [(0, 6_000), (1, 6_050)]


def test_hot_key_of_a_job(direct: Storage) -> None:
    """100,000 rows of one key beside others in one job count once each, in their order."""
    number = 100_000
    rows = sums([1 if place % 10 else place for place in range(number)])
    job = direct.begin_write("t", mode=WriteMode.UPSERT, job_id="hot")
    direct.commit_write(job, [direct.stage(job, 0, 0, [rows]), direct.stage(job, 1, 0, [rows])])
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == 2 * 90_000
    assert direct.table("t").count() == 10_001


def test_hot_key_of_a_job_that_others_insert(storage: Storage, direct: Storage, proxy: Proxy) -> None:
    """A row that another inserts and changes while a job merges many rows of its key loses nothing."""
    job = storage.begin_write("t", mode=WriteMode.UPSERT, job_id="hot")
    staged = [storage.stage(job, 0, 0, [sums([5] * 20)])]
    amounts = {"declare _ranked": 100, "close _ranked": 1_000}

    def meanwhile(message: Message) -> bool:
        found = [text for text in amounts if message.kind == b"E" and message.text.startswith(text)]
        for text in found:
            direct.table("t").upsert({"k": 5, "n": amounts.pop(text)})
        return False

    proxy.trap(meanwhile, Cut.BEFORE)
    storage.commit_write(job, staged)
    assert amounts == {}
    row = direct.table("t").read((5,))
    assert row is not None
    assert row["n"] == 1_120


def test_dropped_retract_after_an_add_in_a_job(postgresql_url: str) -> None:
    """A retract that the table ignores makes no difference to the changes before it, in a job too."""
    with connect(postgresql_url) as storage:
        storage.admin.create(PLAIN.evolve(options={"ignore-delete": "true"}))
        table = storage.table("plain")
        table.upsert({"k": 1, "n": 1})
        run_job(
            storage,
            "plain",
            [(RowKind.of(kind), {"k": key, "n": n}) for kind, key, n in [("+U", 1, 2), ("+I", 2, 1), ("-D", 1, 2)]],
        )
        assert [(row["k"], row["n"]) for row in table.scan()] == [(1, 2), (2, 1)]


def test_row_that_others_insert_between_the_changes_of_a_call(
    direct: Storage, postgresql_url: str, proxy: Proxy
) -> None:
    """A delete and an add of one key in one call come before what another adds, or after it, never around it."""
    direct.admin.create(
        TableSpecification(
            "last",
            [Field.int("k"), Field.int("a"), Field.int("b")],
            ["k"],
            options={"merge-engine": "aggregation", "remove-record-on-delete": "true"},
        )
    )
    others = [{"k": 1, "a": 1, "b": 1}]

    def meanwhile(message: Message) -> bool:
        if others and message.kind == b"E" and "insert into" in message.text:
            direct.table("last").upsert(others.pop())
        return False

    proxy.trap(meanwhile, Cut.BEFORE)
    with connect(proxy.url(postgresql_url)) as storage:
        storage.table("last").apply_changes([("-D", {"k": 1}), ("+I", {"k": 1, "a": 2})])
    assert others == []
    assert direct.table("last").read((1,)) in ({"k": 1, "a": 2, "b": None}, {"k": 1, "a": 1, "b": 1})


def test_lists_over_the_limits(postgresql_url: str) -> None:
    """A list that makes its row or its index too large is refused by calls and jobs, and nothing is written."""
    indexed = SUMS.evolve(name="indexed", indexes=["list"])
    with connect(postgresql_url) as storage:
        for spec, size in ((SUMS, 4_500_000), (indexed, 1_200)):
            storage.admin.create(spec)
            table = storage.table(spec.name)
            table.upsert({"k": 1, "list": "x" * size})
            with pytest.raises(FieldSizeLimitError):
                table.upsert({"k": 1, "list": "y" * size})
            with pytest.raises(FieldSizeLimitError), storage.transaction() as transaction:
                transaction.table(spec.name).upsert({"k": 1, "list": "y" * size})
            job = storage.begin_write(spec.name, mode=WriteMode.UPSERT, job_id=spec.name)
            columns: list[pa.Array[Any]] = [pa.array([1, 2], pa.int32()), pa.array(["y" * size, "z"])]
            rows = pa.record_batch(columns, ["k", "list"])
            with pytest.raises(FieldSizeLimitError):
                storage.commit_write(job, [storage.stage(job, 0, 0, [rows])])
            assert [row["list"] for row in table.scan()] == ["x" * size]


def test_flag_of_a_soft_delete_over_the_limit(postgresql_url: str) -> None:
    """A row that is as large as a row may be, and does not name the flag, is refused by calls and jobs."""
    spec = TableSpecification(
        "t",
        [Field.int("k"), Field.string("s"), Field.boolean("gone")],
        ["k"],
        options={"soft-delete.field": "gone"},
    )
    most: dict[str, Value] = {"k": 1, "s": "x" * (MAX_ROW_SIZE - 4)}
    columns: list[pa.Array[Any]] = [pa.array([1], pa.int32()), pa.array([str(most["s"])])]
    with connect(postgresql_url) as storage:
        storage.admin.create(spec)
        table = storage.table("t")
        for write in (table.upsert, lambda row: table.apply_changes([("-D", row)])):
            with pytest.raises(FieldSizeLimitError):
                write(most)
        job = storage.begin_write("t", mode=WriteMode.UPSERT, job_id="large")
        with pytest.raises(FieldSizeLimitError):
            storage.commit_write(job, [storage.stage(job, 0, 0, [pa.record_batch(columns, ["k", "s"])])])
        assert table.count() == 0


def test_statement_lost_in_a_merge(storage: Storage, direct: Storage, proxy: Proxy) -> None:
    """A merge whose connection breaks before its commit is repeated, and counts once."""
    for cut in Cut:
        trap = proxy.trap(statement("insert into"), cut)
        storage.table("t").apply_changes([("+U", {"k": 1, "n": 1}), ("-U", {"k": 1, "n": 2})])
        trap.wait()
    row = direct.table("t").read((1,))
    assert row is not None
    assert row["n"] == -2


@pytest.mark.parametrize("now", [SUMS, BAG.evolve(name="t")], ids=["merging", "keyless"])
def test_table_of_another_type(postgresql_url: str, now: TableSpecification) -> None:
    """A process that knows a plain table under the name of one of another type writes what its verb means there."""
    plain = TableSpecification("t", SUMS.fields, ["k"])
    with connect(postgresql_url) as storage, connect(postgresql_url) as old:
        storage.admin.create(plain)
        old.table("t").upsert({"k": 1, "n": 1})
        storage.admin.drop("t")
        storage.admin.create(now)
        if now is SUMS:
            for _ in range(2):
                old.table("t").upsert({"k": 1, "n": 1})
            assert [row["n"] for row in storage.table("t").scan()] == [2]
        else:
            with pytest.raises((UnsupportedOperationError, InvalidFieldError)):
                old.table("t").upsert({"k": 1, "n": 1})
            assert storage.table("t").count() == 0


def test_index_of_a_bag_that_is_added_after_staging(postgresql_url: str) -> None:
    """Rows staged before an index was made are checked against its limits."""
    spec = TableSpecification("bag", [Field.string("s")], options={"write-mode": "change-log"})
    with connect(postgresql_url) as storage:
        storage.admin.create(spec)
        job = storage.begin_write("bag", mode=WriteMode.INSERT, job_id="j")
        columns: list[pa.Array[Any]] = [pa.array(["x", "y" * 3_000])]
        staged = [storage.stage(job, 0, 0, [pa.record_batch(columns, ["s"])])]
        storage.admin.create_or_update(spec.evolve(indexes=["s"]))
        with pytest.raises(FieldSizeLimitError):
            storage.commit_write(job, staged)
        assert storage.table("bag").count() == 0


def test_merge_of_a_table_just_forgotten_meets_a_deletion(
    direct: Storage, postgresql_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that begins while an admin call of another thread lets the table be looked up again is not lost."""
    known, forgotten = Catalog.known, threading.local()

    def forgetful(catalog: Catalog, name: str) -> TableBinding | None:
        return None if forgotten.__dict__.pop("once", False) else known(catalog, name)

    monkeypatch.setattr(Catalog, "known", forgetful)
    name = f"merging {postgresql_schema.name[-8:]}"
    with connect(postgresql_schema.url, application_name=name, pool_size=1) as storage, ThreadPoolExecutor(1) as pool:
        table = storage.table("t")

        def merge() -> None:
            forgotten.once = True
            table.upsert({"k": 1, "n": 1})

        for _ in range(3):  # from then on the connection has prepared the statement
            pool.submit(merge).result()
        with direct.transaction() as holder:
            holder.table("t").delete((1,))
            assert holder.table("t").count() == 0  # it holds the row from here on
            merging = pool.submit(merge)
            until(lambda: waiting(postgresql_schema, name))
        merging.result()
        assert table.read((1,), ["n"]) == {"k": 1, "n": 1}
