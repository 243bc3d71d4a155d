"""The table of tools in docs/cli.md: each row is a test, by a file that the tool writes here, or wrote once."""

import datetime as dt
import decimal
import importlib.metadata
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import duckdb
import pandas as pd
import polars as pl
import pytest

from structable.spi import connect
from tests.cli.conftest import Command
from tests.page_code import ROOT

FILES = Path(__file__).parent / "files"
"""Files that tools wrote which no test can run."""

AT = dt.datetime(2024, 5, 31, 8, 30, 0, 250_000, dt.UTC)
LOCAL = dt.datetime(2024, 5, 31, 8, 30)
DAY = dt.date(2024, 5, 31)
SAID = 'say "hi", \\ ok'


class Case(NamedTuple):
    """A file, the options of its import, and the values of some fields by the order of the key `k`."""

    file: str
    write: Callable[[Path], object] | None
    options: tuple[str, ...]
    values: dict[str, list[Any]]


def by_pandas(write: str, **options: object) -> Callable[[Path], object]:
    frame = pd.DataFrame(
        {
            "k": [1, 2, 3],
            "n": [181, None, 3],
            "s": ["", None, SAID],
            "b": [True, False, True],
            "at": pd.Series([AT, None, AT]),
            "local": [LOCAL] * 3,
            "d": [0.1 + 0.2, math.inf, 1e22],
        }
    )
    return lambda place: getattr(frame, write)(place, **options)


def by_polars(write: str) -> Callable[[Path], object]:
    frame = pl.DataFrame(
        {
            "k": [1, 2, 3],
            "s": ["", None, SAID],
            "b": [True, False, None],
            "at": [AT, None, AT],
            "local": [LOCAL] * 3,
            "day": [DAY] * 3,
            "d": [0.1 + 0.2, math.inf, 1e22],
            "m": [decimal.Decimal("1.50"), None, decimal.Decimal("2.00")],
        }
    )
    return cast(Callable[[Path], object], getattr(frame, write))


def by_duckdb(place: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute(
            f"""
            COPY (
                SELECT k, s, k = 1 AS b, timestamptz '{AT}' AS "at", timestamp '{LOCAL}' AS "local",
                    date '{DAY}' AS day, d, 1.50::decimal(10, 2) AS m, 9007199254740993::hugeint AS huge,
                    '\\x0A\\xFFA'::blob AS raw,
                    uuid '550e8400-e29b-41d4-a716-446655440000' AS u
                FROM (VALUES (1, '', 0.1::double + 0.2), (2, NULL, 'inf'), (3, '{SAID}', 1e22)) AS rows(k, s, d)
            ) TO '{place}'
            """
        )


SPARK = ("--escape", "\\")
DUMPED = ("--delimiter", "\\t", "--quote", "", "--escape", "\\", "--null", "\\N", "--no-header")
TRUTH = ("--true", "t", "--false", "f")
EXCEL = (
    *("--delimiter", ";", "--decimal", ",", "--date-format", "%d.%m.%Y", "--true", "WAHR", "--false", "FALSCH"),
    *("--rename", "Name=name"),
)
DIGITS: list[Any] = [0.1 + 0.2, math.inf, 1e22]

DUMPED_BY_MARIADB: dict[str, list[Any]] = {
    "s": ["a\tb", None, "C:\\dir", "two\nlines", "", "\\N", "NULL", "a\rb"],
    "d": [0.1 + 0.2, None, 2.0, 3.0, *[None] * 4],
    "at": [LOCAL, None, dt.datetime(2024, 6, 1), dt.datetime(2024, 6, 1, 0, 0, 1), *[None] * 4],
    "b": [1, 0, 1, 0, *[None] * 4],
}

CASES: dict[str, Case] = {
    "pandas 2.3.3, `to_csv`": Case(
        "f.csv",
        by_pandas("to_csv"),
        ("--rename", "=row"),
        {
            "row": [0, 1, 2],
            "n": [181.0, None, 3.0],
            "s": [None, None, SAID],
            "b": [True, False, True],
            "at": [AT, None, AT],
            "local": [LOCAL] * 3,
            "d": DIGITS,
        },
    ),
    "pandas 2.3.3, `to_json` of records": Case(
        "f.jsonl",
        by_pandas("to_json", orient="records", lines=True),
        (),
        {
            "n": [181.0, None, 3.0],
            "s": ["", None, SAID],
            "at": [1717144200250, None, 1717144200250],
            "d": [0.3, None, 1e22],
        },
    ),
    'pandas 2.3.3, `to_json` with `date_format="iso"`': Case(
        "f.json",
        by_pandas("to_json", orient="records", date_format="iso"),
        (),
        {"at": [AT, None, AT], "local": [LOCAL] * 3},
    ),
    "pandas 2.3.3, `to_parquet`": Case(
        "f.parquet",
        lambda place: pd.DataFrame({"k": [1, 3], "n": [1, None]}, index=[5, 7]).to_parquet(place),
        (),
        {"index_level_0": [5, 7], "n": [1.0, None]},
    ),
    "Polars 2.1.0, `write_csv`": Case(
        "f.csv",
        by_polars("write_csv"),
        (),
        {
            "s": ["", None, SAID],
            "b": [True, False, None],
            "at": [AT, None, AT],
            "local": [LOCAL] * 3,
            "day": [DAY] * 3,
            "d": DIGITS,
            "m": [1.5, None, 2.0],
        },
    ),
    "Polars 2.1.0, `write_ndjson`": Case(
        "f.ndjson",
        by_polars("write_ndjson"),
        (),
        {
            "s": ["", None, SAID],
            "at": [AT, None, AT],
            "local": [LOCAL] * 3,
            "day": [DAY] * 3,
            "d": [0.1 + 0.2, None, 1e22],
        },
    ),
    "Polars 2.1.0, `write_parquet` of categories": Case(
        "f.parquet",
        lambda place: pl.DataFrame({"k": [1, 2], "s": pl.Series(["a", "b"], dtype=pl.Categorical)}).write_parquet(
            place
        ),
        (),
        {"s": ["a", "b"]},
    ),
    "DuckDB 2.0.1, `COPY .. TO '.csv'`": Case(
        "f.csv",
        by_duckdb,
        (),
        {
            "s": ["", None, SAID],
            "b": [True, False, False],
            "at": [AT] * 3,
            "local": [LOCAL] * 3,
            "day": [DAY] * 3,
            "d": DIGITS,
            "m": [1.5] * 3,
            "huge": [9007199254740993] * 3,
            "raw": ["\\x0A\\xFFA"] * 3,
        },
    ),
    "DuckDB 2.0.1, `COPY .. TO '.json'`": Case(
        "f.json",
        by_duckdb,
        (),
        {"s": ["", None, SAID], "b": [True, False, False], "at": [AT] * 3, "d": DIGITS, "raw": ["\\x0A\\xFFA"] * 3},
    ),
    "DuckDB 2.0.1, `COPY .. TO '.parquet'`": Case(
        "f.parquet",
        by_duckdb,
        (),
        {
            "m": [decimal.Decimal("1.50")] * 3,
            "huge": [9007199254740992.0] * 3,
            "raw": [b"\x0a\xffA"] * 3,
            "u": ["550e8400-e29b-41d4-a716-446655440000"] * 3,
        },
    ),
    "Spark 4.3.0, CSV": Case(
        "spark.csv",
        None,
        SPARK,
        {
            "s": ["", None, SAID, "C:\\dir\\", "C:\\dir\\,x", 'a\\"b', "spaces", "two\nlines", "a\\\\b,", 'end\\",'],
            "b": [True, False, *[None] * 8],
            "at": [AT.replace(microsecond=123_000), *[None] * 9],
            "d": [0.1 + 0.2, None, math.inf, *[None] * 7],
        },
    ),
    "Spark 4.3.0, JSON": Case(
        "spark.json",
        None,
        (),
        {
            "s": [
                "",
                None,
                SAID,
                "C:\\dir\\",
                "C:\\dir\\,x",
                'a\\"b',
                "  spaces  ",
                "two\nlines",
                "a\\\\b,",
                'end\\",',
            ],
            "at": [AT.replace(microsecond=123_000), *[None] * 9],
            "d": [0.1 + 0.2, None, math.inf, *[None] * 7],
            "raw": ["Cv8=", *[None] * 9],
        },
    ),
    "sqlite3 3.40.1, `-csv -header`": Case(
        "sqlite.csv", None, (), {"s": ["", None, 'say "hi", ok', "two\nlines"], "d": [0.3, math.inf, 1e22, 3.0]}
    ),
    "PostgreSQL 15.18, `COPY .. (FORMAT csv, HEADER)`": Case(
        "postgresql.csv",
        None,
        TRUTH,
        {
            "s": ["", None, SAID, "\\N", "two\nlines"],
            "b": [True, False, None, None, None],
            "at": [AT, *[None] * 4],
            "local": [LOCAL, *[None] * 4],
            "d": [0.1 + 0.2, None, math.inf, None, None],
            "raw": ["\\x0aff", *[None] * 4],
        },
    ),
    "PostgreSQL 15.18, `COPY` as text": Case(
        "postgresql.txt",
        None,
        ("--format", "csv", *DUMPED, *TRUTH, "--columns", "k,s,b,at,local,d,raw"),
        {"s": ["", None, SAID, "\\N", "two\nlines"], "b": [True, False, None, None, None], "at": [AT, *[None] * 4]},
    ),
    "MariaDB 10.11, `SELECT .. INTO OUTFILE`": Case(
        "mariadb.txt", None, ("--format", "csv", *DUMPED, "--columns", "k,s,d,at,b"), DUMPED_BY_MARIADB
    ),
    "MariaDB 10.11, the same with `OPTIONALLY ENCLOSED BY '\"'`": Case(
        "mariadb.csv",
        None,
        (*SPARK, "--null", "\\N", "--no-header", "--columns", "k,s,d,at,b"),
        DUMPED_BY_MARIADB,
    ),
    "R 4.2.2, `write.csv`": Case(
        "r.csv",
        None,
        ("--null", "NA"),
        {
            "column_1": [1, 2, 3, 4],
            "name": ['a "b"', None, "NA", ""],
            "flag": [True, False, None, True],
            "day": [DAY, None, dt.date(2024, 6, 1), dt.date(2024, 6, 2)],
            "at": [LOCAL, None, dt.datetime(2024, 6, 1), dt.datetime(2024, 6, 2)],
            "x": [0.3, None, 1e22, math.inf],
        },
    ),
    "Excel, CSV UTF-8 of a German Windows": Case(
        "excel.csv",
        None,
        EXCEL,
        {
            "name": ["Müller; Söhne", None],
            "Preis": [1234.5, 0.5],
            "Tag": [DAY, dt.date(2024, 6, 1)],
            "Aktiv": [True, False],
        },
    ),
    "LibreOffice, CSV with all texts quoted": Case(
        "libreoffice.csv", None, (), {"name": ['a "b"', "", None], "price": [1.5, 2.0, None]}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_files_of_tools(structable: Command, url: str, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    place = (tmp_path if case.write else FILES) / case.file
    if case.write:
        case.write(place)
    outcome = structable("import", url, "t", place, "--create", "--primary-key", "k", *case.options)
    assert outcome.code == 0, outcome.err
    with connect(url) as storage, storage.table("t").scan(columns=list(case.values)) as rows:
        found = list(rows)
        assert {field: repr([row[field] for row in found]) for field in case.values} == {
            field: repr(values) for field, values in case.values.items()
        }


def test_the_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition("### Files of other tools")[2].partition("\n##")[0]
    rows = [", ".join(row) for row in re.findall(r"^\| (.+?) \| (.+?) \|", section, re.MULTILINE)]
    assert rows[0] == "written by, as"
    assert rows[2:] == list(CASES)


@pytest.mark.parametrize("library", ["pandas", "Polars", "DuckDB", "PySpark"])
def test_the_versions_are_those_that_wrote(library: str) -> None:
    named = f"{library.removeprefix('Py')} {importlib.metadata.version(library)}, "
    assert [name for name in CASES if name.startswith(named)]
