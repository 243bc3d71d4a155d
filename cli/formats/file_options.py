"""Options for files of other programs: their columns, their CSV dialect, and the form of their values."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo

import typer

from structable.cli.language.errors import UsageProblem

from .file_columns import ColumnChoice, Columns
from .output import TAB_SUFFIXES, format_of
from .text_form import TextForm

if TYPE_CHECKING:
    from .csv_dialect import CsvDialect
    from .source import FileSource

FileFormat = Annotated[
    Literal["csv", "json", "arrow", "parquet"] | None,
    typer.Option("--format", help="The file's format; by default that of its extension.", show_default=False),
]

_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_CSV, _TEXT = "Options of CSV files", "Values as text, in CSV and JSON"


def _option(group: str, help_: str, metavar: str = "CHARACTER") -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        metavar=metavar, help=help_, rich_help_panel=group, show_default=False
    )
    return found


@dataclass(frozen=True, slots=True)
class FileForm:
    """The options of one file."""

    columns: ColumnChoice
    text: TextForm
    delimiter: str | None
    quote: str | None
    escape: str | None
    text_options: tuple[str, ...]
    """The names of the given options that apply only to text."""

    def _dialect(self, location: str) -> CsvDialect:
        """Return the CSV dialect of a file: with tabs if its name ends in .tsv."""
        from .csv_dialect import CsvDialect

        delimiter = self.delimiter or ("\t" if location.lower().endswith(TAB_SUFFIXES) else ",")
        quote = '"' if self.quote is None else self.quote
        escape = self.escape or ""
        if delimiter in (quote, escape):
            raise UsageProblem(f"--delimiter is {delimiter!r}, and so is the quote or the escape; they must differ")
        return CsvDialect(delimiter, quote, escape)

    def _check(self, kind: str) -> None:
        """Check that a format has the given options.

        Raises
        ------
        UsageProblem
            If it lacks one.
        """
        csv = [f"--{name}" for name in ("delimiter", "quote", "escape") if getattr(self, name) is not None]
        if self.columns.names is not None:
            csv.append("--no-header")
        wrong = csv if kind == "json" else [*csv, *self.text_options] if kind != "csv" else []
        if wrong:
            wanted = "CSV" if csv else "CSV or JSON"
            raise UsageProblem(f"{', '.join(wrong)}: the file is {kind}, and only {wanted} has this")

    def open(self, columns: Columns, location: str, format_: str | None) -> FileSource:
        """Open a file to import.

        Raises
        ------
        UsageProblem
            If there is none, or its format lacks one of the options.
        """
        from .arrow_sources import ArrowSource
        from .csv_source import CsvSource
        from .json_source import JsonSource
        from .parquet_source import ParquetSource

        kind = format_of(location, format_)
        self._check(kind)
        if location == "-" and kind == "parquet":
            raise UsageProblem("parquet is read from a file, not from standard input")
        dialect = self._dialect(location) if kind == "csv" else None
        try:
            stream = sys.stdin.buffer if location == "-" else Path(location).open("rb")  # noqa: SIM115 (the source closes it)
        except OSError as error:
            raise UsageProblem(f"{location}: {error.strerror}") from error
        if kind == "parquet" and not stream.seekable():
            stream.close()
            raise UsageProblem(f"{location}: parquet is read from a file, not from a pipe")
        if dialect is not None:
            return CsvSource(columns, location, stream, self.text, dialect)
        if kind == "json":
            return JsonSource(columns, location, stream, self.text)
        return (ArrowSource if kind == "arrow" else ParquetSource)(columns, location, stream)


def with_file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameter `form` is made from the options of files."""
    options = inspect.signature(_form, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters
    names = [name for name in own if name != "form"]

    @functools.wraps(command)
    def run(**given: object) -> None:
        form = _form(**{name: given.pop(name) for name in options})  # type: ignore[arg-type]  # as Typer parsed them
        command(**given, form=form)

    parameters = [*(own[name] for name in names), *options.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _form(
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="The field of a column; repeat it for others.", show_default=False),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="FIELDS", help="Only these fields, separated by commas.", show_default=False)
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out columns that are not fields, or that no field takes.")
    ] = False,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header",
            help="The first line is a row: the columns are --columns, or the table's fields, in order.",
            rich_help_panel=_CSV,
        ),
    ] = False,
    delimiter: Annotated[
        str | None, _option(_CSV, "What separates cells; by default a comma, or a tab in .tsv.")
    ] = None,
    quote: Annotated[str | None, _option(_CSV, 'What cells are quoted with, by default "; empty for nothing.')] = None,
    escape: Annotated[
        str | None, _option(_CSV, "What stands before a quote inside quotes, as in Spark's and MySQL's files.")
    ] = None,
    null: Annotated[
        list[str] | None,
        _option(_TEXT, "The text of null, in addition to CSV's empty cell, such as NA; repeat it for others.", "TEXT"),
    ] = None,
    date_format: Annotated[
        str, _option(_TEXT, "The format of dates, such as %d.%m.%Y, as in Python's strptime.", "FORMAT")
    ] = "",
    timestamp_format: Annotated[str, _option(_TEXT, "The format of timestamps, likewise.", "FORMAT")] = "",
    time_zone: Annotated[
        str | None, _option(_TEXT, "The zone of timestamps without one, such as Europe/Berlin or +02:00.", "ZONE")
    ] = None,
    decimal: Annotated[Literal[".", ","], _option(_TEXT, "The decimal mark.", "MARK")] = ".",
    true: Annotated[list[str] | None, _option(_TEXT, "The text of true; repeat it for others.", "TEXT")] = None,
    false: Annotated[list[str] | None, _option(_TEXT, "The text of false; repeat it for others.", "TEXT")] = None,
) -> FileForm:
    given = {
        "--null": null,
        "--date-format": date_format,
        "--timestamp-format": timestamp_format,
        "--time-zone": time_zone,
        "--decimal": decimal != ".",
        "--true": true,
        "--false": false,
    }
    only = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    if columns is not None and not only:
        raise UsageProblem("--columns names no field; name at least one, or leave the option out")
    if bool(true) != bool(false):
        raise UsageProblem("--true and --false are given together; give both, or neither")
    texts = {"--null": null, "--true": true, "--false": false}
    for (one, some), (other, more) in itertools.combinations(texts.items(), 2):
        if both := set(some or ()) & set(more or ()):
            raise UsageProblem(f"{one} and {other} are both {min(both)!r}; a text means one of them")
    named: dict[str, str] = {}
    for column, name in map(_renamed, rename or ()):
        if named.setdefault(column, name) != name:
            raise UsageProblem(f"--rename names the column {column!r} twice, {named[column]} and {name}")
    form = TextForm(
        tuple(null or ()),
        date_format,
        timestamp_format,
        _zone(time_zone),
        decimal,
        tuple(true or ()),
        tuple(false or ()),
    )
    return FileForm(
        ColumnChoice(named, (), skip_unknown, only) if no_header else ColumnChoice(named, only, skip_unknown),
        form,
        _character("delimiter", delimiter),
        _character("quote", quote, optional=True),
        _character("escape", escape, optional=True),
        tuple(name for name, value in given.items() if value),
    )


def _renamed(text: str) -> tuple[str, str]:
    column, mark, name = text.rpartition("=")
    if not mark or not name:
        raise UsageProblem(f"--rename {text!r} is not COLUMN=FIELD")
    return column, name


def _character(name: str, text: str | None, *, optional: bool = False) -> str | None:
    if text is None or (optional and not text):
        return text
    if len(text) > 1 and text.startswith("\\"):  # such as \t, which shells pass on unchanged
        with contextlib.suppress(UnicodeError):  # rejected below
            text = text.encode("ascii").decode("unicode_escape")
    if len(text) != 1 or not text.isascii() or text in "\r\n\0":
        raise UsageProblem(f"--{name} is {text!r}; it must be one character of ASCII, not the end of a line")
    return text


def _zone(name: str | None) -> dt.tzinfo | None:
    if name is None:
        return None
    if match := _OFFSET.fullmatch(name):
        offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < dt.timedelta(days=1):
            return dt.timezone(-offset if match[1] == "-" else offset)
    try:
        return dt.UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise UsageProblem(
            f"--time-zone is {name!r}, which this machine does not know; give a name like Europe/Berlin, or an offset "
            "like +02:00"
        ) from None
