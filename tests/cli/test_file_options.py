"""import of text with the options of other programs' files: dialects, nulls, formats, and JSON in its other forms."""

import datetime as dt
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from structable.cli.formats.csv_dialect import CsvDialect
from structable.spi import Field, TableSpecification, Value, connect
from tests.cli.conftest import Command, every_store

Read = Callable[..., Any]

WIDE = TableSpecification(
    "t",
    [
        Field.long("k"),
        Field.string("s"),
        Field.int("i"),
        Field.double("d"),
        Field.decimal("m", 10, 2),
        Field.boolean("b"),
        Field.date("day"),
        Field.timestamp("at"),
        Field.timestamp_ntz("local"),
        Field.string("s2"),
    ],
    ["k"],
)


@pytest.fixture
def read(structable: Command, url: str, tmp_path: Path) -> Read:
    """Import text into a new table; return the values of a field by the keys' order, or the error."""

    def run(text: str, *options: str, field: str = "s", file: str = "f.csv") -> list[Value] | str:
        place = tmp_path / file
        place.write_bytes(text.encode())
        with connect(url) as storage:
            storage.admin.drop("t")
            storage.admin.create(WIDE)
            outcome = structable("import", url, "t", place, *options)
            if outcome.code:
                assert (outcome.code, storage.table("t").count()) == (2, 0), outcome
                return outcome.err.removeprefix("structable: ").strip().replace(str(place), "FILE")
            with storage.table("t").scan() as rows:
                return [row[field] for row in rows]

    return run


SPARK = ("--escape", "\\")
MYSQL = ("--delimiter", "\\t", "--quote", "", "--escape", "\\", "--null", "\\N")


@pytest.mark.parametrize(
    ("options", "text", "values"),
    [
        (("--delimiter", ";"), 'k;s\n1;"a;b"\n2;\'c,\n', ["a;b", "'c,"]),
        (("--delimiter", "|", "--quote", "'"), "k|s\n1|'it''s'\n2|a\"b\n3|''\n4|\n", ["it's", 'a"b', "", None]),
        (("--delimiter", "\\x01"), "k\x01s\n1\x01a,b\n", ["a,b"]),
        (("--quote", ""), 'k,s\n1,"a\n2,b"\n3,\n', ['"a', 'b"', None]),
        # Spark: an escape stands before a quote; elsewhere it is itself.
        (
            SPARK,
            'k,s\n1,"say \\"hi\\", he said"\n2,"C:\\dir,x"\n3,C:\\\n4,""\n5,\n',
            ['say "hi", he said', "C:\\dir,x", "C:\\", "", None],
        ),
        (SPARK, 'k,s\n1,"two\nlines \\"\n\\" end"\n2,"a ""b"""\n', ['two\nlines "\n" end', 'a "b"']),
        (SPARK, 'k,s\n1,"a\\\\"\n2,"b"\n', ["a\\", "b"]),
        # MySQL's INTO OUTFILE: no quotes, escapes before tabs, line feeds and escapes.
        (
            MYSQL,
            'k\ts\n1\ta\\\tb\n2\ttwo\\\nlines\n3\t\\N\n4\t\n5\tC:\\\\N "x"\n',
            ["a\tb", "two\nlines", None, "", 'C:\\N "x"'],
        ),
        # PostgreSQL's COPY in text: the names of characters.
        (MYSQL, "k\ts\n1\ta\\tb\\nc\\\\n\n2\t\\N\n", ["a\tb\nc\\n", None]),
        ((*MYSQL, "--null", "NULL"), "k\ts\n1\tNULL\n2\tNULLs\n", [None, "NULLs"]),
        # R and spreadsheets.
        (
            ("--null", "NA", "--null", "#N/A"),
            'k,s\n1,NA\n2,"NA"\n3,#N/A\n4,\n5,""\n6,NAN\n',
            [None, "NA", None, None, "", "NAN"],
        ),
        (("--null", "\\N"), 'k,s\n1,\\N\n2,"\\N"\n', [None, "\\N"]),
    ],
)
def test_dialects(read: Read, options: tuple[str, ...], text: str, values: list[Value]) -> None:
    assert read(text, *options) == values
    many = text.partition("\n")[0] + "\n" + "".join(f"{n}{text[1]}x\n" for n in range(1000, 1500))
    assert len(read(many, *options)) == 500


def test_tabs_by_the_extension(read: Read, structable: Command, url: str, tmp_path: Path) -> None:
    assert read('k\ts\n1\ta,b\n2\t"c\td"\n', file="f.tsv") == ["a,b", "c\td"]
    assert structable("export", url, "t", tmp_path / "out.tsv", "--columns", "k,s").code == 0
    assert (tmp_path / "out.tsv").read_text() == 'k\ts\n1\ta,b\n2\t"c\td"\n'
    assert read("k,s\n1,a\n", "--delimiter", ",", file="f.tsv") == ["a"]


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (("--delimiter", ";"), "k;s\n1;a;b\n", "FILE, line 2: there are 3 cells; the first line has 2"),
        (SPARK, 'k,s\n1,"two\nlines \\"\n2,x\n', "FILE, line 2: a quote is not closed"),
        (SPARK, 'k,i\n1,"1"\n2,"\\"\n\\""\n3,x\n', "FILE, line 3, field 'i': '\"\\n\"' is not a whole number"),
        (MYSQL, "k\ti\n1\t\\N\n2\ta\\\nb\n3\tc\n", "FILE, line 3, field 'i': 'a\\nb' is not a whole number"),
        (MYSQL, "k\ts\ti\n1\tx\\\n\t1\n2\ty\tz\n", "FILE, line 4, field 'i': 'z' is not a whole number"),
        (MYSQL, "k\ts\n1\ta\tb\n", "FILE, line 2: there are 3 cells; the first line has 2"),
        (
            ("--delimiter", "ab"),
            "k\n",
            "--delimiter is 'ab'; it must be one character of ASCII, not the end of a line",
        ),
        (("--quote", ","), "k\n", "--delimiter is ',', and so is the quote or the escape; they must differ"),
        (("--time-zone", "Mars/Base"), "k\n", "--time-zone is 'Mars/Base', which this machine does not know"),
        (("--true", "1"), "k\n", "--true and --false are given together"),
        (("--true", "1", "--false", "1"), "k\n", "--true and --false are both '1'; a text means one of them"),
        (("--null", "0", "--true", "1", "--false", "0"), "k\n", "--null and --false are both '0'"),
        (("--columns", ","), "k\n", "--columns names no field"),
        (("--rename", "a=s", "--rename", "a=k"), "k\n", "--rename names the column 'a' twice, s and k"),
        (("--delimiter", ""), "k\n", "--delimiter is ''; it must be one character of ASCII"),
    ],
)
def test_wrong_dialects(read: Read, options: tuple[str, ...], text: str, message: str) -> None:
    assert str(read(text, *options)).startswith(message)


def test_options_of_other_formats(read: Read) -> None:
    assert "--delimiter: the file is json, and only CSV has this" in read("{}", "--delimiter", ";", file="f.json")
    assert "--null: the file is parquet, and only CSV or JSON has this" in read("", "--null", "x", file="f.parquet")


def test_files_without_a_line_of_names(read: Read) -> None:
    two = ("--no-header", "--columns", "k,s")
    assert read("1,a\n2,b\n", *two) == ["a", "b"]
    assert read("b;2\n\na;1\n", "--no-header", "--columns", "s, k", "--delimiter", ";") == ["a", "b"]
    assert read('1,"two\nlines"\n2,\n3,""', *two) == ["two\nlines", None, ""]
    assert read("1,x,a\n", "--no-header", "--columns", "k,other,s", "--skip-unknown") == ["a"]
    assert read("1,x,a\n", "--no-header", "--columns", "k,i,other", "--rename", "other=s", "--rename", "i=s2") == ["a"]
    assert read("1,a" + "," * 8 + "\n", "--no-header") == ["a"]  # the table's fields
    assert read("", "--no-header") == []
    assert read("k,s\n", *two) == "FILE, line 1, field 'k': 'k' is not a whole number"
    assert read("1,a\n2,b\nx,c\n", *two) == "FILE, line 3, field 'k': 'x' is not a whole number"
    assert read("1,a\n2,b,c\n", *two) == "FILE, line 2: there are 3 cells; the first line has 2"
    assert read("1,x,a\n", "--no-header", "--columns", "k,other,s").startswith(
        "FILE: the column 'other' is not a field"
    )
    assert read("1,a\n", "--no-header") == (
        f"FILE, line 1: there are 2 cells, and 10 columns: {', '.join(WIDE.field_names)}; --columns names "
        "those of the file"
    )
    assert "--no-header: the file is json, and only CSV has this" in read("{}", "--no-header", file="f.json")


def test_names_for_a_table_of_a_file_without_them(structable: Command, url: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("1,a,2024-05-31\n2,b,\n")
    found = structable("infer", tmp_path / "f.csv", "--no-header", "--primary-key", "column_1")
    assert 'column_1 = "long"\ncolumn_2 = "string"\ncolumn_3 = "date"\n' in found.out
    assert "all 2 rows" in found.err
    named = ("--no-header", "--columns", "id,name,day", "--create", "--primary-key", "id")
    assert structable("import", url, "t", tmp_path / "f.csv", *named).code == 0
    with connect(url) as storage, storage.table("t").scan() as rows:
        assert [tuple(row.values()) for row in rows] == [(1, "a", dt.date(2024, 5, 31)), (2, "b", None)]
    (tmp_path / "f.csv").write_text("")
    assert "it is empty; a table has at least one field" in structable("infer", tmp_path / "f.csv", "--no-header").err


def test_two_columns_of_one_name(structable: Command, url: str, tmp_path: Path) -> None:
    """The second has the field that the rule of names makes; where the table has none, it is refused."""
    (tmp_path / "f.csv").write_text("id,v,v,V\n1,a,b,c\n")
    assert structable("import", url, "t", tmp_path / "f.csv", "--create", "--primary-key", "id").code == 0
    with connect(url) as storage:
        row = storage.table("t").read((1,))
        assert row is not None
        assert dict(row) == {"id": 1, "v": "a", "v_2": "b", "V_3": "c"}
        storage.admin.create(TableSpecification("u", [Field.long("id"), Field.string("v")], ["id"]))
    refused = structable("import", url, "u", tmp_path / "f.csv", "--skip-unknown")
    assert "the column 'v' appears twice" in refused.err


BERLIN = ("--time-zone", "Europe/Berlin")
FORMATS: list[tuple[tuple[str, ...], str, list[str], list[Any]]] = [
    (("--date-format", "%d.%m.%Y"), "day", ["31.05.2024", ""], [dt.date(2024, 5, 31), None]),
    (("--date-format", "%d.%m.%Y %H:%M"), "day", ["31.05.2024 00:00"], [dt.date(2024, 5, 31)]),
    (("--timestamp-format", "%d.%m.%Y %H:%M"), "local", ["31.05.2024 08:30"], [dt.datetime(2024, 5, 31, 8, 30)]),
    (
        ("--timestamp-format", "%d.%m.%Y %H:%M", *BERLIN),
        "at",
        ["31.05.2024 08:30"],
        [dt.datetime(2024, 5, 31, 6, 30, tzinfo=dt.UTC)],
    ),
    (
        BERLIN,
        "at",
        ["2024-01-31 08:30:00", "2024-01-31T08:30:00Z", "2024-01-31"],
        [dt.datetime(2024, 1, 31, hour, minute, tzinfo=dt.UTC) for hour, minute in ((7, 30), (8, 30))]
        + [dt.datetime(2024, 1, 30, 23, tzinfo=dt.UTC)],
    ),
    (("--time-zone", "-03:30"), "at", ["2024-01-31 08:30"], [dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)]),
    (BERLIN, "local", ["2024-01-31 08:30:00"], [dt.datetime(2024, 1, 31, 8, 30)]),
    (("--decimal", ","), "d", ["1,5", "-2", "1e3", "nan"], [1.5, -2.0, 1000.0, float("nan")]),
    (("--decimal", ","), "m", ["1,50", "7"], [Decimal("1.50"), Decimal("7.00")]),
    (("--decimal", ","), "i", ["7", "-8"], [7, -8]),
    (("--true", "Y", "--true", "1", "--false", "N"), "b", ["Y", "1", "N", ""], [True, True, False, None]),
    ((), "i", ["181.0", "7", "", "-3.00"], [181, 7, None, -3]),
    ((), "day", ["2024-05-31 00:00:00", "2024-05-31"], [dt.date(2024, 5, 31)] * 2),
]


@pytest.mark.parametrize(("options", "field", "texts", "values"), FORMATS)
def test_forms_of_values(
    read: Read, options: tuple[str, ...], field: str, texts: list[str], values: list[Value]
) -> None:
    rows = "".join(f"{number};{text}\n" for number, text in enumerate(texts))
    found = read(f"k;{field}\n{rows}", "--delimiter", ";", *options, field=field)
    assert repr(found) == repr(values)
    if field in ("day", "local", "at"):
        lines = [{"k": number, field: text or None} for number, text in enumerate(texts)]
        assert read("\n".join(map(json.dumps, lines)), *options, field=field, file="f.jsonl") == values


@pytest.mark.parametrize(
    ("options", "field", "text", "reason"),
    [
        (("--date-format", "%d.%m.%Y"), "day", "2024-05-31", "'2024-05-31' is not a date of the format '%d.%m.%Y'"),
        (("--timestamp-format", "%H"), "local", "x", "'x' is not a timestamp of the format '%H'"),
        (("--date-format", "%Y-%m-%d %H"), "day", "2024-05-31 08", "'2024-05-31 08' is not midnight"),
        (("--date-format", "%Y-%m-%d%z"), "day", "2024-05-31Z", "whole days, without a time zone"),
        (("--timestamp-format", "%Y"), "at", "2024", "'2024' has no time zone; name it with --time-zone"),
        (BERLIN, "at", "2024-03-31 02:30:00", "does not come in Europe/Berlin, where clocks change"),
        (
            BERLIN,
            "at",
            "2024-10-27 02:30:00",
            "comes twice in Europe/Berlin, where clocks change; write it with its offset",
        ),
        (("--decimal", ","), "d", "1.234,5", "has a point; the decimal mark is a comma"),
        (("--true", "Y", "--false", "N"), "b", "true", "'true' is not one of Y, N"),
        ((), "i", "181.5", "'181.5' is not a whole number"),
        ((), "day", "2024-05-31 08:00", "is not midnight"),
    ],
)
def test_values_of_another_form(read: Read, options: tuple[str, ...], field: str, text: str, reason: str) -> None:
    found = read(f"k;{field}\n0;\n1;{text}\n", "--delimiter", ";", *options)
    assert str(found).startswith(f"FILE, line 3, field '{field}': ")
    assert reason in str(found)


@pytest.mark.parametrize(
    ("delimiter", "quote", "escape"),
    [(",", '"', ""), (";", "'", ""), (",", '"', "\\"), ("\t", "", "\\"), ("|", '"', "^")],
)
def test_what_a_dialect_writes_is_read(read: Read, delimiter: str, quote: str, escape: str) -> None:
    """Random texts of the characters that mean something, written by the rules of the dialect."""
    chosen = random.Random(42)
    alphabet = [delimiter, quote or "x", escape or "y", "\n", "a", "N", " "]
    texts = ["".join(chosen.choices(alphabet, k=chosen.randrange(7))) for _ in range(300)]

    def cell(text: str) -> str:
        if not quote:
            return "".join(escape + one if one in (delimiter, escape, "\n") else one for one in text)
        before = escape or quote
        plain = text.replace(escape, escape * 2) if escape else text
        return f"{quote}{plain.replace(quote, before + quote)}{quote}"

    rows = "".join(f"{number}{delimiter}{cell(text)}\n" for number, text in enumerate(texts))
    options = ("--delimiter", delimiter, "--quote", quote, "--escape", escape, "--null", "\\N")
    assert read(f"k{delimiter}s\n{rows}", *options) == texts


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_row_ends_where_no_cut_says_otherwise(cut: int) -> None:
    rows = b'1,"a\\"\n,b"\n2,"c\nd\\\\"\n3,"e""\nf"\n'
    dialect = CsvDialect(escape="\\")
    ends = [11, 21, 31]
    assert rows[ends[0] - 1 : ends[0]] == b"\n"
    assert dialect.end_of_last_row(rows[:cut]) == max([0, *(end for end in ends if end <= cut)])
    assert dialect.end_of_first_row(rows[:cut]) == (11 if cut >= 11 else 0)


DIFFERENT = [{"k": 1, "s": "a"}, {"k": 2, "i": 7}, {"s": "b", "k": 3}, {"k": 2, "s": "c"}, {"k": 1, "s": "d", "i": 8}]
MERGED = [{"k": 1, "s": "d", "i": 8, "s2": "kept"}, {"k": 2, "s": "c", "i": 7, "s2": "kept"}, {"k": 3, "s": "b"}]
FILLED = [{"k": 1, "s": "d", "i": 8}, {"k": 2, "s": "c"}, {"k": 3, "s": "b"}]


@every_store
@pytest.mark.parametrize("form", ["lines", "array", "indented"])
@pytest.mark.parametrize(("mode", "result"), [("upsert", MERGED), ("replace", FILLED), ("overwrite", FILLED)])
def test_objects_that_name_different_fields(
    structable: Command, url: str, tmp_path: Path, form: str, mode: str, result: list[dict[str, Any]]
) -> None:
    """A field that an object does not name keeps its value, or becomes null, as in `upsert` and `replace`."""
    texts = {
        "lines": "\n".join(map(json.dumps, DIFFERENT)),
        "array": json.dumps(DIFFERENT),
        "indented": json.dumps(DIFFERENT, indent=2),
    }
    (tmp_path / "x.json").write_text(texts[form])
    with connect(url) as storage:
        storage.admin.create(WIDE)
        table = storage.table("t")
        table.upsert_many([{"k": 1, "s2": "kept"}, {"k": 2, "i": 1, "s2": "kept"}])
        outcome = structable("import", url, "t", tmp_path / "x.json", "--mode", mode, "--yes")
        assert outcome.code == 0, outcome.err
        with table.scan() as rows:
            found = [{name: value for name, value in row.items() if value is not None} for row in rows]
        assert found == result


def test_many_objects_of_different_fields(structable: Command, url: str, tmp_path: Path) -> None:
    """Rows of one key take effect in the order of the file, whatever they name."""
    chosen = random.Random(7)
    rows: dict[int, dict[str, Any]] = {}
    with (tmp_path / "x.jsonl").open("w") as stream:
        for number in range(30_000):
            row: dict[str, Any] = {"k": chosen.randrange(20_000), "i": number}
            if chosen.random() < 0.5:
                row["s"] = str(number)
            stream.write(json.dumps(row) + "\n")
            rows.setdefault(row["k"], {}).update(row)
    with connect(url) as storage:
        storage.admin.create(WIDE)
        assert structable("import", url, "t", tmp_path / "x.jsonl").code == 0
        with storage.table("t").scan(columns=["i", "s"]) as found:
            assert [dict(row) for row in found] == [
                {"k": key, "i": rows[key]["i"], "s": rows[key].get("s")} for key in sorted(rows)
            ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"k": 1}\n {"k": 2}]', "FILE, line 2: a comma, or the end of the array, is missing after an element"),
        ('[{"k": 1},\n{"k": 2}', "FILE, line 2: a comma, or the end of the array, is missing after an element"),
        ('[{"k": 1},\n{"k": 2,\n "i": }]', "FILE, line 3: Expecting value at column 7"),
        ('[{"k": 1},\n{"k": 2,\n "i": "x"}]', "FILE, line 2: field 'i': 'x' is a string; a int is needed"),
        ('[{"k": 1}] {}', "FILE, line 1: more follows the end of the array"),
        ('[{"k": 1},\n\n 7]', 'FILE, line 3: a JSON object is needed, like {"field": 1}'),
        ('\n[{"k": 1},\n{"s": "a\\u0000", "k": 2}]', "FILE, line 3: field 's': 'a\\x00' holds a NUL"),
        ('{"k": 1}\n{"k": 2, "nope": 1}', "FILE, line 2: the column 'nope' is not a field; the fields are k, s"),
        ('{"k": 1}\n{"s": "x"}', "FILE, line 2: table 't', field 'k': is part of the primary key"),
    ],
)
def test_wrong_json(read: Read, text: str, message: str) -> None:
    assert str(read(text, file="f.json")).startswith(message)


def test_an_empty_array(read: Read) -> None:
    assert read(" [ ] \n", file="f.json") == []
    assert read("", file="f.json") == []


def test_a_large_array(structable: Command, url: str, tmp_path: Path) -> None:
    rows = [{"k": number, "s": "é" * (number % 50), "i": number} for number in range(40_000)]
    (tmp_path / "x.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    with connect(url) as storage:
        storage.admin.create(WIDE)
        assert structable("import", url, "t", tmp_path / "x.json").err.startswith("40,000 rows")
        with storage.table("t").scan(columns=["s", "i"]) as found:
            assert [dict(row) for row in found] == rows


def test_options_of_json(read: Read) -> None:
    """They hold for all objects, though each may have other fields."""
    text = '{"k": 1, "S": "NA"}\n{"k": 2, "S": "-"}\n{"k": 3, "i": 7, "S": "x"}\n'
    assert read(text, "--rename", "S=s", "--null", "NA", "--null", "-", file="f.json") == [None, None, "x"]
    assert read(text, "--columns", "k,i", field="i", file="f.json") == [None, None, 7]
    assert read(text, "--rename", "S=s", "--rename", "s3=s2", file="f.json") == (
        "FILE: rename names the column 's3', which is not there; there are 'k', 'S', 'i'"
    )
    assert (
        read(text, "--columns", "k,s2", file="f.json") == "FILE: --columns names 's2', which is not one of its columns"
    )
    for form in ("[{},\n{}]", "{}\n{}"):
        found = read(form.format('{"k": 1}', f'{{"k": {"1" * 5000}}}'), file="f.json")
        assert str(found).startswith("FILE, line 2: ")


def test_truths_of_json(read: Read, structable: Command, tmp_path: Path) -> None:
    text, options = (
        '[{"k": 1, "b": "Y", "s": "Y"}, {"k": 2, "b": "N"}, {"k": 3, "b": true}]',
        ("--true", "Y", "--false", "N"),
    )
    assert read(text, *options, field="b", file="f.json") == [True, False, True]
    assert "'Y' is a string; a boolean is needed" in read(text, file="f.json")
    assert "field 'b': 'x' is not one of Y, N" in read('{"k": 1, "b": "x"}', *options, file="f.json")
    (tmp_path / "f.json").write_text('[{"b": "Y"}, {"b": "N"}]')
    assert 'b = "boolean"' in structable("infer", tmp_path / "f.json", *options).out
