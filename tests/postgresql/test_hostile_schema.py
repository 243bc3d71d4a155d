"""Functions, operators, types and tables that other users put on the search path never run."""

from __future__ import annotations

import datetime as dt
import os
import random
import uuid
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from structable.cli.commands.doctor import examine
from structable.spi import (
    Field,
    FindingLevel,
    InvalidFieldError,
    Isolation,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    RowKind,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    Transaction,
    UnsupportedOperationError,
    WriteMode,
    col,
    connect,
    read_split,
)
from structable.spi.arrow import arrow_schema
from structable.testing.conformance.chances import random_row, random_specification
from structable.testing.conformance.merge_case import run_job
from structable.testing.conformance.samples import Record
from structable.testing.conformance.type_chances import random_kind, random_type

from .support.hostile import plant, sprung
from .support.proxy import COMMIT, Cut, Proxy
from .support.shared import Schema

TABLE = TableSpecification(
    "t",
    [Field.string("k"), Field.long("n"), Field.string("s"), Field.bytes("b"), Field.decimal("d", 9, 2),
     Field.byte("tiny"), Field.date("day"), Field.timestamp("at")],
    ["k", "n"],
    ["s"],
)  # fmt: skip
AT = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def hostile(postgresql_conninfo: str) -> Iterator[str]:
    """Return the name of a schema of traps."""
    schema = f"hostile_{uuid.uuid4().hex[:12]}"
    assert plant(postgresql_conninfo, schema) > 3_000
    try:
        yield schema
    finally:
        with psycopg.connect(postgresql_conninfo) as connection:
            connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))


@pytest.fixture(params=["options", "environment", "service"])
def url(
    request: pytest.FixtureRequest,
    hostile: str,
    postgresql_schema: Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Return a URL whose connections begin with the traps first on their search path.

    A role or a database may have it, too, which only a superuser could arrange.
    """
    path = f"-c search_path={hostile},public,pg_catalog"
    if request.param == "options":
        return f"{postgresql_schema.url}&options={quote(path)}"
    if request.param == "environment":
        monkeypatch.setenv("PGOPTIONS", path)
        return postgresql_schema.url
    services = tmp_path / "services"
    services.write_text(f"[hostile]\noptions={path}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    return f"{postgresql_schema.url}&service=hostile"


def test_unqualified_calls_meet_the_traps(postgresql_schema: Schema, hostile: str) -> None:
    """The other tests would notice a call of one."""
    options = f"-c search_path={hostile},pg_catalog"
    with psycopg.connect(postgresql_schema.conninfo, options=options, autocommit=True) as careless:
        for query in (
            "select 1 where 1 = 1",
            "select count(*)",
            "select 'a'::text",
            "select nullif('a', 'b')",
            "select pg_export_snapshot()",
            "select set_config('a.b', 'c', false)",
            "select from pg_type",
            "select '1'::regclass::oid <> 1",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="a trap was sprung"):
                careless.execute(query.encode())
        assert sprung(postgresql_schema.conninfo) == 1


def rows(count: int, size: int = 5) -> list[Record]:
    return [
        {"k": f"{number:05d}", "n": number, "s": f"s{number % 3}", "b": os.urandom(size), "d": Decimal("1.25"),
         "tiny": number % 100, "day": dt.date(2024, 1, 1), "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}
        for number in range(count)
    ]  # fmt: skip


def test_tables_and_their_changes(url: str, postgresql_conninfo: str) -> None:
    """Admin calls, all operations on rows, and calls for a whole store."""
    with connect(url) as storage:
        storage.admin.create(TABLE)
        for isolation in Isolation:
            storage.run(use, isolation=isolation)
        use(storage)
        wider = [*TABLE.fields[:5], Field.long("tiny"), *TABLE.fields[6:], Field.string("more")]
        storage.admin.create_or_update(TableSpecification("t", wider, TABLE.primary_key, ["s", "more", "b"]))
        use(storage)
        storage.admin.drop_index("t", "s")
        assert storage.admin.list() == ["t"]
        assert storage.admin.exists("t")
        assert storage.admin.get_specification("t").indexes == ("more", "b")
        assert not [one for one in examine(url) if one.level is FindingLevel.PROBLEM]
        storage.admin.drop("t")
        assert not sprung(postgresql_conninfo)


def use(tables: Storage | Transaction) -> None:
    table = tables.table("t")
    table.delete_all(Range.all())
    table.upsert_many(rows(300))
    table.upsert_many(rows(120))
    table.upsert({"k": "a", "n": 1, "s": "x"})
    table.replace({"k": "a", "n": 1, "s": "y"})
    table.insert({"k": "b", "n": 1, "b": b"c"})
    with pytest.raises(RecordExistsError):
        table.insert({"k": "b", "n": 1})
    table.update({"k": "b", "n": 1, "s": "z"})
    with pytest.raises(RecordNotFoundError):
        table.update({"k": "none", "n": 1})
    table.increment(("b", 1), "tiny", 2)
    assert table.compare_and_swap(("b", 1), "s", "z", "w")
    assert table.read(("b", 1), ["tiny"]) == {"k": "b", "n": 1, "tiny": 2}
    assert len(table.multi_read([("a", 1), ("b", 1), ("c", 1)])) == 2
    where = (col("s").startswith("s") | col("s").isin(["w"])) & ~col("b").is_null() & (col("d") >= Decimal(1))
    assert len(list(table.scan(Range.at_least(("00100",)), where=where, order_by="s", reverse=True))) == 200
    assert table.count([Range.prefix(("00001",)), Range.below(("00001", 5))], col("at") > AT) == 2
    assert len(list(table.multi_scan([Range.all()], limit=70))) == 70
    assert len(list(table.scan_index("s", "s1"))) == 100
    assert str(table.explain(where=col("s") == "s1"))
    assert table.update_many([{"k": "b", "n": 1, "b": b"c"}, {"k": "none", "n": 1, "b": b"c"}]) == [("none", 1)]
    assert table.update_many([{"k": "a", "n": 1, "s": "v"}, {"k": "b", "n": 1}], {"s": "new"}) == []
    assert table.update_many([{"k": "c", "n": 1}], {"day": AT.date()}) == []
    table.delete(("c", 1))
    assert table.update_all(Range.prefix(("00001",)), {"s": "new", "b": b"longer"}, where=col("n") == 1) == 1
    table.delete(("a", 1))
    assert table.delete_all(Range.all(), where=col("s") == "new") == 1


@pytest.mark.parametrize("size", [5, 5_000], ids=["columns", "rows"])
def test_plans_and_their_splits(url: str, postgresql_conninfo: str, size: int) -> None:
    """Splits are read by the storage and by processes with the URL alone."""
    with connect(url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many(rows(300, size))
        for where in (None, col("s") == "s1", (col("b") > b"") & (col("d") == Decimal("1.25")) & (col("at") > AT)):
            with storage.plan_scan("t", where=where, splits=2) as plan:
                expected = storage.table("t").count(where=where)
                assert sum(batch.num_rows for one in plan.splits for batch in storage.read_split(one)) == expected
                assert sum(batch.num_rows for one in plan.splits for batch in read_split(url, one)) == expected
        assert not sprung(postgresql_conninfo)


@pytest.mark.parametrize("mode", WriteMode)
def test_write_jobs(url: str, postgresql_conninfo: str, mode: WriteMode) -> None:
    """Jobs of all modes, failing ones too."""
    with connect(url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many(rows(20))
        names = TABLE.primary_key if mode is WriteMode.DELETE else TABLE.field_names
        batch = pa.RecordBatch.from_pylist(rows(30), arrow_schema(TABLE)).select(list(names))
        if mode is WriteMode.CHANGES:
            batch = batch.append_column("_change_type", pa.array(["+I"] * batch.num_rows))
        refused = {WriteMode.INSERT: RecordExistsError, WriteMode.UPDATE: RecordNotFoundError}.get(mode)
        job = storage.begin_write("t", mode=mode, job_id=f"{mode}")
        # Two partitions with the same rows: each key comes twice.
        parts = [batch, batch]
        if mode is WriteMode.PATCH:
            named = pa.array([b"\xdf"] * batch.num_rows, pa.binary())
            arms = ([arm] * batch.num_rows for arm in ("present", "absent"))
            parts = [batch.append_column("_arm", pa.array(arm)).append_column("_set", named) for arm in arms]
        staged = [storage.stage(job, partition, 0, [part]) for partition, part in enumerate(parts)]
        with nullcontext() if refused is None else pytest.raises(refused):
            storage.commit_write(job, staged)
        storage.abort_write(storage.begin_write("t", mode=mode, job_id="another"))
        for number in (1, 2, 1):
            empty = storage.begin_write("t", mode="upsert", stream="s", batch=number)
            assert storage.commit_write(empty, []).applied is not empty.committed
        assert storage.table("t").count() == {"delete": 0, "insert": 20, "update": 20}.get(mode, 30)
        assert not sprung(postgresql_conninfo)


@pytest.mark.parametrize("seed", range(6))
def test_merges(url: str, postgresql_conninfo: str, seed: int) -> None:
    """Calls and jobs of tables of all types, and of bags."""
    chance = random.Random(seed)
    spec = random_type(chance, random_specification(chance, "t"))
    bag = TableSpecification("bag", TABLE.fields, options={"write-mode": "change-log"})
    with connect(url) as storage:
        storage.admin.create(spec)
        storage.admin.create(bag)
        for place in range(12):
            with suppress(InvalidFieldError, UnsupportedOperationError):
                changes = [(random_kind(chance), random_row(chance, spec)) for _ in range(1 + place)]
                storage.table("t").apply_changes(changes)
                run_job(storage, "t", changes)
        storage.table("bag").insert_many(rows(10))
        given = rows(5)
        changes = [(kind, row) for kind in RowKind for row in given]
        storage.table("bag").apply_changes(changes)
        run_job(storage, "bag", changes)
        assert storage.table("bag").count() == 10
        assert not sprung(postgresql_conninfo)


def test_outcomes_that_are_looked_up(hostile: str, postgresql_schema: Schema, postgresql_conninfo: str) -> None:
    """After a lost answer to the commit of a transaction, of a change of a table and of a job."""
    options = f"-c search_path={hostile},pg_catalog"
    with (
        Proxy(postgresql_schema.conninfo) as proxy,
        connect(proxy.url(postgresql_schema.url), options=options) as storage,
    ):
        storage.admin.create(TABLE)
        for cut in Cut:
            proxy.trap(COMMIT, cut)
            storage.run(lambda tx: tx.table("t").upsert({"k": "a", "n": 1}))
            proxy.trap(COMMIT, cut)
            with suppress(StorageUnavailableError):
                storage.admin.create(TableSpecification(f"u{cut.name}", TABLE.fields, TABLE.primary_key))
            job = storage.begin_write("t", mode="upsert", job_id=cut.name)
            staged = storage.stage(job, 0, 0, [pa.RecordBatch.from_pylist(rows(3), arrow_schema(TABLE))])
            proxy.trap(COMMIT, cut)
            with suppress(StorageUnavailableError):
                storage.commit_write(job, [staged])
            storage.commit_write(job, [staged])
        assert storage.table("t").count() == 4
        assert not sprung(postgresql_conninfo)
