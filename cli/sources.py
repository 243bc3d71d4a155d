"""Opens a file to import in the format of its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .arrow_sources import ArrowSource
from .csv_source import CsvSource
from .errors import UsageProblem
from .file_columns import FileColumns
from .json_source import JsonSource
from .output import format_of
from .parquet_source import ParquetSource
from .source import Source

__all__ = ["open_source"]


def open_source(columns: FileColumns, place: str, format_: str | None) -> Source:
    """Open a file to import."""
    kind = format_of(place, format_)
    if place == "-" and kind == "parquet":
        raise UsageProblem("parquet is read from a file, not from standard input")
    try:
        stream = sys.stdin.buffer if place == "-" else Path(place).open("rb")  # noqa: SIM115 (the source closes it)
    except OSError as error:
        raise UsageProblem(f"{place}: {error.strerror}") from error
    sources: dict[str, Callable[[FileColumns, str, BinaryIO], Source]] = {
        "csv": CsvSource,
        "json": JsonSource,
        "arrow": ArrowSource,
        "parquet": ParquetSource,
    }
    return sources[kind](columns, place, stream)
