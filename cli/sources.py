"""Opens a file to import in the format of its name."""

from __future__ import annotations

import sys
from pathlib import Path

from .arrow_sources import ArrowSource
from .csv_source import CsvSource
from .errors import UsageProblem
from .file_columns import Columns
from .file_options import FileForm
from .json_source import JsonSource
from .output import format_of
from .parquet_source import ParquetSource
from .source import Source

__all__ = ["open_source"]


def open_source(columns: Columns, place: str, format_: str | None, form: FileForm) -> Source:
    """Open a file to import."""
    kind = format_of(place, format_)
    form.check(kind)
    if place == "-" and kind == "parquet":
        raise UsageProblem("parquet is read from a file, not from standard input")
    dialect = form.dialect(place) if kind == "csv" else None
    try:
        stream = sys.stdin.buffer if place == "-" else Path(place).open("rb")  # noqa: SIM115 (the source closes it)
    except OSError as error:
        raise UsageProblem(f"{place}: {error.strerror}") from error
    if dialect is not None:
        return CsvSource(columns, place, stream, form.text, dialect)
    if kind == "json":
        return JsonSource(columns, place, stream, form.text)
    return (ArrowSource if kind == "arrow" else ParquetSource)(columns, place, stream)
