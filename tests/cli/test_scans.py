"""scan, count and explain."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from structable.spi import Storage
from structable.spi.arrow import arrow_schema
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.support.samples import EVERYTHING, ROWS, RUNS


def keys(structable: Command, url: str, *args: object) -> list[tuple[object, ...]]:
    outcome = structable("scan", url, "runs", "--format", "json", *args)
    assert outcome.code == 0, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    return [(row["app"], row["started"], row["attempt"]) for row in rows]


ETL_OLD, ETL_1, ETL_2, WEB = ("etl", -3, 1), ("etl", 10, 1), ("etl", 10, 2), ("web", 7, 1)


@every_store
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], [ETL_OLD, ETL_1, ETL_2, WEB]),
        (["--reverse"], [WEB, ETL_2, ETL_1, ETL_OLD]),
        (["--limit", 2], [ETL_OLD, ETL_1]),
        (["--limit", 0], []),
        (["--where", "status == 'RUNNING'"], [ETL_2, WEB]),
        (["--prefix", "etl"], [ETL_OLD, ETL_1, ETL_2]),
        (["--prefix", "etl", "--prefix", 10], [ETL_1, ETL_2]),
        (["--prefix", "etl", "--prefix", -3], [ETL_OLD]),
        (["--at-least", "etl", "--at-least", 10], [ETL_1, ETL_2, WEB]),
        (["--above", "etl"], [WEB]),
        (["--at-most", "etl"], [ETL_OLD, ETL_1, ETL_2]),
        (["--below", "etl", "--below", 10, "--below", 2], [ETL_OLD, ETL_1]),
        (["--above", "etl", "--above", -3, "--at-most", "etl"], [ETL_1, ETL_2]),
        (["--order-by", "status"], [ETL_OLD, ETL_1, ETL_2, WEB]),
        (["--order-by", "status", "--reverse", "--limit", 1], [WEB]),
    ],
)
def test_selection(
    structable: Command, url: str, storage: Storage, args: list[object], expected: list[tuple[object, ...]]
) -> None:
    assert keys(structable, url, *args) == expected


def test_table_for_people(structable: Command, url: str, storage: Storage) -> None:
    lines = [line.split() for line in structable("scan", url, "runs", "--columns", "status, app").out.splitlines()]
    assert lines[0] == ["status", "app"]
    assert lines[2:] == [["null", "etl"], ["FAILED", "etl"], ["RUNNING", "etl"], ["RUNNING", "web"]]


def test_table_has_a_line_for_each_row_whatever_it_holds(structable: Command, url: str, storage: Storage) -> None:
    storage.table("everything").upsert({"k": "evil", "text": "[red]\x1b[31m\nx" + "y" * 300})
    outcome = structable("scan", url, "everything", "--columns", "k,text", "--prefix", "evil")
    line = outcome.out.splitlines()[2]
    assert "[red]\\x1b[31m\\nxyyy" in line
    assert line.rstrip().endswith("y…")


def test_table_is_cut_with_a_note(structable: Command, url: str, storage: Storage) -> None:
    storage.table("runs").upsert_many({"app": "many", "started": i, "attempt": 1} for i in range(200))
    outcome = structable("scan", url, "runs")
    assert len(outcome.out.splitlines()) == 2 + 100
    assert outcome.err == "structable: only the first 100 rows are shown; --limit shows more\n"
    outcome = structable("scan", url, "runs", "--limit", 150)
    assert (len(outcome.out.splitlines()), outcome.err) == (2 + 150, "")
    assert structable("scan", url, "runs", "--prefix", "etl").err == ""


def test_empty_table_has_a_head(structable: Command, url: str, storage: Storage) -> None:
    assert structable("scan", url, "runs", "--prefix", "none").out.split()[0] == "app"
    assert structable("scan", url, "runs", "--prefix", "none", "--format", "csv").out.startswith("app,started,")
    assert structable("scan", url, "runs", "--prefix", "none", "--format", "json").out == ""


def test_csv_tells_null_from_the_empty_string(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable(
        "scan", url, "everything", "--columns", "k,text", "--where", "k < 'text 01'", "--format", "csv"
    )
    lines = outcome.out.splitlines()
    assert lines[0] == "k,text"
    assert "all null," in lines
    assert 'least,""' in lines


def test_csv_is_read_by_others(structable: Command, url: str, storage: Storage) -> None:
    text = structable("scan", url, "everything", "--columns", "k,text", "--format", "csv").out
    read = {row["k"]: row["text"] for row in csv.DictReader(io.StringIO(text, newline=""))}
    assert read == {row["k"]: row["text"] or "" for row in ROWS}


def test_json_lines(structable: Command, url: str, storage: Storage) -> None:
    lines = structable("scan", url, "everything", "--format", "json").out.split("\n")
    rows = {row["k"]: row for row in map(json.loads, lines[:-1])}
    assert rows["all null"] == {**dict.fromkeys(EVERYTHING.field_names), "k": "all null"}
    assert rows["most"]["l"] == 2**63 - 1
    assert rows["most"]["money"] == "0.0001"
    assert rows["most"]["d"] == "inf"
    assert rows["most"]["f"] == 0.1
    assert rows["most"]["at"] == "9999-12-31T23:59:59.999999Z"


def test_arrow_stream(process: Command, structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "runs.arrows"
    assert structable("scan", url, "runs", "--columns", "cost,app", "-o", file) == (0, "", "")
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    assert table.schema == arrow_schema(RUNS, ["cost", "app"])
    assert table.to_pydict() == {"cost": [0.25, 1.5, None, 3.0], "app": ["etl", "etl", "etl", "web"]}


@pytest.mark.parametrize(("name", "start"), [("x.csv", b"app,"), ("x.jsonl", b'{"app"'), ("x.arrow", b"ARROW1")])
def test_output_file_names_the_format(
    structable: Command, url: str, storage: Storage, tmp_path: Path, name: str, start: bytes
) -> None:
    assert structable("scan", url, "runs", "--output", tmp_path / name) == (0, "", "")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_table_into_a_file(structable: Command, url: str, storage: Storage, tmp_path: Path) -> None:
    file = tmp_path / "runs.txt"
    assert structable("scan", url, "runs", "--format", "table", "--output", file).out == ""
    assert len(file.read_text().splitlines()) == 2 + 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--where", "cost >"], "--where, column 7: a value for the field 'cost' is expected here, not the end"),
        (["--columns", "cost,nope"], "--columns: 'nope' is not a field of table 'runs'; the fields are app,"),
        (["--columns", "cost,cost"], "--columns names 'cost' twice"),
        (["--columns", ""], "--columns: '' is not a field"),
        (["--prefix", "a", "--prefix", "x"], "--prefix, field 'started': 'x' is not a whole number"),
        (["--prefix", "a", "--above", "b"], "--prefix excludes the other options"),
        (["--at-least", "a", "--above", "b"], "--at-least and --above exclude each other"),
        (["--at-most", "a", "--below", "b"], "--at-most and --below exclude each other"),
        (["--below", "a", "--below", "1", "--below", "1", "--below", "1"], "--below is given 4 times"),
        (["--limit", "-1"], "invalid value for '--limit'"),
        (["--limit", "many"], "invalid value for '--limit'"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--output", "rows.xml"], "'rows.xml' names no format"),
    ],
)
def test_wrong_arguments(fails: Fails, url: str, storage: Storage, args: list[str], message: str) -> None:
    assert message in fails(2, "scan", url, "runs", *args)


@every_store
def test_order_without_an_index(fails: Fails, url: str, storage: Storage) -> None:
    assert "table 'runs', field 'cost': " in fails(2, "scan", url, "runs", "--order-by", "cost")


@every_store
@pytest.mark.parametrize(
    ("args", "number"), [([], 4), (["--where", "cost > 1"], 2), (["--prefix", "web"], 1), (["--above", "web"], 0)]
)
def test_count(structable: Command, url: str, storage: Storage, args: list[str], number: int) -> None:
    assert structable("count", url, "runs", *args) == (0, f"{number}\n", "")


def test_explain_names_the_path(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("explain", url, "runs", "--where", "status == 'RUNNING' and cost > 1")
    assert outcome.out.startswith("index scan on status of runs")
    assert "evaluated on each row: cost > 1.0" in outcome.out
    assert structable("explain", url, "runs", "--prefix", "etl").out.startswith("key range scan of runs")
