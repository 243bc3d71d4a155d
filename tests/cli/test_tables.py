"""backends, tables, describe, create and drop."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from structable.spi import Storage, StorageUrl, connect, specification_from_document
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.support.samples import EVERYTHING, RUNS

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


@pytest.mark.parametrize(
    ("given", "named"), [("scan {url} ru", ""), ("scan ru", "{url}"), ("scan {url}nowhere ru", "")]
)
def test_names_of_tables_are_completed(
    given: str, named: str, process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        for name in ("runs", "rules", "games"):
            storage.admin.create(replace(RUNS, name=name))
    words = "structable " + given.format(url=url)
    monkeypatch.setenv("STRUCTABLE_URL", named.format(url=url))
    monkeypatch.setenv("_STRUCTABLE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert process().out.split() == ([] if "nowhere" in given else ["rules", "runs"])
    assert not (tmp_path / "storenowhere").exists()


def test_the_options_of_a_backend(structable: Command, fails: Fails) -> None:
    for named in ("memory", "memory://"):
        lines = structable("backends", named).out.splitlines()
        assert any(line.split()[:3] == ["pool_timeout", "30.0", "seconds"] for line in lines)
        assert any(line.split()[:2] == ["read_only", "false"] for line in lines)
        assert [line for line in lines if line != line.rstrip()] == []
    assert "no backend for nosuch:// is installed" in fails(3, "backends", "nosuch")


@every_store
def test_tables_are_listed_one_a_line(structable: Command, url: str, storage: Storage) -> None:
    assert structable("tables", url) == (0, "everything\nruns\n", "")


@every_store
def test_no_tables_are_no_lines(structable: Command, url: str, storage: Storage) -> None:
    assert structable("drop", url, "everything", "--yes").code == 0
    assert structable("drop", url, "runs", "--yes").code == 0
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
def test_create_from_a_file_or_standard_input(structable: Command, url: str, tmp_path: Path, suffix: str) -> None:
    text = TOML if suffix == "toml" else json.dumps(tomllib.loads(TOML))
    file = tmp_path / f"runs.{suffix}"
    file.write_text(text)
    for place in (file, "-"):
        assert structable("create", url, place, stdin=text) == (0, "", "table runs is created\n")
        with connect(url) as storage:
            assert storage.admin.get_specification("runs") == RUNS
            storage.admin.drop("runs")


@every_store
def test_create_of_a_table_that_exists(fails: Fails, url: str, storage: Storage) -> None:
    assert fails(1, "create", url, "-", stdin=TOML) == "table 'runs' already exists"


@every_store
def test_update_lists_its_changes(structable: Command, url: str, storage: Storage) -> None:
    wider = TOML.replace('indexes = ["status"]', 'indexes = ["status", "host"]')
    wider += 'host = "string"\nload = "float"\n'
    trial = structable("create", url, "-", "--update", "--dry-run", stdin=wider)
    assert trial.err.count(" would change: ") == 3
    assert structable("create", url, "-", "--update", stdin=wider).err.splitlines() == [
        "table runs: field host is added, string",
        "table runs: field load is added, float",
        "table runs: index on host is added",
    ]
    assert storage.admin.get_specification("runs").indexes == ("status", "host")
    assert structable("create", url, "-", "--update", stdin=wider).err == "table runs: nothing to change\n"
    outcome = structable("create", url, "-", "--update", stdin=wider.replace('"float"', '"double"'))
    assert outcome.err == "table runs: field load is widened from float to double\n"


@every_store
def test_update_lists_what_it_keeps(structable: Command, url: str, storage: Storage) -> None:
    """A specification of an earlier release changes nothing; one that adds, too, keeps the rest."""
    wider = TOML.replace('indexes = ["status"]', 'indexes = ["status", "host"]')
    wider += 'host = "string"\nload = "double"\n[options]\nuser.owner = "ada\\u0007"\n'
    assert structable("create", url, "-", "--update", stdin=wider).code == 0
    newer = storage.admin.get_specification("runs")
    kept = [
        "table runs: field load stays double, wider than float",
        "table runs: index on host is kept",
        "table runs: option user.owner = ada\\x07 is kept",
    ]
    older = TOML + 'load = "float"\n'
    for options in ([], ["--dry-run"]):
        assert structable("create", url, "-", "--update", *options, stdin=older).err.splitlines() == [
            "table runs: nothing to change",
            "table runs: field host is kept, string",
            *kept,
        ]
    assert storage.admin.get_specification("runs") == newer
    older = older.replace('indexes = ["status"]', 'indexes = ["status", "attempts"]') + 'attempts = "int"\n'
    assert structable("create", url, "-", "--update", stdin=older).err.splitlines() == [
        "table runs: field attempts is added, int",
        "table runs: index on attempts is added",
        "table runs: field host is kept, string",
        *kept,
    ]
    assert set(storage.admin.get_specification("runs").field_names) == {*newer.field_names, "attempts"}


@pytest.mark.parametrize("options", [(), ("--update",)])
def test_create_dry_run_creates_nothing(structable: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    url = f"leveldb://{tmp_path}/store"
    assert structable("create", url, "-", "--dry-run", *options, stdin=TOML).err == "table runs would be created\n"
    assert not (tmp_path / "store").exists()


@every_store
def test_update_lists_impossible_changes(fails: Fails, url: str, storage: Storage) -> None:
    message = fails(1, "create", url, "-", "--update", stdin=TOML.replace('"double"', '"string"'))
    assert "field 'cost' is double and cannot become string" in message


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("t.toml", b'name = "t"\nfields = [\n1 2]', 2, "line 3"),
        ("t.toml", b'name = "t"\nx = "\xff"', 2, "line 2: the text is not UTF-8"),
        ("t.json", b'{"name": "t",\n "fields" 1}', 2, "line 2, column 11"),
        ("t.json", b'{"name": "t", "name": "u"}', 2, "'name' appears twice"),
        ("t.json", b"[" * 100_000, 2, "recursion"),
        ("t.yaml", b"name: t", 2, "ends in neither .toml nor .json"),
        ("t.toml", b'name = "t"', 2, "lacks 'fields'"),
        ("t.toml", b'name = "t"\nprimary_key = ["a"]\n[fields]\na = "text"', 2, "type 'text' is unknown"),
        ("t.toml", b'name = "t"\nprimary_key = ["b"]\n[fields]\na = "int"', 2, "not a field"),
        ("t.json", b"3", 2, "is not a specification"),
    ],
)
def test_wrong_specifications(
    fails: Fails, url: str, tmp_path: Path, name: str, content: bytes, code: int, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    found = fails(code, "create", url, file)
    assert message in found
    assert str(file) in found


def test_a_specification_that_cannot_be_read(fails: Fails, url: str, tmp_path: Path) -> None:
    assert fails(2, "create", url, tmp_path / "none.toml").endswith("none.toml: No such file or directory")
    assert fails(2, "create", url, tmp_path).endswith("Is a directory")


@every_store
def test_drop(structable: Command, url: str, storage: Storage) -> None:
    assert structable("drop", url, "runs", "--yes") == (0, "", "table runs is dropped\n")
    assert storage.admin.list() == ["everything"]


def test_drop_asks_and_cannot_ask_without_a_terminal(fails: Fails, url: str, storage: Storage) -> None:
    message = fails(2, "drop", url, "runs")
    assert f"drop table runs with 4 rows in {storage.url}? There is no terminal to ask on; give --yes" in message
    assert storage.admin.exists("runs")


@every_store
def test_drop_dry_run(structable: Command, url: str, storage: Storage) -> None:
    outcome = structable("drop", url, "runs", "--dry-run")
    assert outcome == (0, "", f"table runs with 4 rows in {storage.url} would be dropped\n")
    assert storage.admin.exists("runs")


def test_drop_of_an_absent_table(fails: Fails, url: str, storage: Storage) -> None:
    assert fails(3, "drop", url, "Runs", "--yes") == "table 'Runs' does not exist"


NEEDS_A_STORE = [
    ("tables",),
    ("describe", "t"),
    ("scan", "t"),
    ("count", "t"),
    ("explain", "t"),
    ("get", "t", "x"),
    ("put", "t", "k=1"),
    ("delete", "t", "x"),
    ("drop", "t", "--yes"),
    ("import", "t", "x.csv"),
    ("export", "t", "x.csv"),
]


@every_store
@pytest.mark.parametrize("args", NEEDS_A_STORE, ids=lambda args: args[0])
def test_a_mistyped_url_creates_nothing(fails: Fails, url: str, tmp_path: Path, args: tuple[str, ...]) -> None:
    command, *rest = args
    message = fails(3, command, url, *rest)
    assert message.endswith("; 'structable create' creates it")
    place = Path(StorageUrl.parse(url).path)
    assert url.startswith("postgresql") or not place.name or not place.exists()
    assert fails(3, "tables", url) == message  # the first call created nothing


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
def test_absent_table(fails: Fails, url: str, storage: Storage, args: tuple[str, ...]) -> None:
    command, *rest = args
    assert fails(3, command, url, "nothing", *rest) == "table 'nothing' does not exist"
