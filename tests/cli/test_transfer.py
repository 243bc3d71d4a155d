"""import and export: round trips of all types in all formats, atomicity, the place of errors, bounded memory."""

import codecs
import csv
import datetime as dt
import gzip
import io
import json
import math
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from structable.spi import Field, Range, Storage, TableSpecification, Value, col, connect
from structable.spi.arrow import arrow_schema
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.support.samples import EVERYTHING, ROWS, RUNS

FILES = ["x.csv", "x.json", "x.jsonl", "x.arrow", "x.arrows", "x.feather", "x.parquet"]


def comparable(row: dict[str, Value]) -> dict[str, object]:
    # NaN differs from itself, and 1.50 from 1.5 only in its digits.
    return {name: "NaN" if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def content(storage: Storage, table: str) -> list[dict[str, object]]:
    with storage.table(table).scan() as rows:
        return [comparable(dict(row)) for row in rows]


@every_store
@pytest.mark.parametrize("name", FILES)
def test_export_and_import_round_trip(
    structable: Command, url: str, copy_url: str, storage: Storage, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    outcome = structable("export", url, "everything", file)
    assert outcome == (0, "", f"{len(ROWS)} rows of table everything are in {file}\n")
    assert os.listdir(tmp_path) == [name]
    with connect(copy_url) as copy:
        copy.admin.create(EVERYTHING)
        outcome = structable("import", copy_url, "everything", file, "--mode", "insert", "--job-id", "first")
        assert outcome == (0, "", f"{len(ROWS)} rows of {file} are in table everything (job first)\n")
        assert content(copy, "everything") == content(storage, "everything")


@pytest.mark.parametrize("format_", ["csv", "json", "arrow"])
def test_through_standard_streams(
    structable: Command, process: Command, tmp_path: Path, url: str, storage: Storage, format_: str
) -> None:
    out = tmp_path / "out"
    assert structable("export", url, "everything", out, "--format", format_).code == 0
    with connect(f"{url}copy") as copy:
        copy.admin.create(EVERYTHING)
        stdin = out.read_bytes()
        assert structable("import", f"{url}copy", "everything", "-", "--format", format_, stdin=stdin).code == 0
        assert content(copy, "everything") == content(storage, "everything")


@every_store
def test_export_of_a_selection(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    structable("export", url, "runs", file, "--prefix", "etl", "--where", "attempt == 1", "--columns", "status,started")
    assert file.read_text() == "status,started\n,-3\nFAILED,10\n"


def test_export_to_standard_output(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("export", url, "runs", "-", "--format", "csv", "--columns", "app")
    assert outcome.out == "app\netl\netl\netl\nweb\n"
    assert outcome.err == "4 rows of table runs are in standard output\n"


@every_store
def test_export_of_no_rows(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    for name in FILES:
        assert structable("export", url, "runs", tmp_path / name, "--prefix", "none").code == 0
        assert structable("import", url, "runs", tmp_path / name).code == 0
    assert pq.read_schema(tmp_path / "x.parquet") == arrow_schema(RUNS)
    assert storage.table("runs").count() == 4


def test_filters_of_other_tools_find_nan_in_a_parquet_file(
    structable: Command, url: str, storage: Storage, tmp_path: Path
) -> None:
    storage.admin.create(TableSpecification("floats", [Field.long("k"), Field.double("x")], ["k"]))
    storage.table("floats").upsert_many([{"k": 1, "x": math.nan}, {"k": 2, "x": 1.0}])
    file = tmp_path / "x.parquet"
    assert structable("export", url, "floats", file).code == 0
    found = dataset.dataset(file).to_table(filter=dataset.field("x").is_nan())
    assert found["k"].to_pylist() == [1]
    larger = duckdb.sql(f"select k from '{file}' where x > 2")  # to DuckDB, NaN is the largest number
    assert larger is not None
    assert larger.fetchall() == [(1,)]


def test_export_keeps_the_old_file_where_it_fails(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("old")
    fails(2, "export", url, "runs", file, "--where", "cost")
    assert file.read_text() == "old"
    assert fails(1, "export", url, "runs", tmp_path / "none" / "x.csv").endswith("No such file or directory")
    assert fails(1, "export", url, "runs", tmp_path, "--format", "csv").endswith("Is a directory")
    assert os.listdir(tmp_path) == ["x.csv"]


def test_export_keeps_links_and_permissions(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file, link = tmp_path / "x.csv", tmp_path / "link.csv"
    file.touch(mode=0o640)
    link.symlink_to(file)
    assert structable("export", url, "runs", link).code == 0
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.read_text().startswith("app,")


@every_store
@pytest.mark.parametrize("form", ["csv", "json", "arrow", "parquet"])
def test_export_is_in_key_order(structable: Command, url: str, storage: Storage, tmp_path: Path, form: str) -> None:
    numbers = list(range(3_000))
    random.Random(1).shuffle(numbers)
    table = storage.table("runs")
    table.delete_all(Range.all())
    for first in range(0, len(numbers), 500):
        rows = numbers[first : first + 500]
        table.upsert_many({"app": f"a{n % 7}", "started": n, "attempt": 1, "status": "x" * 90} for n in rows)
    table.update_all(Range.prefix(("a3",)), {"status": "y" * 100})
    file = tmp_path / f"x.{form}"
    assert structable("export", url, "runs", file, "--columns", "app,started,status").code == 0
    expected = [(f"a{n % 7}", n, ("y" if n % 7 == 3 else "x")) for n in numbers]
    assert exported(file) == sorted(expected)
    assert structable("export", url, "runs", file, "--columns", "app,started,status", "--unordered").code == 0
    assert sorted(exported(file)) == sorted(expected)


def exported(file: Path) -> list[tuple[str, int, str]]:
    """Return app, started and the first letter of the status of each row of a file, in the file's order."""
    match file.suffix:
        case ".csv":
            rows = list(csv.DictReader(file.read_text().splitlines()))
        case ".json":
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        case ".arrow":
            with pa.ipc.open_file(str(file)) as reader:
                rows = reader.read_all().to_pylist()
        case _:
            rows = pq.read_table(file).to_pylist()
    return [(row["app"], int(row["started"]), row["status"][0]) for row in rows]


@every_store
@pytest.mark.parametrize(
    ("mode", "statuses"),
    [
        ("upsert", {("a", 1): ("new", 1.0), ("b", 1): ("old", 1.0), ("c", 1): ("new", None)}),
        ("replace", {("a", 1): ("new", None), ("b", 1): ("old", 1.0), ("c", 1): ("new", None)}),
        ("overwrite", {("a", 1): ("new", None), ("c", 1): ("new", None)}),
    ],
)
def test_modes(
    structable: Command, url: str, storage: Storage, tmp_path: Path, mode: str, statuses: dict[object, object]
) -> None:
    table = storage.table("runs")
    storage.admin.drop("runs")
    storage.admin.create(RUNS)
    table.upsert_many({"app": app, "started": 1, "attempt": 1, "status": "old", "cost": 1.0} for app in "ab")
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt,status\na,1,1,new\nc,1,1,new\n")
    assert structable("import", url, "runs", file, "--mode", mode, "--yes").code == 0
    with table.scan() as rows:
        assert {row.key[:2]: (row.status, row.cost) for row in rows} == statuses


@every_store
def test_update_and_insert_are_all_or_nothing(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt,status\netl,10,1,new\nx,1,1,new\n")
    assert "has no row with the key ('x', 1, 1)" in fails(3, "import", url, "runs", file, "--mode", "update")
    assert "already has a row" in fails(1, "import", url, "runs", file, "--mode", "insert")
    row = storage.table("runs").read(("etl", 10, 1))
    assert row is not None
    assert row.status == "FAILED"
    assert storage.table("runs").count() == 4


@every_store
def test_delete_mode_takes_keys(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"app": "etl", "started": 10, "attempt": 1}\n{"app": "none", "started": 1, "attempt": 1}\n')
    assert structable("import", url, "runs", file, "--mode", "delete").code == 0
    assert storage.table("runs").count() == 3


@every_store
def test_a_job_counts_once_and_says_so(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt,status\netl,10,1,first\n")
    assert structable("import", url, "runs", file, "--job-id", "nightly").err.startswith("1 row of ")
    storage.table("runs").upsert({"app": "etl", "started": 10, "attempt": 1, "status": "later"})
    again = structable("import", url, "runs", file, "--job-id", "nightly")
    assert again == (0, "", "job nightly was already committed; nothing was done\n")
    row = storage.table("runs").read(("etl", 10, 1))
    assert row is not None
    assert row.status == "later"


@every_store
def test_a_failed_job_can_be_repeated_under_its_id(
    structable: Command, fails: Fails, url: str, storage: Storage, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\nx,1,one\n")
    fails(2, "import", url, "runs", file, "--job-id", "nightly")
    file.write_text("app,started,attempt\nx,1,1\n")
    assert structable("import", url, "runs", file, "--job-id", "nightly").code == 0
    assert storage.table("runs").count() == 5


def test_job_ids_are_checked(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\nx,1,1\n")
    assert "job" in fails(1, "import", url, "runs", file, "--job-id", "x" * 201)


@every_store
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("upsert", "3 rows (2 different keys) of FILE are in table runs"),
        ("delete", "3 rows (2 different keys) of FILE are no longer in table runs"),
        ("overwrite", "3 rows (2 different keys) of FILE are all that is in table runs"),
    ],
)
def test_import_reports_its_rows(
    structable: Command, url: str, storage: Storage, tmp_path: Path, mode: str, expected: str
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\netl,10,1\nx,1,1\netl,10,1\n")
    outcome = structable("import", url, "runs", file, "--mode", mode, "--yes", "--job-id", "j")
    assert outcome.err == expected.replace("FILE", str(file)) + " (job j)\n"


@every_store
@pytest.mark.parametrize("mode", ["upsert", "overwrite", "delete"])
def test_expected_rows(
    structable: Command, fails: Fails, url: str, storage: Storage, tmp_path: Path, mode: str
) -> None:
    before = content(storage, "runs")
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\netl,10,1\nx,1,1\n")
    args = ("import", url, "runs", file, "--mode", mode, "--yes", "--job-id", "j", "--expect-rows")
    for wrong in (0, 1, 3):
        message = fails(2, *args, wrong)
        assert f"has 2 rows, --expect-rows says {wrong}; nothing was written" in message
        assert content(storage, "runs") == before
    assert structable(*args, 2).code == 0
    assert content(storage, "runs") != before


@every_store
@pytest.mark.parametrize("mode", ["upsert", "overwrite", "delete"])
def test_import_on_trial(
    structable: Command, fails: Fails, url: str, storage: Storage, tmp_path: Path, mode: str
) -> None:
    before = content(storage, "runs")
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\netl,10,1\nx,1,1\n")
    outcome = structable("import", url, "runs", file, "--mode", mode, "--dry-run", "--job-id", "j")
    assert outcome == (0, "", f"2 rows of {file} fit table runs; nothing was written\n")
    assert content(storage, "runs") == before
    assert structable("import", url, "runs", file, "--job-id", "j").err.endswith("in table runs (job j)\n")
    file.write_text("app,started,attempt\n,10,1\n")
    assert "line 2" in fails(2, "import", url, "runs", file, "--dry-run")


def test_overwriting_needs_a_yes(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("app,started,attempt\nx,1,1\n")
    message = fails(2, "import", url, "runs", tmp_path / "x.csv", "--mode", "overwrite")
    assert f"overwrite table runs with 4 rows in {storage.url}? There is no terminal to ask on; give --yes" in message
    assert f"empty table runs with 4 rows in {storage.url}? There is no terminal to ask on; give --yes" in fails(
        2, "delete", url, "runs", "--all"
    )
    assert storage.table("runs").count() == 4


def arrow_bytes(*, streamed: bool, batches: int = 3) -> tuple[bytes, list[int]]:
    """Return Arrow IPC with one row per batch, and the end of each batch."""
    sink = io.BytesIO()
    ends = []
    schema = arrow_schema(RUNS, ["app", "started", "attempt"])
    with pa.ipc.new_stream(sink, schema) if streamed else pa.ipc.new_file(sink, schema) as writer:
        for number in range(batches):
            writer.write_batch(pa.RecordBatch.from_pylist([{"app": "cut", "started": number, "attempt": 1}], schema))
            ends.append(sink.tell())
    return sink.getvalue(), ends


PipedImport = Callable[[bytes], str]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_cut_arrow_is_refused(
    fails: Fails, structable: Command, url: str, storage: Storage, tmp_path: Path, kind: str, mode: str
) -> None:
    before = content(storage, "runs")
    whole, ends = arrow_bytes(streamed=kind == "stream")
    file = tmp_path / "x.arrow"
    cuts = {0, 4, len(whole) // 2, len(whole) - 1, len(whole) - 4, len(whole) - 8, *ends, *(end - 1 for end in ends)}
    args = ("import", url, "runs", file, "--mode", mode, "--yes")
    for cut in sorted(cuts):
        file.write_bytes(whole[:cut])
        message = fails(2, *args)
        assert "cut" in message, cut
        assert fails(2, "import", url, "runs", "-", "--format", "arrow", "--mode", mode, "--yes", stdin=whole[:cut])
        assert content(storage, "runs") == before
    file.write_bytes(whole + whole)
    if kind == "stream":
        assert "more follows the end of the Arrow stream" in fails(2, *args)
    assert content(storage, "runs") == before
    file.write_bytes(whole)
    assert structable(*args).code == 0
    assert storage.table("runs").count(where=col("app") == "cut") == 3


@pytest.mark.parametrize("streamed", [True, False])
def test_arrow_through_a_pipe(database_process: PipedImport, streamed: bool) -> None:
    whole, ends = arrow_bytes(streamed=streamed)
    assert database_process(whole).endswith("3 rows of standard input are in table runs")
    for cut in (ends[1], len(whole) - 1):
        assert "cut" in database_process(whole[:cut])


@pytest.fixture
def database_process(process: Command, tmp_path: Path) -> PipedImport:
    """Return a function that imports its input through a pipe, and returns the output."""
    url = f"leveldb://{tmp_path}/store?durability=process"
    with connect(url) as storage:
        storage.admin.create(RUNS)

    def run(data: bytes) -> str:
        return process("import", url, "runs", "-", "--format", "arrow", stdin=data).err.partition(" (job")[0].strip()

    return run


@pytest.mark.parametrize("name", ["x.csv.gz", "x.jsonl.gz"])
def test_compressed_text(
    structable: Command, fails: Fails, url: str, storage: Storage, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    assert structable("export", url, "everything", file).code == 0
    whole = file.read_bytes()
    assert structable("export", url, "everything", file).code == 0
    assert file.read_bytes() == whole
    before = content(storage, "everything")
    assert gzip.decompress(whole).startswith((b"k,truth", b'{"k"'))
    storage.table("everything").delete_all(Range.prefix(("most",)))
    short = content(storage, "everything")
    for cut in (len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1):
        file.write_bytes(whole[:cut])
        assert "is truncated or damaged" in fails(2, "import", url, "everything", file)
    file.write_bytes(whole[:-8] + b"damaged!")
    assert "is truncated or damaged" in fails(2, "import", url, "everything", file)
    assert content(storage, "everything") == short
    form = "csv" if ".csv" in name else "json"
    assert structable("import", url, "everything", "-", "--format", form, stdin=whole).code == 0
    assert content(storage, "everything") == before
    assert "gzip compresses csv and json only" in fails(2, "export", url, "runs", tmp_path / "x.parquet.gz")


def test_nulls_of_an_only_column(structable: Command, fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    """A row whose only cell is empty is a blank line, which is no row in a file of keys."""
    file = tmp_path / "x.csv"
    bag = TableSpecification("bag", [Field.long("n")], options={"write-mode": "change-log"})
    for name in ("bag", "copy"):
        storage.admin.create(bag.evolve(name=name))
    storage.table("bag").insert_many([{"n": None}, {"n": 1}, {"n": None}])
    assert structable("export", url, "bag", file).code == 0
    assert structable("import", url, "copy", file).err.startswith("3 rows of ")
    found = [row.n for row in storage.table("copy").scan()]
    assert sorted(found, key=str) == [1, None, None]
    file.write_text("n\n\none\n")
    assert "line 3, field 'n': 'one' is not" in fails(2, "import", url, "copy", file)
    storage.admin.create(TableSpecification("keys", [Field.string("k")], ["k"]))
    file.write_text("k\n\na\n\n")
    assert structable("import", url, "keys", file).err.startswith("1 row of ")


def test_a_mark_of_the_byte_order_in_a_text_is_kept(
    structable: Command, url: str, storage: Storage, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    storage.table("runs").upsert_many({"app": app, "started": 1, "attempt": 1} for app in ("\ufeff", "\ufeffa"))
    before = content(storage, "runs")
    columns = ("--columns", "app,started,attempt", "--at-least", "\ufeff")
    assert structable("export", url, "runs", file, *columns).code == 0
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert structable("import", url, "runs", file).code == 0
    assert content(storage, "runs") == before


HEAD = b"app,started,attempt,status\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"\n" + HEAD + b"a,1,1,x\n", "its first line is blank; it must name the columns"),
        ("x.csv", b"x" * 200_000 + b"\n", "xxx' is not a field; the fields are app,"),
        ("x.csv", b'app",started\n' + b"a,1,1,x\n" * 300_000, "line 1: a quote is not closed"),
        ("x.csv", b"app,nope\n", "the column 'nope' is not a field; the fields are app,"),
        ("x.csv", b"app,app\n", "the column 'app' appears twice"),
        ("x.csv", HEAD + b"a,1,1,x\na,2\n", "line 3: there are 2 cells; the first line has 4"),
        ("x.csv", HEAD + b'a,1,1,"x\ny"\n\na,2,3,4,5\n', "line 5: there are 5 cells"),
        ("x.csv", HEAD + b'a,1,1,"x\ny"\n\na,two,3,4\n', "line 5, field 'started': 'two' is not a whole number"),
        ("x.csv", HEAD + b"a,1,3000000000,x\n", "line 2, field 'attempt': 3000000000 is out of the range of int"),
        ("x.csv", HEAD + b'a,1,1,"cut off\na,2,1,x\n', "line 2: a quote is not closed"),
        ("x.csv", HEAD + b'a,1,1,x"y"\n', "line 2: a quote stands inside a cell"),
        ("x.csv", HEAD + b'a,1,1,"x"y\n', "line 2: a quote stands inside a cell"),
        ("x.csv", HEAD + b"a,1,1,x\ry\n", "line 2: a carriage return stands alone"),
        ("x.csv", HEAD + b"a,1,1,x\nb,1,1,\xff\n", "line 3: the text is not UTF-8"),
        ("x.csv", HEAD + b"a,1,1,x\n,1,1,x\n", "line 3: table 'runs', field 'app': is part of the primary key"),
        ("x.csv", HEAD + b"a,1,1,a\0b\n", "line 2: table 'runs', field 'status'"),
        ("x.csv", HEAD + b"a,1,1," + b"x" * 3000 + b"\n", "line 2: table 'runs', field 'status': 3,000 bytes"),
        ("x.csv", b"app,status\na,x\n", "field 'started'"),
        ("x.jsonl", b'\n{"app": "a"}\n{"app": "b"}\n', "line 2: table 'runs', field 'started'"),
        ("x.jsonl", b'\n{"app": 1}\n', "line 2: field 'app': 1 is of type int; a str is needed"),
        ("x.jsonl", b'{"app": "a",\n', "line 1: "),
        ("x.jsonl", b'{"app": "\xff"}\n', "line 1: the text is not UTF-8"),
        ("x.jsonl", b'{}\n{"app": "a", "started": 1, "attempt": 1}\n', "line 1: the object names no field"),
        ("x.parquet", b"nothing of the kind", "is not a Parquet file"),
        ("x.arrow", b"nothing of the kind", "is not Arrow's IPC format"),
        ("x.arrow", b"", "is not Arrow's IPC format"),
        ("x.xml", b"", "names no format; give --format"),
    ],
)
def test_wrong_files(
    fails: Fails, url: str, storage: Storage, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    found = fails(2, "import", url, "runs", file)
    assert message in found
    assert str(file) in found
    assert storage.table("runs").count() == 4


@pytest.mark.parametrize(
    ("text", "damaged", "message"),
    [
        (b"status", b"stat\xffs", "the name of a column is not UTF-8: b'stat\\xffs'"),
        (
            b"+I",
            b"+\xff",
            "is not Arrow's IPC format, or is cut or damaged: In column 4: Invalid: Invalid UTF8 sequence",
        ),
    ],
)
def test_damaged_arrow_is_refused(
    fails: Fails, url: str, storage: Storage, tmp_path: Path, text: bytes, damaged: bytes, message: str
) -> None:
    row = {"app": "a", "started": 1, "attempt": 1, "status": "x", "_change_type": "+I"}
    batch = pa.RecordBatch.from_pylist([row])
    with pa.ipc.new_stream(str(tmp_path / "x.arrows"), batch.schema) as writer:
        writer.write_batch(batch)
    file = tmp_path / "x.arrows"
    file.write_bytes(file.read_bytes().replace(text, damaged))
    assert f"{file}: {message}" in fails(2, "import", url, "runs", file, "--mode", "changes")


@pytest.mark.parametrize("repeated", ["app", "_change_type"])
def test_a_repeated_column_of_arrow(fails: Fails, url: str, storage: Storage, tmp_path: Path, repeated: str) -> None:
    columns = {"app": "a", "started": 1, "attempt": 1, "_change_type": "+I"}
    names = [*columns, repeated]
    batch = pa.RecordBatch.from_arrays([pa.array([columns[name]]) for name in names], names)
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), batch.schema) as writer:
        writer.write_batch(batch)
    message = fails(2, "import", url, "runs", tmp_path / "x.arrow", "--mode", "changes")
    assert message.endswith(f"x.arrow: the column {repeated!r} appears twice")


def test_files_that_cannot_be_read(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    assert fails(2, "import", url, "runs", tmp_path / "none.csv").endswith("none.csv: No such file or directory")
    assert fails(2, "import", url, "runs", tmp_path, "--format", "csv").endswith("Is a directory")
    assert "standard input or output names no format" in fails(2, "import", url, "runs", "-", stdin="")
    assert "not from standard input" in fails(2, "import", url, "runs", "-", "--format", "parquet", stdin="")


def test_a_wrong_row_far_behind_is_found(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    with file.open("w") as stream:
        stream.write("app,started,attempt,status\n")
        for number in range(150_000):
            stream.write(f'a,{number},1,"some text, of\n two lines {"x" * 20}"\n')
        stream.write("a,-1,one,x\n")
    assert f"line {2 + 300_000}, field 'attempt': 'one'" in fails(2, "import", url, "runs", file)
    assert storage.table("runs").count() == 4


def test_rows_of_the_largest_size(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    size = 8 * 1024 * 1024 - 100
    storage.table("everything").upsert({"k": "raw", "raw": os.urandom(1024) * (size // 1024)})
    storage.table("everything").upsert({"k": "quotes", "text": None, "raw": b'"\n' * (size // 2)})
    for name in ("x.csv", "x.jsonl", "x.parquet"):
        assert structable("export", url, "everything", tmp_path / name).code == 0
        with connect(f"{url}{name}") as copy:
            copy.admin.create(EVERYTHING)
            assert structable("import", f"{url}{name}", "everything", tmp_path / name).code == 0
            assert content(copy, "everything") == content(storage, "everything")


def test_parquet_of_others_is_cast_where_no_value_changes(
    structable: Command, url: str, storage: Storage, tmp_path: Path
) -> None:
    noon = dt.datetime(2024, 5, 31, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    table = pa.table(
        {
            "k": pa.array(["foreign"], pa.large_string()).dictionary_encode(),
            "b": pa.array([5], pa.int64()),
            "l": pa.array([5], pa.uint8()),
            "f": pa.array([0.1], pa.float64()),
            "d": pa.array([7], pa.int32()),
            "money": pa.array([Decimal("1.5")], pa.decimal128(5, 2)),
            "at": pa.array([noon], pa.timestamp("ns", tz="Europe/Berlin")),
            "local": pa.array([dt.datetime(2024, 5, 31)], pa.timestamp("s")),
            "day": pa.array([dt.date(2024, 5, 31)], pa.date64()),
            "text": pa.array([None], pa.null()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert structable("import", url, "everything", tmp_path / "x.parquet").code == 0
    row = storage.table("everything").read(("foreign",))
    assert row is not None
    expected = {"b": 5, "l": 5, "d": 7.0, "money": Decimal("1.5"), "at": noon, "text": None, "f": 0.10000000149011612}
    assert {name: row[name] for name in expected} == expected
    assert (row.local, row.day) == (dt.datetime(2024, 5, 31), dt.date(2024, 5, 31))


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("b", pa.array([300], pa.int64()), "300"),
        ("b", pa.array([1.5]), "row 1, field 'b': 1.5 is not a whole number"),
        ("f", pa.array([1e300]), "beyond a 32-bit float"),
        ("l", pa.array(["1"]), "string"),
        ("at", pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us")), "timestamp"),
        (
            "local",
            pa.array([1], pa.timestamp("ns")),
            "row 1, field 'local': 1970-01-01 00:00:00.000000001 is finer than a microsecond",
        ),
        ("day", pa.array([-719528], pa.int32()).cast(pa.date32()), "outside of the years 1 to 9999"),
        ("nope", pa.array([1]), "is not a field"),
    ],
)
def test_parquet_of_others_is_refused_where_values_would_change(
    fails: Fails, url: str, storage: Storage, tmp_path: Path, name: str, column: "pa.Array[Any]", message: str
) -> None:
    pq.write_table(pa.table({"k": ["x"], name: column}), tmp_path / "x.parquet")
    assert message in fails(2, "import", url, "everything", tmp_path / "x.parquet")
    assert storage.table("everything").count() == len(ROWS)
