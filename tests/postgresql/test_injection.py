"""Every string from a user is refused, or is a value and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    InvalidSpecificationError,
    Range,
    RecordExistsError,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TableSpecification,
    col,
    connect,
)
from structable.spi.arrow import rows_to_batches
from structable.testing.conformance.patch_case import patch_batch
from structable.testing.conformance.samples import Record

from .support.shared import Schema

HOSTILE = [
    "'; drop table victim; --",
    '"; drop table victim; --',
    "$1",
    "$$; drop table victim; $$",
    "\\'; drop table victim; --",
    "%s %(k)s %",
    "a\nb\tc\\N\\.",
    "\\.",
    ":k0 {k} ?",
    "%_\\%",
    "é🦖\u2028",
    "",
]
NAMES = [
    "select",
    "user",
    "table",
    "order",
    "ctid",
    "xmin",
    "tableoid",
    "given",
    "changed",
    "excluded",
    "k0",
    "v0",
    "e",
    "g",
    "s",
    "t",
]


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url) as storage:
        storage.admin.create(TableSpecification("victim", [Field.int("k")], ["k"]))
        yield storage
        assert storage.admin.list() == sorted(storage.admin.list())
        assert storage.table("victim").count() == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_values(storage: Storage, text: str) -> None:
    """Keys, values, filters, prefixes and expected values come back as they were."""
    storage.admin.create(TableSpecification("t", [Field.string("k"), Field.string("s"), Field.int("n")], ["k"], ["s"]))
    table = storage.table("t")
    table.upsert({"k": text, "s": text, "n": 1})
    row = {"k": text, "s": text, "n": 1}
    assert dict(table.read((text,)) or {}) == row
    assert [dict(one) for one in table.multi_read([(text,), ("other",)])] == [row]
    assert [dict(one) for one in table.scan_index("s", text)] == [row]
    assert [dict(one) for one in table.scan(Range.prefix((text,)), where=col("s") == text)] == [row]
    for condition in (
        col("s").startswith(text),
        col("s").isin([text]),
        col("s").between(text, text),
        ~(col("s") != text),
    ):
        assert table.count(where=condition) == 1
        assert str(table.explain(where=condition))
    table.upsert_many([{"k": text + str(number), "s": text} for number in range(200)])
    assert table.count(where=col("s") == text) == 201
    assert table.compare_and_swap((text,), "s", text, text + "!")
    assert table.update_all(Range.prefix((text,)), {"s": text}, where=col("s") == text + "!") == 1
    assert table.delete_all(Range.all(), where=col("s") == text) == 201


@pytest.mark.parametrize("name", NAMES)
def test_reserved_words_are_names(storage: Storage, name: str) -> None:
    """Tables and fields may be called what SQL, PostgreSQL or our own statements use."""
    spec = TableSpecification(name, [Field.int("id"), Field.int(name), Field.string("other")], ["id"], [name])
    storage.admin.create(spec)
    table = storage.table(name)
    table.upsert({"id": 1, name: 1, "other": "a"})
    table.upsert_many([{"id": number, name: number, "other": "b"} for number in range(1, 150)])
    table.increment((1,), name, 5)
    assert table.compare_and_swap((2,), name, 2, 1_000)
    assert [row.key for row in table.scan_index(name, 1_000)] == [(2,)]
    assert [row.key for row in table.scan(order_by=name, limit=1)] == [(3,)]
    assert table.update_all(Range.all(), {name: 7}, where=col(name) > 100) == 50
    storage.admin.create_or_update(
        TableSpecification(name, [*spec.fields[:1], Field.long(name), spec.fields[2]], ["id"], [name, "other"])
    )
    assert len(list(table.scan_index("other", "b"))) == 149
    storage.admin.drop_index(name, name)
    storage.admin.drop(name)


@pytest.mark.parametrize("name", NAMES)
def test_reserved_words_are_keys(storage: Storage, name: str) -> None:
    storage.admin.create(TableSpecification(name, [Field.string(name), Field.int("n")], [name], ["n"]))
    table = storage.table(name)
    table.upsert_many([{name: str(number), "n": number % 2} for number in range(150)])
    assert table.count([Range.at_least(("5",))], where=col(name) < "6") == 11
    assert len(table.multi_read([("1",), ("2",)])) == 2
    assert next(iter(table.scan_index("n", 1, reverse=True))).key == ("99",)
    table.delete(("1",))
    assert table.count() == 149


@pytest.mark.parametrize("name", NAMES)
def test_reserved_words_in_writes_of_many_rows(storage: Storage, name: str) -> None:
    spec = TableSpecification(name, [Field.int("k"), Field.string(name)], ["k"], [name])
    storage.admin.create(spec)
    table = storage.table(name)
    table.upsert_many([{"k": key, name: "a"} for key in range(9)])
    table.update_many([{"k": key, name: "b"} for key in range(8)])
    table.delete_many([(0,), (20,)])
    assert {row["k"]: row[name] for row in table.scan()} == {**dict.fromkeys(range(1, 8), "b"), 8: "a"}
    assert table.count([Range.prefix((1,)), Range.prefix((3,))]) == 2

    def run(mode: str, key: int, arm: str | None = None) -> None:
        job = storage.begin_write(name, mode=mode, job_id=f"{mode} {arm} {name}")
        row: Record = {"k": key} if mode == "delete" else {"k": key, name: mode}
        (batch,) = [patch_batch(spec, [(arm, row)])] if arm else rows_to_batches(spec, [row, row], list(row))
        assert storage.commit_write(job, [storage.stage(job, 0, 0, [batch])])

    for key, mode in enumerate(("upsert", "replace", "update", "delete"), start=1):
        run(mode, key)
    for key, arm in enumerate(("present", "replace", "delete", "insert"), start=6):
        run("patch", key if arm != "insert" else 30, arm)
    found = {row["k"]: row[name] for row in table.scan()}
    assert found == {1: "upsert", 2: "replace", 3: "update", 5: "b", 6: "patch", 7: "patch", 30: "patch"}
    run("overwrite", 40)
    assert [row["k"] for row in table.scan()] == [40]
    with pytest.raises(RecordExistsError):
        run("insert", 40)


@pytest.mark.parametrize("text", [*HOSTILE, "a b", "x" * 5_000, "\0", "\ud800", "_version_1_1", "_structable_tables"])
def test_names_are_refused(storage: Storage, text: str) -> None:
    """Where a name is expected, any other string is refused or names nothing."""
    with pytest.raises(InvalidSpecificationError):
        TableSpecification(text, [Field.int("k")], ["k"])
    with pytest.raises(InvalidSpecificationError):
        TableSpecification("t", [Field.int("k"), Field.int(text)], ["k"])
    for use in (storage.table, storage.admin.get_specification, lambda name: storage.admin.drop_index(name, "k")):
        with pytest.raises(TableNotFoundError):
            use(text)
    assert not storage.admin.exists(text)
    storage.admin.drop(text)
    victim = storage.table("victim")
    for refused in (
        lambda: victim.read((1,), [text]),
        lambda: victim.scan(order_by=text),
        lambda: victim.scan_index(text, 1),
        lambda: victim.scan(where=col(text) == 1),
        lambda: victim.upsert({"k": 1, text: 1}),
        lambda: victim.compare_and_swap((1,), text, 1, 2),
        lambda: victim.increment((1,), text),
        lambda: victim.update_all(Range.all(), {text: 1}),
        lambda: storage.admin.drop_index("victim", text),
    ):
        with pytest.raises(InvalidFieldError):
            refused()


def use_feed(storage: Storage) -> None:
    fields = [Field.int("k"), Field.string("s")]
    storage.admin.create(TableSpecification("fed", fields, ["k"], options={"changelog-producer": "lookup"}))
    feed = storage.changes("fed")
    storage.table("fed").upsert({"k": 1, "s": "a"})
    with storage.transaction() as transaction:
        assert transaction.position("fed") == feed.latest()
    with storage.plan_scan("fed") as plan:
        assert plan.position == feed.latest()
    with feed.read() as changes:
        assert [change.row for change in changes] == [{"k": 1, "s": "a"}]
    (split,) = feed.plan(splits=1).splits
    assert sum(batch.num_rows for batch in storage.read_split(split)) == 1
    feed.expire(feed.latest())
    storage.admin.drop("fed")


@pytest.mark.parametrize(
    "text", ['a"b', "a'b", "a; drop schema public cascade; --", "a b", "a.b", "$1", "select", "Ünï", "%s", "{k} {}"]
)
def test_schema_is_a_name(postgresql_schema: Schema, text: str) -> None:
    """The option `schema` is one identifier with any content."""
    schema = f"{text[:30]}{uuid.uuid4().hex[:20]}"
    try:
        with connect(postgresql_schema.conninfo, schema=schema) as storage:
            storage.admin.create(TableSpecification("t", [Field.int("k"), Field.byte("v")], ["k"], ["v"]))
            storage.table("t").upsert_many([{"k": 1, "v": 1}])
            storage.admin.create_or_update(
                TableSpecification("t", [Field.int("k"), Field.int("v"), Field.int("w")], ["k"], ["v", "w"])
            )
            assert [row.key for row in storage.table("t").scan_index("v", 1)] == [(1,)]
            storage.admin.drop_index("t", "v")
        with connect(postgresql_schema.conninfo, schema=schema) as storage:
            assert storage.admin.list() == ["t"]
            storage.admin.drop("t")
            use_feed(storage)
        with psycopg.connect(postgresql_schema.conninfo) as connection:
            found = connection.execute("select 1 from pg_namespace where nspname = %s", [schema]).fetchone()
            assert found is not None
    finally:
        with psycopg.connect(postgresql_schema.conninfo) as connection:
            connection.execute(
                psycopg.sql.SQL("drop schema if exists {} cascade").format(psycopg.sql.Identifier(schema))
            )


@pytest.mark.parametrize("text", ["", "pg_catalog", "pg_x", "information_schema", "x" * 64, "é" * 32, "a\0b", "\ud800"])
def test_schema_that_is_none(postgresql_schema: Schema, text: str) -> None:
    """Names that PostgreSQL reserves, truncates or rejects are refused."""
    with pytest.raises(ValueError, match="schema"):
        connect(postgresql_schema.conninfo, schema=text)


@pytest.mark.parametrize("text", ['a\'b "c" \\', "x=y host=elsewhere", "%s$1"])
def test_application_name_is_a_value(postgresql_url: str, text: str) -> None:
    """It cannot become another parameter of the connection."""
    with connect(postgresql_url, application_name=text) as storage:
        assert storage.admin.list() == []


def test_user_and_database_are_values(postgresql_schema: Schema) -> None:
    """Names with quotes and spaces reach the server as they are, and are unknown there."""
    host = postgresql_schema.conninfo.rpartition("@")[2].partition("/")[0]
    with pytest.raises(StorageUnavailableError, match="cannot connect"):
        connect(f"postgresql://app:secret@{host}/no%20such%20host%3Delsewhere")
