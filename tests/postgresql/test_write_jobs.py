"""Write jobs: the whole life of staging tables, and commits whose answer was lost."""

import datetime as dt
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structable.backends.postgresql.bulk.copy_encoder import CopyEncoder
from structable.backends.postgresql.bulk.staging import drop_staging
from structable.backends.postgresql.sql.row_codec import RowEncoder
from structable.spi import (
    CommitResult,
    Field,
    FieldSizeLimitError,
    FieldType,
    InvalidFieldError,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
    connect,
)
from structable.spi.arrow import arrow_schema, rows_to_batches
from structable.spi.authors import MAX_ROW_SIZE
from structable.testing.conformance.samples import Record
from tests.postgresql.support.fixtures import StartServer
from tests.postgresql.support.proxy import Cut, Proxy, statement
from tests.postgresql.support.server import Server
from tests.postgresql.support.shared import Schema
from tests.postgresql.support.waiting_commits import commit_behind
from tests.postgresql.test_splits import ROWS
from tests.postgresql.test_splits import SPEC as VALUES

ITEMS = TableSpecification(
    "items",
    [Field.long("id"), Field.int("n"), Field.bytes("a"), Field.bytes("b"), Field.string("tag")],
    ["id"],
    ["tag"],
)
WITHOUT_DECIMALS = TableSpecification(
    "values", [field for field in VALUES.fields if field.type is not FieldType.DECIMAL], VALUES.primary_key
)


@pytest.fixture
def storage(postgresql_url: str) -> Iterator[Storage]:
    with connect(postgresql_url, ddl_timeout=0.2) as storage:
        storage.admin.create(ITEMS)
        yield storage


def stage(storage: Storage, job: WriteJob, rows: list[dict[str, Any]], partition: int = 0) -> StagedWrite:
    return storage.stage(job, partition, 0, rows_to_batches(ITEMS, rows, list(rows[0])))


def begin(storage: Storage, mode: str = "upsert", job_id: str = "job") -> WriteJob:
    return storage.begin_write("items", mode=mode, job_id=job_id)


def staging(schema: Schema) -> list[str]:
    with psycopg.connect(schema.conninfo) as connection:
        found = connection.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relname ~ '^_stage' order by 1",
            (schema.name,),
        )
        return [name for (name,) in found]


@settings(deadline=None, max_examples=200)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), begin=st.integers(0, 4), decimals=st.booleans())
def test_batches_are_encoded_as_rows_are(rows: list[dict[str, Any]], begin: int, decimals: bool) -> None:
    spec = VALUES if decimals else WITHOUT_DECIMALS
    names = spec.field_names
    rows = [{name: row[name] for name in names} for row in rows]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(spec)).slice(begin)
    encoder = RowEncoder(spec, names)
    expected = b"".join(encoder.copied(row) for row in batch.to_pylist())
    assert b"".join(CopyEncoder(spec, names).encode(batch)) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        pa.array([2**31 - 1], pa.date32()),
        pa.array([2**62], pa.timestamp("us", tz="UTC")),
        pa.array([-(2**62)], pa.timestamp("us")),
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]),
        pa.array(["a\0"]),
        pa.array(["x" * 2_001]),
    ],
    ids=lambda array: str(array.type),
)
def test_values_that_only_arrow_holds(storage: Storage, postgresql_schema: Schema, wrong: "pa.Array[Any]") -> None:
    kinds = {pa.date32(): Field.date, pa.timestamp("us", tz="UTC"): Field.timestamp, pa.string(): Field.string}
    make = kinds.get(wrong.type, Field.timestamp_ntz)
    storage.admin.create(TableSpecification("one", [Field.long("id"), make("v")], ["id"], ["v"]))
    job = storage.begin_write("one", mode="upsert", job_id="job")
    with pytest.raises(InvalidFieldError):
        storage.stage(job, 0, 0, [pa.record_batch({"id": pa.array([1]), "v": wrong})])
    assert staging(postgresql_schema) == []


def test_staging_tables_end_with_their_job(storage: Storage, postgresql_schema: Schema) -> None:
    def commit(job: WriteJob) -> None:
        storage.commit_write(job, [])

    for number, end in enumerate((storage.abort_write, commit)):
        job = begin(storage, job_id=f"job {number} '\"\\")
        for partition in range(2):
            stage(storage, job, [{"id": 1}], partition)
        names = staging(postgresql_schema)
        assert len(names) == 2
        assert all(len(name.encode()) <= 63 and "job" not in name for name in names)
        assert storage.admin.list() == ["items"]
        end(job)
        assert staging(postgresql_schema) == []


def test_failing_batches_leave_no_staging(storage: Storage, postgresql_schema: Schema) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows_to_batches(ITEMS, [{"id": 1}], ["id"])
        raise KeyError("not ours")

    with pytest.raises(KeyError, match="not ours"):
        storage.stage(begin(storage), 0, 0, batches())
    assert staging(postgresql_schema) == []
    assert storage.table("items").count() == 0


def test_staging_of_dead_jobs_is_swept(storage: Storage, postgresql_url: str, postgresql_schema: Schema) -> None:
    alive = begin(storage, job_id="alive")
    kept = stage(storage, alive, [{"id": 1}])
    (name,) = staging(postgresql_schema)
    old = f"{int(time.time()) - 3_600:08x}"
    prefix, _, time_and_rest = name.rpartition(f"_{name.split('_')[3]}_")
    aged = f"{prefix}_{old}_{time_and_rest}"
    dead = f"_stage_{'0' * 16}_{old}_{'0' * 20}"
    young = f"_stage_{'1' * 16}_{int(time.time()):08x}_{'0' * 20}"
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"set search_path = {postgresql_schema.name}".encode())
        connection.execute(f"alter table {name} rename to {aged}".encode())
        for one in (dead, young, "_stage_of_somebody_else"):
            connection.execute(f"create table {one} (i int)".encode())
        connection.execute(
            "insert into _structable_jobs values ('ended', 'items', 'upsert', 'committed', now() - interval '8 days'), "
            "('forgotten', 'items', 'upsert', 'open', now() - interval '8 days'), "
            "('recent', 'items', 'upsert', 'aborted', now() - interval '6 days')"
        )
        connection.execute("update _structable_jobs set changed = now() - interval '8 days' where job_id = 'alive'")
    with connect(postgresql_url) as other:
        begin(other, job_id="new")
    assert sorted(staging(postgresql_schema)) == sorted([aged, young, "_stage_of_somebody_else"])
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        jobs = connection.execute(f"select job_id from {postgresql_schema.name}._structable_jobs order by 1".encode())
        assert [job for (job,) in jobs] == ["alive", "new", "recent"]
    storage.commit_write(alive, [StagedWrite("alive", 0, 0, 1, kept.state.replace(name.encode(), aged.encode()))])
    assert storage.table("items").count() == 1


def test_ids_that_come_again_after_a_week(storage: Storage, postgresql_schema: Schema) -> None:
    """A record that is found as a job begins holds until its end, although records of its age are swept at once."""
    storage.commit_write(begin(storage, job_id="ended"), [])
    begin(storage, job_id="dead")
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(
            f"update {postgresql_schema.name}._structable_jobs set changed = now() - interval '8 days'".encode()
        )
    for job_id, committed in (("ended", True), ("dead", False)):
        with connect(postgresql_schema.url) as sweeping:
            job = begin(sweeping, job_id=job_id)
            assert job.committed is committed
            assert bool(sweeping.commit_write(job, [stage(sweeping, job, [{"id": 1, "tag": job_id}])])) is not committed
    assert [row.tag for row in storage.table("items").scan()] == ["dead"]
    found = begin(storage, job_id="dead")
    assert found.committed
    storage.admin.drop("items")
    with pytest.raises(TableNotFoundError):
        storage.commit_write(found, [])


@pytest.mark.parametrize("end", ["commit", "abort", "abort of a batch"])
def test_late_end_leaves_the_rows_of_the_next_job_of_its_id(
    storage: Storage, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The next job has the same id, on a new table of the same name; or is the same batch, begun again."""
    name: dict[str, Any] = {"stream": "s", "batch": 1} if end == "abort of a batch" else {"job_id": "job"}
    first = storage.begin_write("items", mode="upsert", **name)
    rows = [stage(storage, first, [{"id": 1}])]
    second: list[tuple[WriteJob, list[StagedWrite]]] = []

    def next_job(*arguments: Any) -> None:  # noqa: ANN401 - those of the call before which the next job begins
        if not second:
            if "job_id" in name:
                other.admin.drop("items")
                other.admin.create(ITEMS)
            job = other.begin_write("items", mode="upsert", **name)
            second.append((job, [stage(other, job, [{"id": 2}])]))
        drop_staging(*arguments)

    monkeypatch.setattr("structable.backends.postgresql.bulk.jobs.drop_staging", next_job)
    with connect(postgresql_url) as other:
        if end == "commit":
            assert storage.commit_write(first, rows)
        else:
            storage.abort_write(first)
        assert storage.commit_write(*second[0])
    assert [row.id for row in storage.table("items").scan()] == [2]


def test_rows_that_grow_over_the_limit_are_refused(storage: Storage) -> None:
    table = storage.table("items")
    large = MAX_ROW_SIZE // 2 + 100
    table.upsert_many([{"id": 1, "a": bytes(large)}, {"id": 2, "n": 2}])
    for mode in ("upsert", "update"):
        job = begin(storage, mode, job_id=mode)
        staged = [stage(storage, job, [{"id": 2, "b": b"x"}, {"id": 1, "b": bytes(large)}])]
        with pytest.raises(FieldSizeLimitError) as refusal:
            storage.commit_write(job, staged)
        assert refusal.value.size == 2 * large + 8
        assert [(row["id"], row["b"]) for row in table.scan()] == [(1, None), (2, None)]
        table.upsert({"id": 1, "a": None})
        storage.commit_write(job, staged)
        table.replace({"id": 1, "a": bytes(large)})
        table.replace({"id": 2, "n": 2})


def test_table_made_anew_is_another(storage: Storage) -> None:
    job = begin(storage)
    staged = stage(storage, job, [{"id": 1}])
    storage.admin.drop("items")
    storage.admin.create(ITEMS)
    with pytest.raises(TableNotFoundError) as refusal:
        storage.commit_write(job, [staged])
    assert "dropped since" in refusal.value.__notes__[0]
    assert storage.table("items").count() == 0


def test_records_of_an_earlier_version(storage: Storage, postgresql_url: str, postgresql_schema: Schema) -> None:
    """Records without a table's id belong to the table that has the name, or to none if that was dropped."""
    for name in ("other", "gone"):
        storage.admin.create(TableSpecification(name, ITEMS.fields, ["id"]))
    for job_id, table in (("done", "items"), ("open", "items"), ("aborted", "other"), ("gone", "gone")):
        job = storage.begin_write(table, mode="upsert", job_id=job_id)
        if job_id == "aborted":
            storage.abort_write(job)
        elif job_id != "open":
            storage.commit_write(job, [])
    opened = begin(storage, job_id="open")
    storage.admin.drop("gone")
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"alter table {postgresql_schema.name}._structable_jobs drop column table_id".encode())
    storage.commit_write(opened, [stage(storage, opened, [{"id": 1}])])
    storage.admin.create(TableSpecification("gone", ITEMS.fields, ["id"]))
    with connect(postgresql_url) as second:
        assert begin(second, job_id="done").committed
        assert begin(second, job_id="open").committed
        with pytest.raises(ValueError, match="aborted"):
            begin(second, job_id="aborted")
        assert not second.begin_write("gone", mode="upsert", job_id="gone").committed
        second.admin.drop("items")
        second.admin.create(ITEMS)
        assert not begin(second, job_id="done").committed


def test_dropped_staging_is_never_an_empty_job(storage: Storage, postgresql_schema: Schema) -> None:
    job = begin(storage)
    staged = stage(storage, job, [{"id": 1}])
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        connection.execute(f"drop table {postgresql_schema.name}.{staging(postgresql_schema)[0]}".encode())
    with pytest.raises(TransactionClosedError, match="gone"):
        storage.commit_write(job, [staged])


def test_crashed_server_loses_staged_rows(postgresql_server: Server) -> None:
    """Staging tables are not logged: a crash empties them, and the job is refused instead of doing nothing."""
    with connect(postgresql_server.url("s")) as storage:
        storage.admin.create(ITEMS)
        storage.table("items").upsert({"id": 9})
        jobs = [begin(storage, mode, job_id=mode) for mode in ("upsert", "delete", "update", "overwrite")]
        staged = [stage(storage, job, [{"id": 9}]) for job in jobs]
        postgresql_server.kill()
        postgresql_server.start()
        for job, one in zip(jobs, staged, strict=True):
            with pytest.raises(TransactionClosedError, match="gone"):
                storage.commit_write(job, [one])
        assert storage.table("items").count() == 1
        again = begin(storage, job_id="again")
        storage.commit_write(again, [stage(storage, again, [{"id": 1}])])
        assert storage.table("items").count() == 2


def test_overwrite_waits_for_writers_until_ddl_timeout(storage: Storage, postgresql_url: str) -> None:
    job = begin(storage, "overwrite")
    staged = stage(storage, job, [{"id": 5}])
    with psycopg.connect(postgresql_url.partition("?")[0]) as writer:
        schema = postgresql_url.rpartition("=")[2]
        writer.execute(f"insert into {schema}.items (id) values (1)".encode())
        with pytest.raises(StorageUnavailableError, match="ddl_timeout"):
            storage.commit_write(job, [staged])
    assert [row["id"] for row in storage.table("items").scan()] == [1]
    storage.commit_write(job, [staged])
    assert [row["id"] for row in storage.table("items").scan()] == [5]


@pytest.mark.parametrize(
    ("mode", "change", "left"),
    [
        ("update", {"tag": "new"}, "new"),
        ("delete", {}, None),
        ("changes", {"_change_type": "delete"}, None),
        ("patch", {"tag": "new", "_arm": "present"}, "new"),
        ("patch", {"_arm": "delete"}, None),
    ],
)
def test_row_that_is_written_anew_while_a_job_waits(
    storage: Storage, postgresql_schema: Schema, mode: str, change: dict[str, str], left: str | None
) -> None:
    """A job that waits for a writer of its row finds the row that the writer leaves, though it is another one."""
    storage.table("items").upsert({"id": 1, "n": 1})
    job = begin(storage, mode)
    columns: dict[str, pa.Array[Any]] = {name: pa.array([one]) for name, one in change.items()}
    staged = storage.stage(job, 0, 0, [pa.record_batch({"id": pa.array([1], pa.int64()), **columns})])
    statements = ("delete from items where id = 1", "insert into items (id, n) values (1, 2)")
    assert commit_behind(postgresql_schema, statements, storage, job, staged) == CommitResult(True, 0)
    assert storage.table("items").read((1,), ["n", "tag"]) == (left and {"id": 1, "n": 2, "tag": left})


@pytest.mark.parametrize("cut", list(Cut))
def test_commit_whose_answer_was_lost(postgresql_schema: Schema, cut: Cut) -> None:
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(ITEMS)
        job = begin(storage)
        staged = stage(storage, job, [{"id": 1, "n": 1}])
        trap = proxy.trap(statement(r"^\s*commit\b"), cut)
        if cut is Cut.BEFORE:
            with pytest.raises(StorageUnavailableError):
                storage.commit_write(job, [staged])
            assert storage.table("items").count() == 0
        else:
            assert storage.commit_write(job, [staged])
        trap.wait()
        assert storage.commit_write(job, [staged]).applied is (cut is Cut.BEFORE)
        assert [row["n"] for row in storage.table("items").scan()] == [1]
        storage.table("items").delete((1,))
        storage.commit_write(job, [staged])
        assert storage.table("items").count() == 0


@pytest.mark.parametrize("cut", list(Cut))
def test_connection_lost_while_rows_are_staged(postgresql_schema: Schema, cut: Cut) -> None:
    with Proxy(postgresql_schema.conninfo) as proxy, connect(proxy.url(postgresql_schema.url)) as storage:
        storage.admin.create(ITEMS)
        job = begin(storage)
        proxy.trap(lambda message: message.kind == b"d", cut)
        with pytest.raises(StorageUnavailableError):
            stage(storage, job, [{"id": 1, "n": 1}])
        storage.commit_write(job, [stage(storage, job, [{"id": 2, "n": 2}])])
        assert [row["id"] for row in storage.table("items").scan()] == [2]


@pytest.mark.parametrize("job_id", ["\0", "\ud800", 7, None])
def test_ids_that_cannot_be_kept(storage: Storage, job_id: object) -> None:
    with pytest.raises(ValueError, match="job_id"):
        begin(storage, job_id=job_id)  # type: ignore[arg-type] # the mistake


def test_state_of_another_job_is_refused(storage: Storage) -> None:
    first, second = begin(storage, job_id="first"), begin(storage, job_id="second")
    staged = stage(storage, first, [{"id": 1, "tag": "x"}])
    forged = StagedWrite("second", 0, 0, 1, staged.state)
    with pytest.raises(Exception, match="staging table"):
        storage.commit_write(second, [forged])
    with pytest.raises(ValueError, match="first"):
        storage.commit_write(second, [staged])


def test_dates_come_back(storage: Storage) -> None:
    storage.admin.create(VALUES)
    rows: list[Record] = [
        {"k1": "a", "k2": b"", "date": dt.date(1969, 12, 31), "at_ntz": dt.datetime(1969, 12, 31, 23, 59)}
    ]
    job = storage.begin_write("values", mode="insert", job_id="dates")
    storage.commit_write(job, [storage.stage(job, 0, 0, rows_to_batches(VALUES, rows, list(rows[0])))])
    assert storage.table("values").read(("a", b""), ["date", "at_ntz"]) == rows[0]


def test_jobs_that_write_the_same_rows_in_other_orders(storage: Storage) -> None:
    """Jobs committed at once may deadlock, and resolve it themselves."""
    jobs = [begin(storage, job_id=f"{number}") for number in range(3)]
    orders = [range(4_000), range(3_999, -1, -1), range(4_000)]
    staged = [
        stage(storage, job, [{"id": key, "n": number} for key in order])
        for number, (job, order) in enumerate(zip(jobs, orders, strict=True))
    ]
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(storage.commit_write, job, [one]) for job, one in zip(jobs, staged, strict=True)]:
            done.result()
    assert len({row["n"] for row in storage.table("items").scan()}) == 1
    assert storage.table("items").count() == 4_000


def test_one_job_committed_by_several_at_once(storage: Storage) -> None:
    job = begin(storage, "insert")
    staged = stage(storage, job, [{"id": key} for key in range(2_000)])
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(storage.commit_write, job, [staged]) for _ in range(4)]:
            done.result()
    assert storage.table("items").count() == 2_000


@pytest.mark.parametrize("mode", ["upsert", "insert", "replace", "update", "delete", "overwrite"])
def test_table_changed_between_stage_and_commit(storage: Storage, postgresql_url: str, mode: str) -> None:
    """Rows staged before fields were widened and added, and an index, are committed as rows of the present table."""
    table = storage.table("items")
    table.upsert_many([{"id": 1, "n": 1, "b": b"b"}, {"id": 2, "n": 1}])
    job = begin(storage, mode)
    key = 3 if mode == "insert" else 1
    rows: list[dict[str, Any]] = [{"id": key}] if mode == "delete" else [{"id": key, "n": 7, "a": b"x"}]
    staged = stage(storage, job, rows)
    wide = [Field.long("n") if field.name == "n" else field for field in ITEMS.fields]
    changed = TableSpecification("items", [*wide, Field.int("more")], ["id"], ["tag", "n"])
    with connect(postgresql_url) as other:
        other.admin.create_or_update(changed)
        other.table("items").upsert_many([{"id": 1, "more": 5}, {"id": 2, "n": 1 << 40}])
    storage.commit_write(job, [staged])
    new = {"id": key, "n": 7, "a": b"x", "b": None, "tag": None, "more": None}
    one = {**new, "id": 1, "n": 1, "a": None, "b": b"b", "more": 5}
    two = {**new, "id": 2, "n": 1 << 40, "a": None}
    expected = {
        "upsert": [{**one, "n": 7, "a": b"x"}, two],
        "insert": [one, two, new],
        "replace": [new, two],
        "update": [{**one, "n": 7, "a": b"x"}, two],
        "delete": [two],
        "overwrite": [new],
    }
    assert list(table.scan()) == expected[mode]
    assert list(table.scan_index("n", 7)) == [row for row in expected[mode] if row["n"] == 7]


def test_commit_stands_if_the_clean_up_fails(storage: Storage, postgresql_schema: Schema) -> None:
    """Staging tables that cannot be dropped are left to a sweep; the job is committed, and reported so."""
    with connect(f"{postgresql_schema.url}&statement_timeout=0.5") as hurried:
        job = begin(hurried)
        staged = stage(hurried, job, [{"id": 5}])
        with psycopg.connect(postgresql_schema.conninfo) as reader:
            reader.execute(f"select * from {postgresql_schema.name}.{staging(postgresql_schema)[0]}".encode())
            hurried.commit_write(job, [staged])
            aborted = begin(hurried, job_id="aborted")
            hurried.abort_write(aborted)
        assert hurried.table("items").count() == 1


def test_more_partitions_than_the_server_has_locks_for(start_postgresql: StartServer) -> None:
    """The refusal names the remedy, and nothing was written; with more locks, all would be."""
    server = start_postgresql(max_connections="20", max_locks_per_transaction="10")
    with connect(server.url("s")) as storage:
        storage.admin.create(ITEMS)
        job = begin(storage)
        staged = [stage(storage, job, [{"id": place}], place) for place in range(700)]
        with pytest.raises(StorageUnavailableError, match=r"700 .*max_locks_per_transaction"):
            storage.commit_write(job, staged)
        assert storage.table("items").count() == 0
        storage.commit_write(job, staged[:100])
        assert storage.table("items").count() == 100
