"""backends, tables, describe, create and drop."""

import json
import tomllib
from pathlib import Path

import pytest

from structable.spi import Storage, connect, specification_from_document
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.samples import EVERYTHING, RUNS

TOML = """\
name = "runs"
primary_key = ["app", "started", "attempt"]
indexes = ["status"]
[fields]
app = "string"
started = "long"
attempt = "int"
status = "string"
cost = "double"
payload = "bytes"
"""


def test_backends_are_listed(structable: Command) -> None:
    outcome = structable("backends")
    assert outcome.code == 0
    assert "memory://" in outcome.out
    lines = [json.loads(line) for line in structable("backends", "--format", "json").out.splitlines()]
    memory = next(line for line in lines if line["scheme"] == "memory")
    assert memory["provider"].startswith("structable ")
    assert memory["options"]["pool_timeout"] == 30.0


@every_store
def test_tables_are_listed_one_a_line(structable: Command, url: str, storage: Storage) -> None:
    assert structable("tables", url) == (0, "everything\nruns\n", "")


@every_store
def test_no_tables_are_no_lines(structable: Command, url: str) -> None:
    assert structable("tables", url) == (0, "", "")


def test_describe_shows_fields_key_and_indexes(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("describe", url, "everything")
    cells = [line.split() for line in outcome.out.splitlines()]
    assert ["k", "string", "1", "of", "1"] in cells
    assert ["money", "decimal(20,4)"] in cells
    assert ["text", "string", "yes"] in cells


@every_store
def test_described_toml_and_json_create_the_same_table(
    structable: Command, url: str, storage: Storage, tmp_path: Path
) -> None:
    toml = structable("describe", url, "everything", "--format", "toml").out
    assert specification_from_document(tomllib.loads(toml)) == EVERYTHING
    text = structable("describe", url, "everything", "--format", "json").out
    assert specification_from_document(json.loads(text)) == EVERYTHING


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_create_from_a_file(structable: Command, url: str, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"runs.{suffix}"
    file.write_text(TOML if suffix == "toml" else json.dumps(tomllib.loads(TOML)))
    assert structable("create", url, file) == (0, "", "table runs is created\n")
    with connect(url) as storage:
        assert storage.admin.get_specification("runs") == RUNS


@pytest.mark.parametrize("text", [TOML, json.dumps(tomllib.loads(TOML))], ids=["toml", "json"])
def test_create_from_standard_input(structable: Command, url: str, text: str) -> None:
    assert structable("create", url, "-", stdin=text).code == 0
    with connect(url) as storage:
        assert storage.admin.get_specification("runs") == RUNS


@every_store
def test_create_of_a_table_that_exists(fails: Fails, url: str, storage: Storage) -> None:
    assert fails(1, "create", url, "-", stdin=TOML) == "table 'runs' already exists"


@every_store
def test_update_adds_fields_and_indexes(structable: Command, url: str, storage: Storage) -> None:
    wider = TOML.replace('"int"', '"int"').replace('indexes = ["status"]', 'indexes = ["status", "host"]')
    assert structable("create", url, "-", "--update", stdin=wider + 'host = "string"\n').code == 0
    assert storage.admin.get_specification("runs").indexes == ("status", "host")


@every_store
def test_update_lists_what_cannot_be(fails: Fails, url: str, storage: Storage) -> None:
    message = fails(1, "create", url, "-", "--update", stdin=TOML.replace('"double"', '"string"'))
    assert "field 'cost' is double and cannot become string" in message


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("t.toml", b'name = "t"\nfields = [\n1 2]', 2, "line 3"),
        ("t.toml", b'name = "t"\nx = "\xff"', 2, "line 2: the text is not UTF-8"),
        ("t.json", b'{"name": "t",\n "fields" 1}', 2, "line 2, column 11"),
        ("t.json", b'{"name": "t", "name": "u"}', 2, "'name' is there twice"),
        ("t.json", b"[" * 100_000, 2, "recursion"),
        ("t.yaml", b"name: t", 2, "ends in neither .toml nor .json"),
        ("t.toml", b'name = "t"', 1, "lacks 'fields'"),
        ("t.toml", b'name = "t"\nprimary_key = ["a"]\n[fields]\na = "text"', 1, "type 'text' is unknown"),
        ("t.toml", b'name = "t"\nprimary_key = ["b"]\n[fields]\na = "int"', 1, "not a field"),
        ("t.json", b"3", 1, "is not a specification"),
    ],
)
def test_wrong_specifications(
    fails: Fails, url: str, tmp_path: Path, name: str, content: bytes, code: int, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert message in fails(code, "create", url, file)


def test_a_specification_that_cannot_be_read(fails: Fails, url: str, tmp_path: Path) -> None:
    assert fails(2, "create", url, tmp_path / "none.toml").endswith("none.toml: No such file or directory")
    assert fails(2, "create", url, tmp_path).endswith("Is a directory")


@every_store
def test_drop(structable: Command, url: str, storage: Storage) -> None:
    assert structable("drop", url, "runs", "--yes") == (0, "", "table runs is dropped\n")
    assert storage.admin.list() == ["everything"]


def test_drop_asks_and_cannot_ask_without_a_terminal(fails: Fails, url: str, storage: Storage) -> None:
    assert "needs --yes" in fails(2, "drop", url, "runs")
    assert storage.admin.exists("runs")


def test_drop_of_an_absent_table(fails: Fails, url: str, storage: Storage) -> None:
    assert fails(3, "drop", url, "Runs", "--yes") == "table 'Runs' does not exist"


@every_store
@pytest.mark.parametrize(
    "args",
    [
        ("describe",),
        ("scan",),
        ("count",),
        ("explain",),
        ("get", "x"),
        ("put", "k=1"),
        ("delete", "x"),
        ("import", "x.csv"),
        ("export", "x.csv"),
    ],
    ids=lambda args: args[0],
)
def test_absent_table(fails: Fails, url: str, args: tuple[str, ...]) -> None:
    command, *rest = args
    assert fails(3, command, url, "nothing", *rest) == "table 'nothing' does not exist"
