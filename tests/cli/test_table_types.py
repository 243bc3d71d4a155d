"""Tables with a type: created from files, described, written, moved and checked by the command."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from structable.spi import Field, Storage, TableSpecification, connect
from tests.cli.conftest import Command, Fails, every_store

COUNTERS = TableSpecification(
    "counters",
    [Field.string("name"), Field.long("total"), Field.long("seen"), Field.string("tags")],
    primary_key=["name"],
    options={
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
        "fields.seen.aggregate-function": "count",
        "fields.tags.aggregate-function": "listagg",
        "fields.tags.distinct": "true",
        "fields.tags.ignore-retract": "true",
    },
)
COUNTERS_TOML = """\
name = "counters"
primary_key = ["name"]
[fields]
name = "string"
total = "long"
seen = "long"
tags = "string"
[options]
merge-engine = "aggregation"
fields.total.aggregate-function = "sum"
"fields.seen.aggregate-function" = "count"
fields.tags = { aggregate-function = "listagg", distinct = true, ignore-retract = true }
"""
LOG = TableSpecification(
    "log",
    [Field.long("at"), Field.string("level"), Field.string("text")],
    indexes=["level"],
    options={"write-mode": "append-only"},
)
BAG = TableSpecification(
    "bag", [Field.string("word"), Field.int("line")], indexes=["word"], options={"write-mode": "change-log"}
)
PROFILES = TableSpecification(
    "profiles",
    [Field.string("user"), Field.string("email"), Field.long("email_at"), Field.string("city")],
    primary_key=["user"],
    options={"merge-engine": "partial-update", "fields.email_at.sequence-group": "email"},
)
LATEST = TableSpecification(
    "latest",
    [Field.string("k"), Field.long("version"), Field.boolean("gone")],
    primary_key=["k"],
    options={"sequence.field": "version", "soft-delete.field": "gone"},
)
FIRST = TableSpecification(
    "first",
    [Field.string("k"), Field.int("v")],
    primary_key=["k"],
    options={"merge-engine": "first-row"},
)
SPECIFICATIONS = (COUNTERS, LOG, BAG, PROFILES, LATEST, FIRST)


@pytest.fixture
def typed(url: str) -> Iterator[Storage]:
    """Open the store with a table of each type."""
    with connect(url) as storage:
        for spec in SPECIFICATIONS:
            storage.admin.create(spec)
        yield storage


def rows(storage: Storage, table: str) -> list[tuple[object, ...]]:
    with storage.table(table).scan() as found:
        return sorted([tuple(row.values()) for row in found], key=repr)


@pytest.mark.parametrize("text", [COUNTERS_TOML, json.dumps(tomllib.loads(COUNTERS_TOML))], ids=["toml", "json"])
def test_options_may_be_dotted_names_and_truths(structable: Command, url: str, text: str) -> None:
    assert structable("create", url, "-", stdin=text) == (0, "", "table counters is created\n")
    with connect(url) as storage:
        assert storage.admin.get_specification("counters") == COUNTERS


@every_store
@pytest.mark.parametrize("format_", ["toml", "json"])
def test_described_tables_are_created_alike(
    structable: Command, url: str, copy_url: str, typed: Storage, format_: str
) -> None:
    for spec in SPECIFICATIONS:
        text = structable("describe", url, spec.name, "--format", format_).out
        assert structable("create", copy_url, "-", stdin=text).code == 0
        with connect(copy_url) as copy:
            assert copy.admin.get_specification(spec.name) == spec


def test_a_file_without_a_primary_key(structable: Command, fails: Fails, url: str) -> None:
    log = 'name = "log"\n[fields]\ntext = "string"\n'
    assert "allowed are 1 to 16, and none with the option write-mode" in fails(2, "create", url, "-", stdin=log)
    assert structable("create", url, "-", stdin=f'{log}[options]\nwrite-mode = "append-only"\n').code == 0


def test_options_that_are_wrong(fails: Fails, url: str) -> None:
    def refused(options: str) -> str:
        return fails(2, "create", url, "-", stdin=f'name = "t"\nprimary_key = ["k"]\nfields.k = "int"\n{options}\n')

    assert "option 'merge-engine' is 'sum'; allowed are deduplicate" in refused('options.merge-engine = "sum"')
    assert "option 'fields.x.distinct' is 'true'; 'x' is not a field" in refused("options.fields.x.distinct = true")
    assert "option 'ignore-delete' is unknown" not in refused("options.ignore-deletes = true")
    assert "option 'sequence.field'" in refused('options.sequence.field = "k"')


@every_store
def test_describe_names_type_engine_functions_and_sequence(structable: Command, url: str, typed: Storage) -> None:
    def described(table: str) -> list[str]:
        lines = structable("describe", url, table).out.splitlines()
        return [line for line in lines if ":" in line and not line.startswith("option")]

    assert described("counters") == [
        "type: keyed",
        "merge engine: aggregation",
        "function of total: sum",
        "function of seen: count",
        "function of tags: listagg, delimiter ',', distinct, retracts are ignored",
    ]
    assert described("log") == ["type: append-only without a primary key: rows can only be added"]
    assert described("bag") == ["type: change-log without a primary key: a bag of rows, added and taken back"]
    assert described("profiles") == ["type: keyed", "merge engine: partial-update", "sequence email_at: of email"]
    assert described("latest") == [
        "type: keyed",
        "merge engine: deduplicate",
        "sequence: version",
        "retracts: set gone to true",
    ]


def test_changed_options_are_listed(structable: Command, fails: Fails, url: str) -> None:
    base = 'name = "t"\nprimary_key = ["k"]\n[fields]\nk = "int"\nn = "long"\n'
    engine = '[options]\nmerge-engine = "aggregation"\n'
    assert structable("create", url, "-", stdin=base + engine).code == 0
    added = f'{base}m = "long"\n{engine}fields.m.aggregate-function = "sum"\nuser.owner = "ada"\n'
    assert structable("create", url, "-", "--update", stdin=added).err.splitlines() == [
        "table t: field m is added, long",
        "table t: option fields.m.aggregate-function becomes sum",
        "table t: option user.owner becomes ada",
    ]
    with connect(url) as storage:
        assert storage.admin.get_specification("t").options["user.owner"] == "ada"
    assert "cannot become" in fails(1, "create", url, "-", "--update", stdin=base)


@every_store
def test_put_and_import_merge(structable: Command, url: str, typed: Storage, tmp_path: Path) -> None:
    assert structable("put", url, "counters", "name=a", "total=2", "seen=1", "tags=x").code == 0
    file = tmp_path / "more.csv"
    file.write_text("name,total,seen,tags\na,3,1,y\na,4,1,x\nb,1,1,\n")
    outcome = structable("import", url, "counters", file, "--job-id", "j")
    assert outcome == (0, "", f"3 rows (2 different keys) of {file} are merged into table counters (job j)\n")
    assert rows(typed, "counters") == [("a", 9, 3, "x,y"), ("b", 1, 1, None)]
    assert structable("import", url, "counters", file, "--job-id", "j").err == (
        "job j was already committed; nothing was done\n"
    )
    assert structable("put", url, "counters", "name=a", "total=1", "--mode", "replace").code == 0
    assert rows(typed, "counters")[0] == ("a", 1, None, None)


CSV = "_change_type,name,total,seen\n+I,a,5,1\ndelete,a,2,1\n-U,b,1,1\n+U,b,4,1\n"
LINES = "".join(
    json.dumps({"name": name, "total": total, "seen": 1, "_change_type": kind}) + "\n"
    for kind, name, total in [
        ("insert", "a", 5),
        ("-D", "a", 2),
        ("update_preimage", "b", 1),
        ("update_postimage", "b", 4),
    ]
)
TABLE = pa.table(
    {
        "total": pa.array([5, 2, 1, 4], pa.int16()),
        "_change_type": pa.array(["+I", "-D", "-U", "+U"]).dictionary_encode(),
        "name": ["a", "a", "b", "b"],
        "seen": [1, 1, 1, 1],
        "_commit_version": [1, 2, 3, 4],
    }
)


@every_store
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_import_of_changes(structable: Command, url: str, typed: Storage, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "x.parquet":
        pq.write_table(TABLE, file)
    else:
        file.write_text(CSV if name == "x.csv" else LINES)
    outcome = structable("import", url, "counters", file, "--mode", "changes", "--dry-run")
    assert outcome == (0, "", f"4 rows (2 different keys) of {file} fit table counters; nothing was written\n")
    assert rows(typed, "counters") == []
    outcome = structable("import", url, "counters", file, "--mode", "changes", "--job-id", "j")
    assert outcome == (0, "", f"4 rows (2 different keys) of {file} are applied to table counters (job j)\n")
    assert rows(typed, "counters") == [("a", 3, 0, None), ("b", 3, 0, None)]


@pytest.mark.parametrize(
    ("table", "text", "problem"),
    [
        ("counters", "name,total\na,1\n", "--mode changes needs a column _change_type with the kind of each row: +I"),
        ("counters", "_change_type,name\n+I,a\n*,b\n", "line 3: table 'counters', field '_change_type': '*' is not a"),
        ("counters", "_change_type,name\n+I,a\n,b\n", "line 3: table 'counters', field '_change_type': None is not a"),
        (
            "first",
            "_change_type,k\n+I,a\n\n-D,b\n",
            "line 4: table 'first' with merge-engine first-row takes no retract",
        ),
        ("log", "_change_type,at\n+I,1\n", "table 'log' has no primary key (write-mode=append-only)"),
        ("latest", "_change_type,k\n-D,b\n", "line 2: table 'latest', field 'version': a retract of a table with"),
    ],
)
def test_changes_that_are_wrong(
    structable: Command, url: str, typed: Storage, tmp_path: Path, table: str, text: str, problem: str
) -> None:
    file = tmp_path / "x.csv"
    file.write_text(text)
    outcome = structable("import", url, table, file, "--mode", "changes")
    assert outcome.code == (1 if table == "log" else 2)
    assert problem in outcome.err
    assert outcome.err.count("\n") == 1
    assert rows(typed, table) == []


def test_row_kinds_need_their_mode(fails: Fails, url: str, typed: Storage, tmp_path: Path) -> None:
    for name, text in (("x.csv", CSV), ("x.json", LINES)):
        (tmp_path / name).write_text(text)
        assert "'_change_type' is not a field" in fails(2, "import", url, "counters", tmp_path / name).replace(
            "'_change_type' of its first line", "'_change_type'"
        )


@every_store
def test_tables_without_a_key(
    structable: Command, fails: Fails, url: str, copy_url: str, typed: Storage, tmp_path: Path
) -> None:
    for number in (1, 2, 2):
        assert structable("put", url, "log", f"at={number}", "level=info", "--null", "text").code == 0
    assert structable("put", url, "bag", "--json", '{"word": "to"}').code == 0
    file = tmp_path / "bag.jsonl"
    file.write_text('{"word": "to", "line": null}\n{"word": "be", "line": 1}\n{"word": "be", "line": 1}\n')
    assert structable("import", url, "bag", file).code == 0
    assert rows(typed, "bag") == [("be", 1), ("be", 1), ("to", None), ("to", None)]
    assert rows(typed, "log") == [(1, "info", None), (2, "info", None), (2, "info", None)]

    assert structable("count", url, "log", "--where", "at > 1").out == "2\n"
    lines = structable("scan", url, "log", "--order-by", "level", "--format", "json").out.splitlines()
    assert sorted(json.loads(line)["at"] for line in lines) == [1, 2, 2]
    assert structable("explain", url, "bag", "--where", "word == 'to'").out.startswith("index scan on word")

    exported = tmp_path / "log.csv"
    assert structable("export", url, "log", exported).code == 0
    assert sorted(exported.read_text().splitlines()) == ["1,info,", "2,info,", "2,info,", "at,level,text"]
    assert structable("copy", url, copy_url).code == 0
    with connect(copy_url) as copy:
        assert (rows(copy, "log"), rows(copy, "bag")) == (rows(typed, "log"), rows(typed, "bag"))
        assert copy.admin.get_specification("bag") == BAG
    outcome = structable("doctor", url)
    assert outcome.code == 0, outcome.out
    assert "table log: 3 rows are readable" in outcome.out
    assert "index bag.word: agrees" in outcome.out

    assert structable("delete", url, "bag", "--where", "line is null", "--dry-run").err == "2 rows would be deleted\n"
    assert structable("delete", url, "bag", "--where", "line is null").out == "2\n"
    assert structable("delete", url, "bag", "--all", "--yes").out == "2\n"


def test_what_tables_without_a_key_lack(fails: Fails, url: str, typed: Storage, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("at\n1\n")
    no_key = "table 'log' has no primary key to find a row by; scan --where finds rows"
    assert fails(2, "get", url, "log", "1") == no_key
    assert fails(2, "delete", url, "log", "1") == no_key
    assert fails(2, "scan", url, "log", "--prefix", "1") == (
        "table 'log' has no primary key for --prefix; --where selects rows"
    )
    keyless = "table 'log' has no primary key (write-mode=append-only): it has no"
    assert fails(1, "delete", url, "log", "--all") == f"{keyless} delete"
    assert fails(1, "put", url, "log", "at=1", "--mode", "upsert") == f"{keyless} upsert"
    assert fails(1, "import", url, "log", file, "--mode", "overwrite") == f"{keyless} write jobs of mode overwrite"
    with connect(f"{url}copy") as copy:
        copy.admin.create(LOG)
        problem = fails(1, "copy", url, f"{url}copy", "log", "--mode", "upsert")
        assert problem == f"{keyless} write jobs of mode upsert"
        assert copy.admin.list() == ["log"]


@every_store
def test_import_takes_rows_out_of_a_bag(structable: Command, url: str, typed: Storage, tmp_path: Path) -> None:
    typed.table("bag").insert_many([{"word": "be", "line": 1}] * 2)
    file = tmp_path / "bag.jsonl"
    file.write_text(
        '{"_change_type": "-D", "word": "be", "line": 1}\n{"_change_type": "+I", "word": "to", "line": 2}\n'
    )
    assert structable("import", url, "bag", file, "--mode", "changes").code == 0
    assert rows(typed, "bag") == [("be", 1), ("to", 2)]
