"""Splits of a plan: literals that the server renders, both ways of reading, and lost snapshots."""

import datetime as dt
import math
import os
import pickle
import random
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structable.backends.base import shared_resources
from structable.backends.postgresql.bulk import split_reading
from structable.backends.postgresql.bulk.split_state import SplitState
from structable.spi import (
    Field,
    Filter,
    Range,
    ScanPlan,
    ScanSplit,
    Storage,
    StorageUnavailableError,
    TableSpecification,
    TransactionClosedError,
    col,
    connect,
    read_split,
)
from structable.spi.arrow import arrow_schema
from structable.testing.conformance.samples import Record
from tests.postgresql.support.shared import Schema
from tests.waiting import until

SPEC = TableSpecification(
    "values",
    [
        Field.string("k1"),
        Field.bytes("k2"),
        Field.boolean("flag"),
        Field.byte("tiny"),
        Field.short("short"),
        Field.int("int"),
        Field.long("long"),
        Field.float("real"),
        Field.double("double"),
        Field.decimal("decimal", 38, 10),
        Field.date("date"),
        Field.timestamp("at"),
        Field.timestamp_ntz("at_ntz"),
        Field.string("ctid"),
    ],
    ["k1", "k2"],
    ["int"],
)
EVERYTHING = Range.all()
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8) | st.sampled_from(
    [
        "'",
        "\\",
        "\\'",
        "$1",
        "%(p0)s",
        "%s",
        ":p0",
        "E'",
        "';--",
        "\\x41",
        "\n",
        '"',
        "$$",
        "ü",
        "{}",
        "{'a'}",
        "NULL",
        "\x1f",
        "a\x1fb",
    ]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k1": TEXT,
    "k2": st.binary(max_size=8),
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "real": st.floats(width=32),
    "double": st.floats(),
    "decimal": st.decimals(-(10**27), 10**27, places=10, allow_nan=False),
    "date": st.dates(),
    "at": st.datetimes(timezones=st.just(dt.UTC)),
    "at_ntz": st.datetimes(),
    "ctid": TEXT,
}
ROWS = st.fixed_dictionaries(
    {name: values if name in SPEC.primary_key else st.none() | values for name, values in VALUES.items()}
)


@st.composite
def filters(draw: st.DrawFn, row: dict[str, Any]) -> Filter:
    name = draw(st.sampled_from(list(VALUES)))
    value = row[name] if row[name] is not None and draw(st.booleans()) else draw(VALUES[name])
    field = col(name)
    ways = [field == value, field != value, field <= value, field > value, field.isin([value, draw(VALUES[name])])]
    if isinstance(value, str | bytes):
        ways += [field.startswith(value[:1]), ~field.startswith(value)]
    found: Filter = draw(st.sampled_from(ways))
    return found


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url, ddl_timeout=0.2) as storage:
        storage.admin.create(SPEC)
        yield storage


def store_out_of_line(storage: Storage) -> None:
    """Have a value stored outside the table's pages for good: its space is not reused."""
    key = ("a large one", b"")
    storage.table("values").upsert({"k1": key[0], "k2": key[1], "ctid": random.Random(1).randbytes(20_000).hex()})
    storage.table("values").delete(key)


@pytest.fixture(params=["columns", "rows"])
def way(request: pytest.FixtureRequest, storage: Storage) -> str:
    """Read splits of pages in one of the ways; those of an index never come in columns."""
    if request.param != "columns":
        store_out_of_line(storage)
    return str(request.param)


def read(
    storage: Storage, *, range: Range = EVERYTHING, where: Filter | None = None, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    with storage.plan_scan("values", range=range, where=where, columns=columns) as plan:
        return [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]


def shown(rows: Iterable[Mapping[str, object]]) -> list[str]:
    # Values that are equal and look different, such as -0.0 and NaN, included.
    zoned = ({name: _plain(value) for name, value in dict(row).items()} for row in rows)
    return sorted(repr(sorted(row.items())) for row in zoned)


def _plain(value: object) -> object:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=ROWS, data=st.data())
def test_any_value_may_be_in_a_filter(storage: Storage, way: str, row: dict[str, Any], data: st.DataObject) -> None:
    """A plan finds the same rows as a scan, whose values travel as parameters."""
    table = storage.table("values")
    table.delete_all(Range.all())
    table.upsert(row)
    where = data.draw(filters(row))
    assert shown(read(storage, where=where)) == shown(table.scan(where=where))
    begin, end = data.draw(VALUES["k1"]), data.draw(VALUES["k2"])
    for range_ in (Range((begin,), (row["k1"], end), end_inclusive=True), Range.at_least((row["k1"], row["k2"]))):
        assert shown(read(storage, range=range_)) == shown(table.scan(range_))


def test_special_numbers_in_filters(storage: Storage, way: str) -> None:
    rows: list[Record] = [
        {"k1": f"{number}", "k2": b"", "double": number, "real": number}
        for number in (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.5)
    ]
    storage.table("values").upsert_many(rows)
    for name in ("double", "real"):
        for value in (math.nan, math.inf, -math.inf, -0.0, 1e-45):
            where = col(name) == value
            assert shown(read(storage, where=where)) == shown(storage.table("values").scan(where=where))


def test_batches_are_the_same_whichever_way(storage: Storage) -> None:
    row: Record = {
        "k1": "a", "k2": b"\0\xff", "flag": True, "tiny": -128, "short": 1, "int": 2, "long": 3, "real": 0.1,
        "double": -0.0, "decimal": Decimal("-1.5"), "date": dt.date(1, 1, 1),
        "at": dt.datetime.max.replace(tzinfo=dt.UTC), "at_ntz": dt.datetime.min, "ctid": "x\x1f",
    }  # fmt: skip
    storage.table("values").upsert_many([row, {"k1": "b", "k2": b""}])

    def read_batch() -> pa.RecordBatch:
        with storage.plan_scan("values") as plan:
            (split,) = plan.splits
            (batch,) = storage.read_split(split)
        assert batch.schema == arrow_schema(SPEC)
        batch.validate(full=True)
        return batch

    by_columns = read_batch()
    store_out_of_line(storage)
    assert by_columns.equals(read_batch())


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, max_size=8, unique_by=lambda row: (row["k1"], row["k2"])), data=st.data())
def test_any_values_come(storage: Storage, way: str, rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """In columns the server skips nulls, and texts may contain the separator; in rows offsets depend on lengths."""
    table = storage.table("values")
    table.delete_all(Range.all())
    table.upsert_many(rows)
    columns = data.draw(st.none() | st.lists(st.sampled_from(list(VALUES)), min_size=1, unique=True))
    wanted = [{name: row[name] for name in columns or VALUES} for row in table.scan()]
    assert shown(read(storage, columns=columns)) == shown(wanted)


def test_columns_change_from_page_to_page(storage: Storage) -> None:
    """Nulls, separators, long texts and empty ones, each in some of many runs of pages."""
    count = 60_000

    def text(number: int) -> str | None:
        if number // 10_000 == 2:
            return None if number % 3 == 0 else f"\x1f{number}\x1f"
        return "x" * 900 if number // 10_000 == 4 else None if number // 10_000 == 5 else f"{number}"

    storage.table("values").upsert_many(
        {"k1": f"{number:06d}", "k2": b"", "int": number if number > 30_000 else None, "ctid": text(number)}
        for number in range(count)
    )
    storage.table("values").delete_all(Range(("010000",), ("020000",)))
    with storage.plan_scan("values", columns=["k1", "int", "ctid"], splits=3) as plan:
        batches = [batch for split in plan.splits for batch in storage.read_split(split)]
    assert len(batches) > 10
    assert max(batch.nbytes for batch in batches) < 4 << 20
    found = sorted((row["k1"], row["int"], row["ctid"]) for batch in batches for row in batch.to_pylist())
    assert found == [
        (f"{number:06d}", number if number > 30_000 else None, text(number))
        for number in range(count)
        if number // 10_000 != 1
    ]


def test_values_stay_in_their_rows_however_the_server_plans(storage: Storage, postgresql_url: str) -> None:
    """Columns requested twice come in the order of the others, even if workers would share the pages."""
    count = 8_000
    storage.table("values").upsert_many(
        {"k1": f"{number}", "k2": b"", "int": number if number % 7 else None, "ctid": "x" * (number % 500)}
        for number in range(count)
    )
    settings = {
        "enable_tidscan": "off",
        "min_parallel_table_scan_size": "0",
        "parallel_setup_cost": "0",
        "parallel_tuple_cost": "0",
        "max_parallel_workers_per_gather": "4",
    }
    with connect(postgresql_url, options=" ".join(f"-c {name}={value}" for name, value in settings.items())) as other:
        for _ in range(3):
            found = {row["k1"]: row["int"] for row in read(other, columns=["k1", "int"])}
            assert found == {f"{number}": number if number % 7 else None for number in range(count)}


@pytest.mark.parametrize("count", [500, 900])
def test_very_many_columns(storage: Storage, count: int) -> None:
    """The server returns at most 1,664 columns; each is requested here in its longest form."""
    fields = [Field.string(f"s{place}") for place in range(count)]
    storage.admin.create(TableSpecification("wide", [Field.long("id"), *fields], ["id"]))
    rows: list[Record] = [
        {"id": 1, **{field.name: f"\x1f{place}" for place, field in enumerate(fields)}},
        {"id": 2},
    ]
    storage.table("wide").upsert_many(rows)
    with storage.plan_scan("wide", columns=[field.name for field in fields]) as plan:
        found = [row for split in plan.splits for batch in storage.read_split(split) for row in batch.to_pylist()]
    assert sorted(found, key=str) == [{name: row.get(name) for name in found[0]} for row in rows]


def test_batches_are_bounded_where_pages_hold_more_than_their_bytes(
    storage: Storage, postgresql_schema: Schema
) -> None:
    """Nulls take space in Arrow alone, and compressed texts share few pages."""
    fields = [Field.decimal(f"d{place}", 38, 0) for place in range(300)]
    storage.admin.create(TableSpecification("wide", [Field.long("id"), Field.string("text"), *fields], ["id"]))
    table = f'"{postgresql_schema.name}".wide'
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(f"insert into {table} select id, 'short' from generate_series(1, 100000) id".encode())
        connection.execute(
            f"insert into {table} select -id, repeat('x', 50000) from generate_series(1, 2000) id".encode()
        )
    for columns in (["id", "text"], ["id", *(field.name for field in fields)]):
        with storage.plan_scan("wide", columns=columns) as plan:
            assert max(batch.nbytes for batch in storage.read_split(plan.splits[0])) < 48 << 20


def test_batches_of_long_rows_are_bounded(storage: Storage) -> None:
    digits = random.Random(1)
    storage.table("values").upsert_many(
        {"k1": f"{number}", "k2": b"", "ctid": digits.randbytes(100_000).hex()} for number in range(200)
    )
    with storage.plan_scan("values", columns=["ctid"]) as plan:
        sizes = [(batch.num_rows, batch.nbytes) for batch in storage.read_split(plan.splits[0])]
    assert sum(rows for rows, _ in sizes) == 200
    assert max(size for _, size in sizes) < 16 << 20


def test_schema_with_any_name(postgresql_schema: Schema, way: str) -> None:
    name = f"{postgresql_schema.name} \" %(p0)s $1 :p0 ' \\"
    with connect(postgresql_schema.conninfo, schema=name) as storage:
        try:
            storage.admin.create(SPEC)
            if way != "columns":
                store_out_of_line(storage)
            storage.table("values").upsert({"k1": "$1", "k2": b""})
            assert len(read(storage)) == 1
            assert len(read(storage, where=col("k1") == "$1")) == 1
            job = storage.begin_write("values", mode="overwrite", job_id="j")
            storage.commit_write(job, [])
            assert read(storage) == []
        finally:
            with psycopg.connect(postgresql_schema.conninfo) as connection:
                connection.execute(psycopg.sql.SQL("drop schema {} cascade").format(psycopg.sql.Identifier(name)))


def fill(storage: Storage, count: int = 20_000) -> None:
    storage.table("values").upsert_many(
        {"k1": f"{number:06d}", "k2": b"", "int": number, "ctid": "x" * 100} for number in range(count)
    )


def test_one_split_where_an_index_finds_the_rows(storage: Storage, postgresql_schema: Schema) -> None:
    fill(storage)
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f'analyze "{postgresql_schema.name}"."values"'.encode())
    everything = Range.all()
    for where, range_, few in (
        (col("int") == 7, everything, True),
        (None, Range.prefix(("000007",)), True),
        (col("int") >= 7, everything, False),
        (col("long").is_null(), everything, False),
    ):
        with storage.plan_scan("values", range=range_, where=where, splits=4) as plan:
            assert len(plan.splits) == (1 if few else 4)
            counts = [sum(batch.num_rows for batch in storage.read_split(split)) for split in plan.splits]
        assert sum(counts) == storage.table("values").count([range_], where)
        assert few or all(counts)


def test_reading_may_stop_anywhere(storage: Storage, way: str) -> None:
    fill(storage)
    with storage.plan_scan("values") as plan:
        for _ in range(6):
            batches = storage.read_split(plan.splits[0])
            assert next(batches).num_rows
            batches.close()  # type: ignore[attr-defined]
        assert sum(batch.num_rows for batch in storage.read_split(plan.splits[0])) == 20_000


def test_plan_closed_while_it_is_read(storage: Storage, way: str) -> None:
    fill(storage)
    with storage.plan_scan("values") as plan:
        batches = storage.read_split(plan.splits[0])
        next(batches)
    with pytest.raises(TransactionClosedError):
        list(batches)


def terminate(schema: Schema, condition: str) -> int:
    with psycopg.connect(schema.conninfo, autocommit=True) as connection:
        found = connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid() "
            f"and application_name = '{schema.name}' and {condition}"
        )
        return len(found.fetchall())


def test_lost_plan_is_closed_and_lost_readers_are_replaced(
    storage: Storage, postgresql_schema: Schema, way: str
) -> None:
    fill(storage, 10)
    with connect(postgresql_schema.url, application_name=postgresql_schema.name) as named:
        with named.plan_scan("values") as plan:
            assert len(list(named.read_split(plan.splits[0]))) == 1
            assert terminate(postgresql_schema, "query = 'rollback'")  # the reader's, which is kept for the next split
            assert len(list(named.read_split(plan.splits[0]))) == 1
            assert terminate(postgresql_schema, "state = 'idle in transaction'")
            with pytest.raises(TransactionClosedError, match="due to administrator command; plan the scan again"):
                list(named.read_split(plan.splits[0]))
            with pytest.raises(TransactionClosedError, match="the connection that held it ended"):
                list(read_split(postgresql_schema.url, plan.splits[0]))
        assert len(read(named)) == 10


def test_limits_of_a_role_do_not_end_plans(storage: Storage, postgresql_schema: Schema, way: str) -> None:
    """A limit on idle transactions spares plans and their readers, and errors of ended transactions name it."""
    fill(storage, 60_000)
    name = postgresql_schema.name
    # As `ALTER ROLE ... SET` would, for the connections of this test alone.
    limited = f"{postgresql_schema.url}&options=-c%20idle_in_transaction_session_timeout%3D100"
    with connect(limited, application_name=name) as storage, storage.plan_scan("values") as plan:
        batches = storage.read_split(plan.splits[0])
        count = next(batches).num_rows
        transaction = storage.transaction()
        assert transaction.table("values").count() == 60_000
        with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
            open_now = "select count(*) from pg_stat_activity where application_name = %s and xact_start is not null"
            until(lambda: connection.execute(open_now, [name]).fetchone() == (2,))
        with pytest.raises(StorageUnavailableError, match="idle-in-transaction timeout"):
            transaction.table("values").count()
        transaction.rollback()
        assert count + sum(batch.num_rows for batch in batches) == 60_000
        assert sum(batch.num_rows for batch in storage.read_split(plan.splits[0])) == 60_000


def test_reader_lost_between_batches(storage: Storage, postgresql_schema: Schema, way: str) -> None:
    """The reader gets an error, since rows are missing; the plan can be read again."""
    fill(storage, 60_000)
    name = postgresql_schema.name
    with connect(postgresql_schema.url, application_name=name) as reader, storage.plan_scan("values") as plan:
        batches = reader.read_split(plan.splits[0])
        next(batches)
        assert terminate(postgresql_schema, "true") >= 1
        with pytest.raises(StorageUnavailableError):
            list(batches)
        assert sum(batch.num_rows for batch in reader.read_split(plan.splits[0])) == 60_000


def test_closed_plans_hold_nothing(storage: Storage, postgresql_schema: Schema) -> None:
    """When the close of a plan, by any thread, or its collection returns, its transaction has ended."""
    fill(storage, 10)
    with (
        connect(postgresql_schema.url, application_name=postgresql_schema.name) as named,
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection,
    ):

        def snapshots() -> int:
            query = "select count(*) from pg_stat_activity where application_name = %s and xact_start is not null"
            row = connection.execute(query, [postgresql_schema.name]).fetchone()
            assert row is not None
            return int(row[0])

        plans = [named.plan_scan("values") for _ in range(6)]
        assert snapshots() == 6
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ScanPlan.close, plans[:3]))
        assert snapshots() == 3
        del plans
        assert snapshots() == 0
        named.admin.drop("values")  # which an open plan would keep waiting


def test_plan_keeps_its_table(storage: Storage, way: str) -> None:
    """The splits of a plan stay readable: a drop waits for it, as for any transaction."""
    fill(storage, 10)
    with storage.plan_scan("values") as plan:
        with pytest.raises(StorageUnavailableError, match="ddl_timeout"):
            storage.admin.drop("values")
        assert len(list(storage.read_split(plan.splits[0]))) == 1
    storage.admin.drop("values")


def test_plan_after_the_table_was_made_anew(storage: Storage, postgresql_url: str) -> None:
    fill(storage, 10)
    assert len(read(storage)) == 10
    with connect(postgresql_url) as other:
        other.admin.drop("values")
        other.admin.create(TableSpecification("values", [Field.long("id"), Field.int("new")], ["id"]))
        other.table("values").upsert({"id": 1, "new": 2})
    assert read(storage, columns=["new"]) == [{"new": 2}]


def test_foreign_snapshot_is_no_sql(storage: Storage) -> None:
    state = SplitState(SPEC, ("k1",), "select 1", None, False, "'; drop table x --")
    with pytest.raises(ValueError, match="snapshot"):
        list(storage.read_split(ScanSplit("values", ("k1",), 0, pickle.dumps(tuple(state)))))


def test_split_read_by_the_url_takes_one_connection(storage: Storage, postgresql_schema: Schema, way: str) -> None:
    fill(storage)
    named = {"application_name": f"{postgresql_schema.name[:40]} reader"}
    with storage.plan_scan("values") as plan:
        assert sum(batch.num_rows for batch in read_split(postgresql_schema.url, plan.splits[0], **named)) == 20_000
        with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
            own = "from pg_stat_activity where application_name = %s"
            parameters = list(named.values())
            connection.execute(f"select pg_terminate_backend(pid, 5000) {own}".encode(), parameters)
            batches = read_split(postgresql_schema.url, plan.splits[0], **named)
            next(batches)
            assert connection.execute(f"select count(*) {own}".encode(), parameters).fetchone() == (1,)
            batches.close()  # type: ignore[attr-defined]


def test_split_read_by_the_url_without_a_server_says_so(storage: Storage, way: str) -> None:
    fill(storage, 10)
    with storage.plan_scan("values") as plan, pytest.raises(StorageUnavailableError, match="cannot connect to"):
        list(read_split("postgresql://127.0.0.1:1/nowhere", plan.splits[0]))


def test_connection_of_a_split_read_by_the_url_is_kept_for_a_while(
    storage: Storage, postgresql_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, 10)
    name = f"{postgresql_schema.name[:40]} kept"
    with (
        psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection,
        storage.plan_scan("values") as plan,
    ):

        def processes() -> list[tuple[object, ...]]:
            own = "select pid, xact_start from pg_stat_activity where application_name = %s"
            return connection.execute(own, [name]).fetchall()

        def rows() -> int:
            return sum(one.num_rows for one in read_split(postgresql_schema.url, plan.splits[0], application_name=name))

        monkeypatch.setattr(shared_resources, "IDLE_SECONDS", 60.0)
        assert rows() == 10
        [first] = processes()
        assert first[1] is None
        assert rows() == 10
        assert processes() == [first]
        child = os.fork()
        if not child:
            try:
                assert rows() == 10
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert rows() == 10
        assert first in processes()
        monkeypatch.setattr(shared_resources, "IDLE_SECONDS", 0.1)
        split_reading._READERS._close_idle()
        until(lambda: not processes())
