"""infer, and import --create: the table for a file, the fields of its columns, keys that are not unique."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from structable.spi import Storage, TableNotFoundError, connect
from tests.cli.conftest import Command, Fails, every_store

PENGUINS = """,species,Body Mass (g),year,sex,"seen at",zip,ratio,when
1,Adelie,3750.0,2007,male,2007-11-11,01234,0.5,2007-11-11T10:00:00Z
2,Gentoo,NA,2008,,2008-11-11,00501,NA,2007-11-11 10:00:00+02:00
3,Gentoo,5000,2009,NA,2009-11-11,10001,1e-3,NA
"""
FIELDS = [
    'column_1 = "long"',
    'species = "string"',
    'Body_Mass_g = "double"',
    'year = "long"',
    'sex = "string"',
    'seen_at = "date"',
    'zip = "string"',
    'ratio = "double"',
    'when = "timestamp"',
]


def fields_of(toml: str) -> list[str]:
    return [line for line in toml.partition("[fields]\n")[2].partition("\n\n")[0].splitlines() if line]


@pytest.mark.parametrize("name", ["penguins.csv", "penguins.csv.gz", "penguins.tsv"])
def test_types_by_all_rows_of_a_csv_file(structable: Command, tmp_path: Path, name: str) -> None:
    text = PENGUINS.replace(",", "\t") if name.endswith("tsv") else PENGUINS
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found = structable("infer", tmp_path / name, "--primary-key", "column_1", "--null", "NA")
    assert found.code == 0, found.err
    assert found.err == f"types by all 3 rows of {tmp_path / name}\n"
    assert 'name = "penguins"\nprimary_key = ["column_1"]\n' in found.out
    assert fields_of(found.out) == FIELDS


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ("1 -2 9223372036854775807", "long"),
        ("1 9223372036854775808", "string"),
        ("1 2.5", "double"),
        ("9007199254740993 2.5", "string"),
        ("2.5 9007199254740993", "string"),
        ("2.5 9007199254740991 1e300", "double"),
        ("1 nan -inf 1e5", "double"),
        ("1e400", "string"),
        ("0.5 1e-400", "string"),
        ("0.5 -nan", "double"),
        ("0 -0 0.5 -0.5 0e1", "double"),
        ("007", "string"),
        ("1 00.5", "string"),
        ("0x1F", "string"),
        ("1 true", "string"),
        ("true FALSE", "boolean"),
        ("2024-02-29 0001-01-01", "date"),
        ("2024-02-30", "string"),
        ("2024-02-29 2024-02-29T10:00", "timestamp_ntz"),
        ("2024-02-29T10:00:00.123456", "timestamp_ntz"),
        ("2024-02-29T10:00:00.123456789", "string"),
        ("2024-02-29T10:00:00Z 2024-02-29T10:00:00+05:30", "timestamp"),
        ("2024-02-29T10:00:00Z 2024-02-29T10:00:00", "string"),
        ("10:30:00", "string"),
        ("1_000", "string"),
        ("0000-01-01", "string"),
        ("10000-01-01", "string"),
        ("0001-01-01T00:00:00+05:00", "string"),
        ("9999-12-31T23:59:59-05:00", "string"),
    ],
)
def test_what_is_inferred_is_imported(structable: Command, url: str, tmp_path: Path, texts: str, kind: str) -> None:
    file = tmp_path / "f.csv"
    # Far apart, so that they are seen in different parts of the file.
    lines = [f"{number},{text}" for number, text in enumerate(texts.split(" "))]
    filler = [f"{number}," for number in range(100, 100_100)]
    file.write_text("\n".join(["k,f", lines[0], *filler, *lines[1:], ""]))
    outcome = structable("import", url, "t", file, "--create", "--primary-key", "k")
    assert outcome.code == 0, outcome.err
    assert f'f = "{kind}"' in outcome.err
    with connect(url) as storage:
        assert storage.table("t").count() == len(lines) + len(filler)


@pytest.mark.parametrize(
    ("late", "found"),
    [
        ("b,5", 'a = "string"\nn = "long"\ntypes by all 41 rows of FILE'),
        ("\u00e9,0.5", 'a = "string"\nn = "double"\ntypes by all 41 rows of FILE'),
        ("b,x", 'a = "string"\nn = "string"\ntypes by all 41 rows of FILE'),
        ("\udcff,5", "FILE, line 42: the text is not UTF-8"),
        ("b", "FILE, line 42: there is 1 cell; the first line has 2"),
        ('"b"c,5', "FILE, line 42: a quote stands inside a cell; such a cell is quoted, and the quote doubled"),
    ],
)
def test_types_by_all_parts_of_a_file(
    structable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str, found: str
) -> None:
    monkeypatch.setattr("structable.cli.formats.csv_source._CHUNK", 32)
    file = tmp_path / "f.csv"
    file.write_bytes(("a,n\n" + "a,1\n" * 40 + late + "\n").encode(errors="surrogateescape"))
    outcome = structable("infer", file)
    fields = outcome.out.partition("[fields]\n")[2].partition("\n\n")[0] + "\n" if outcome.out else ""
    assert found in (fields + outcome.err).replace(str(file), "FILE")


ODD_TEXTS = """2024-05-31 08|2024-05-31T0830|2024-05-31T083000|2024-05-31 083000|2024-05-31T24:00:00|2024-05-31T08:30:60
2024-05-31T08:30:00z|2024-05-31T08:30:00+24:00|2024-05-31T08:30:00+05|2024-05-31T08:30:00+0530|2024-05-31T08:30:00,5
2024-05-31T08:30:00.1|2024-05-31T08:30:00.1234567|2024-05-31T08:30:00 +02:00|0000-01-01 00:00:00|2024-5-1|20240531
2024-W01-1|2024-151|2024-05-31T08:30:00-00:00|2024-05-31 08:30Z| 1|1 |+1|.5|5.|-.5|1e5|1E+5|0x10|0x1p3|1d|1f|inf
-Infinity|+inf|infinity|NAN|-nan|nan |1_0|\uff11|1e-400|1e308|1e309|-0|00|0.0|-0.0|1.0|1.|9223372036854775808
-9223372036854775809|TRUE|True|t|yes|-|+|e5|1e|1e+|--1|1-|12345678901234567890.5|123456789012345678.0|0.1e1|0e0|00.5|-007|1,5|null
NaT|\u221e"""


def test_odd_texts_are_of_the_type_that_is_inferred(structable: Command, url: str, tmp_path: Path) -> None:
    texts = ODD_TEXTS.replace("\n", "|").split("|")
    names = [f"f{number}" for number in range(len(texts))]
    cells = [f'"{text}"' for text in texts]
    (tmp_path / "f.csv").write_text(f"k,{','.join(names)}\n1,{','.join(cells)}\n")
    outcome = structable("import", url, "t", tmp_path / "f.csv", "--create", "--primary-key", "k")
    assert outcome.code == 0, outcome.err
    file = tmp_path / "f.json"
    file.write_text(json.dumps({"k": 1, **dict(zip(names, texts, strict=True))}))
    outcome = structable("import", url, "u", file, "--create", "--primary-key", "k")
    assert outcome.code == 0, outcome.err


def test_json_and_typed_files(structable: Command, fails: Fails, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    objects: list[dict[str, Any]] = [
        {"k": 1, "a b": 1, "s": "x", "day": "2024-01-01", "big": 2**64, "none": None},
        {"k": 2, "a b": 1.5, "t": True, "day": "2024-01-02"},
    ]
    file.write_text("\n".join(json.dumps(one) for one in objects))
    wanted = [
        'k = "long"',
        'a_b = "double"',
        's = "string"',
        'day = "date"',
        'big = "decimal(38,0)"',
        'none = "string"',
        't = "boolean"',
    ]
    found = structable("infer", file, "--primary-key", "k")
    assert fields_of(found.out) == wanted
    file.write_text(json.dumps(objects, indent=1))
    assert structable("infer", file, "--primary-key", "k") == found
    file.write_text('{"k": 1, "v": 1}\n{"k": 2, "v": "x"}\n{"k": 3, "w": [1]}\n')
    assert "field 'v' is a whole number on line 1 and a string on line 2; no field takes them all" in fails(
        2, "infer", file
    )
    assert structable("infer", file, "--columns", "k").code == 0
    assert fields_of(structable("infer", file, "--skip-unknown").out) == ['k = "long"']
    table = pa.table({"a": pa.array([1], pa.uint8()), "l": [[1]], "__index_level_0__": ["x"]})
    pq.write_table(table, tmp_path / "x.parquet")
    assert "column 'l' is of the Arrow type list" in fails(2, "infer", tmp_path / "x.parquet")
    found = structable("infer", tmp_path / "x.parquet", "--skip-unknown")
    assert fields_of(found.out) == ['a = "short"', 'index_level_0 = "string"']
    assert 'write-mode = "append-only"' in found.out
    assert found.err.endswith("x.parquet; without --primary-key rows are only added\n")
    assert "INT96" not in found.err
    pq.write_table(
        pa.table({"at": pa.array([0], pa.timestamp("us"))}),
        tmp_path / "i.parquet",
        use_deprecated_int96_timestamps=True,
    )
    assert fields_of(structable("infer", tmp_path / "i.parquet").out) == ['at = "timestamp"']


@pytest.mark.parametrize(("name", "content"), [("a.csv", "k,s"), ("a.csv", '\ufeff"k","s"'), ("a.tsv", "k\ts\r")])
def test_a_line_of_names_without_an_end(structable: Command, url: str, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    outcome = structable("import", url, "t", tmp_path / name, "--create", "--primary-key", "k")
    assert outcome.code == 0, outcome.err
    assert fields_of(outcome.err)[:2] == ['k = "string"', 's = "string"']


def test_a_lone_surrogate_of_json(structable: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"k": 1, "s": "2024-05-31"}\n{"k": 2, "s": "\\ud800"}\n')
    assert fields_of(structable("infer", file).out) == ['k = "long"', 's = "string"']
    outcome = structable("import", url, "t", file, "--create")
    assert "a.json, line 2: field 's': '\\ud800' holds a lone surrogate" in outcome.err


def test_a_specification_that_create_takes(structable: Command, url: str, tmp_path: Path) -> None:
    (tmp_path / "penguins.csv").write_text(PENGUINS)
    toml = structable("infer", tmp_path / "penguins.csv", "--primary-key", "species,year", "--null", "NA").out
    (tmp_path / "t.toml").write_text(toml)
    assert structable("create", url, tmp_path / "t.toml").code == 0
    assert structable("import", url, "penguins", tmp_path / "penguins.csv", "--null", "NA").code == 0
    with connect(url) as storage:
        row = storage.table("penguins").read(("Gentoo", 2008))
        assert row is not None
        assert (row.column_1, row.Body_Mass_g, row.sex, row.zip) == (2, None, None, "00501")


@every_store
def test_import_creates_the_table(structable: Command, fails: Fails, url: str, tmp_path: Path) -> None:
    file = tmp_path / "penguins.csv"
    file.write_text(PENGUINS)
    args = ("import", url, "penguins", file, "--create", "--primary-key", "column_1", "--null", "NA")
    outcome = structable(*args, "--job-id", "once")
    assert outcome.code == 0, outcome.err
    assert all(line in outcome.err for line in FIELDS)
    assert outcome.err.endswith(f"types by all 3 rows of {file}\n3 rows of {file} are in table penguins (job once)\n")
    assert structable(*args, "--job-id", "once").err == "job once was already committed; nothing was done\n"
    assert "already has a row" in fails(1, *args)
    assert structable(*args, "--mode", "upsert").code == 0  # into the table that is there
    assert "exists, and its key is column_1, not species" in fails(
        2, "import", url, "penguins", file, "--create", "--primary-key", "species"
    )


@every_store
@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("x.csv", "k,v\na,1\nb,2\n\na,3\n", "line 2, line 5"),
        ("x.jsonl", '{"k": "a"}\n{"k": "b"}\n{"k": "a"}\n', "line 1, line 3"),
        ("x.json", '[{"k": "a"},\n{"k": "b"},\n\n{"k": "a"}]', "line 1, line 4"),
        ("x.parquet", "", "row 1, row 3"),
        ("-", "k\na\na\n", "line 2, line 3"),
    ],
)
def test_a_key_that_is_not_unique(fails: Fails, url: str, tmp_path: Path, name: str, content: str, places: str) -> None:
    file: Path | str = tmp_path / name
    if name == "x.parquet":
        pq.write_table(pa.table({"k": ["a", "b", "a"]}), file)
    elif name == "-":
        file = "-"
    else:
        Path(file).write_text(content)
    extra = ("--format", "csv") if name == "-" else ()
    code, out = 2, ("import", url, "t", file, "--create", "--primary-key", "k", *extra)
    outcome = fails_with_specification(fails, code, *out, stdin=content if name == "-" else None)
    shown = "standard input" if name == "-" else str(file)
    assert outcome.startswith(
        f"{shown}: rows share the key ('a',), which must be unique: {places}; name further fields"
    )
    with connect(url) as storage:
        assert storage.admin.list() == []


def fails_with_specification(fails: Fails, code: int, *args: object, stdin: str | None) -> str:
    """Run an import that fails after it has shown its specification."""
    from typer.testing import CliRunner

    from structable.cli.app import app

    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr.splitlines()[-1].removeprefix("structable: ")


def test_a_key_with_nulls(fails: Fails, url: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\na,1\n,2\n")
    args = ("import", url, "t", tmp_path / "x.csv", "--create", "--primary-key", "k")
    message = fails_with_specification(fails, 2, *args, stdin=None)
    assert "x.csv, line 3: table 't', field 'k': is part of the primary key and must not be null" in message
    with connect(url) as storage, pytest.raises(TableNotFoundError):
        storage.admin.get_specification("t")


def test_a_key_that_cannot_be_one(fails: Fails, url: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\n0.5,1\n")
    args = ("import", url, "t", tmp_path / "x.csv", "--create", "--primary-key")
    assert "primary_key names 'k' of type double, which cannot be ordered" in fails(1, *args, "k")
    assert "primary_key names 'x', which is not a field; the fields are k, v" in fails(1, *args, "x")
    assert "--primary-key is for the table that --create makes" in fails(
        2, "import", url, "t", "x.csv", "--primary-key", "k"
    )


@pytest.fixture
def stored(url: str, structable: Command, storage: Storage) -> Any:  # noqa: ANN401 - a function of any value
    """Import a file into the table runs, and return the row that it makes."""

    def run(file: Path, *options: str) -> dict[str, object]:
        storage.table("runs").delete_many([("a", 1, 1)])
        outcome = structable("import", url, "runs", file, *options)
        assert outcome.code == 0, outcome.err
        row = storage.table("runs").read(("a", 1, 1))
        assert row is not None
        return {name: value for name, value in row.items() if value is not None}

    return run


def test_columns_of_other_names(stored: Any, fails: Fails, url: str, tmp_path: Path) -> None:  # noqa: ANN401
    head, row = "app,Started,attempt,Status!,junk", "a,1,1,DONE,7"
    cells: list[Any] = ["a", 1, 1, "DONE", 7]
    file = tmp_path / "x.csv"
    file.write_text(f"{head}\n{row}\n")
    message = fails(2, "import", url, "runs", file)
    assert "the column 'Started' is not a field; the fields are app" in message
    assert "--rename COLUMN=FIELD names its field, --skip-unknown leaves it out" in message
    rename = ("--rename", "Started=started")
    key = {"app": "a", "started": 1, "attempt": 1}
    assert "'Status!' is not a field" in fails(2, "import", url, "runs", file, *rename)
    both = (*rename, "--rename", "Status!=status")
    assert stored(file, *both, "--skip-unknown") == {**key, "status": "DONE"}
    assert stored(file, *both, "--columns", "app,started,attempt") == key
    assert "--columns names 'cost', which is not one of its columns" in fails(
        2, "import", url, "runs", file, *both, "--columns", "app,started,attempt,cost"
    )
    assert "rename names the column 'x', which is not there" in fails(
        2, "import", url, "runs", file, "--rename", "x=status"
    )
    assert "--rename 'x' is not COLUMN=FIELD" in fails(2, "import", url, "runs", file, "--rename", "x")
    file.write_text(f"{head.replace('junk', 'status')}\n{row}\n")
    assert "the column 'status' appears twice" in fails(2, "import", url, "runs", file, *both)
    lines = tmp_path / "x.jsonl"
    lines.write_text(json.dumps(dict(zip(head.split(","), cells, strict=True))))
    assert stored(lines, *both, "--skip-unknown") == {**key, "status": "DONE"}
    assert "'junk' is not a field" in fails(2, "import", url, "runs", lines, *both)
    columns = {name: pa.array([value]) for name, value in zip(head.split(","), cells, strict=True)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert stored(tmp_path / "x.parquet", *both, "--skip-unknown") == {**key, "status": "DONE"}
    assert "'junk' is not a field" in fails(2, "import", url, "runs", tmp_path / "x.parquet", *both)


def test_a_column_that_the_rule_names(structable: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("k k,Cost €\n1,2.5\n")
    assert structable("import", url, "t", file, "--create", "--primary-key", "k_k").code == 0
    assert structable("import", url, "t", file).code == 0
    with connect(url) as storage:
        assert [dict(row) for row in storage.table("t").scan()] == [{"k_k": 1, "Cost": 2.5}]


def test_names_that_cannot_be_given(fails: Fails, structable: Command, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,A b\n1,2,3\n")
    file = tmp_path / "x.json"
    file.write_text('{"a": 1, "b": 2, "A b": 3}')
    for place in (tmp_path / "x.csv", file):
        assert "rename gives the column 'a' the name 'B', which another column has" in fails(
            2, "infer", place, "--rename", "a=B"
        )
        assert "rename gives the column 'A b' the name 'a-b', which no field has: a letter is needed" in fails(
            2, "infer", place, "--rename", "A b=a-b"
        )
        swapped = structable("infer", place, "--rename", "a=b", "--rename", "b=a")
        assert fields_of(swapped.out) == ['b = "long"', 'a = "long"', 'A_b = "long"']
    file.write_text('{"a": 1, "A b": 3}\n{"A_b": 3}')
    assert "x.json, line 2: the columns 'A b' and 'A_b' are one field; --rename names another" in fails(
        2, "infer", file
    )
    file.write_text("")
    assert "x.json: it is empty; a table has at least one field" in fails(2, "infer", file)


def test_a_key_that_is_not_unique_in_a_table_that_is_there(
    fails: Fails, url: str, storage: Storage, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("app,started,attempt\na,1,1\nb,1,1\na,1,1\n")
    message = fails(2, "import", url, "runs", file, "--mode", "insert")
    assert message.startswith(
        f"{file}: rows share the key ('a', 1, 1), which must be unique: line 2, line 4; give a --mode"
    )
    assert "already has a row" in fails(
        1, "import", url, "runs", "-", "--format", "csv", "--mode", "insert", stdin=file.read_text()
    )
    for key in ("", ","):
        assert fails(2, "import", url, "new", file, "--create", "--primary-key", key).startswith(
            "--primary-key names no"
        )
    assert storage.admin.list() == ["everything", "runs"]
