"""Files to import, read as record batches of the table's types, with the place of whatever is wrong."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn, Self, cast

import pyarrow as pa

from structable.spi import InvalidFieldError, TableSpecification, Value
from structable.spi.arrow import rows_to_batches
from structable.spi.rules.values import check_row

from .errors import UsageProblem
from .json_rows import row_from_json
from .output import format_of

__all__ = ["Source", "TextSource", "open_source"]

_BATCH_ROWS = 4096
_BATCH_BYTES = 16 * 1024 * 1024


class Source(ABC):
    """Rows of one file; a context manager that closes it.

    Parameters
    ----------
    spec : TableSpecification
        The table that the rows are for.
    place : str
        The path, or `-` for standard input.
    stream : file
        Its content.
    """

    def __init__(self, spec: TableSpecification, place: str, stream: BinaryIO) -> None:
        self._spec = spec
        self._place = place
        self._stored = self._stream = stream
        self._rows = 0
        self._last: tuple[int, pa.RecordBatch] | None = None
        self.name = "standard input" if place == "-" else place

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._place != "-":
            self._stored.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of a bounded size.

        Raises
        ------
        UsageProblem
            If the file is not what its format says, or a value does not fit its field; with the line or the row.
        """
        for batch in self._whole():
            rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, rows):
                converted = self._converted(batch.slice(start, rows))
                self._last = self._rows, converted
                yield converted
                self._rows += converted.num_rows

    def _whole(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._malformed(f"its gzip compression is cut or damaged: {error}")

    @abstractmethod
    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yield what the file holds."""

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    @property
    def fraction(self) -> float | None:
        """The part of the file that has been read, 0 to 1; None where its size is not known."""
        try:
            size = os.fstat(self._stored.fileno()).st_size
            return self._stored.tell() / size if size else None
        except (OSError, ValueError):
            return None

    def locate(self, error: InvalidFieldError) -> UsageProblem:
        """Return a row's error with its place, looked for among the rows that were handed out last.

        Parameters
        ----------
        error : InvalidFieldError
            As the store raised it.
        """
        first, batch = self._last or (0, None)
        try:
            rows = [] if batch is None else batch.to_pylist()
        except (ValueError, OverflowError):  # of a time that Python has no value for; the store's error names it
            rows = []
        for number, row in enumerate(rows, first):
            try:
                check_row(self._spec, row)
            except InvalidFieldError as found:
                return UsageProblem(f"{self._row(number)}: {found}")
        return UsageProblem(f"{self.name}: {error}")

    def _row(self, number: int) -> str:
        return f"{self.name}, row {number + 1}"

    def _malformed(self, error: object) -> NoReturn:
        raise UsageProblem(f"{self.name}: {error}")


def open_source(spec: TableSpecification, place: str, format_: str | None) -> Source:
    """Open a file to import.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    place : str
        A path, or `-` for standard input.
    format_ : str or None
        "csv", "json", "arrow" or "parquet"; by the extension, if it is not given.

    Raises
    ------
    UsageProblem
        If it cannot be read, or its format is not known.
    """
    from .arrow_sources import ArrowSource, ParquetSource
    from .csv_source import CsvSource

    kind = format_of(place, format_)
    if place == "-" and kind == "parquet":
        raise UsageProblem("parquet is read from a file, not from standard input")
    try:
        stream = sys.stdin.buffer if place == "-" else Path(place).open("rb")  # noqa: SIM115 (the source closes it)
    except OSError as error:
        raise UsageProblem(f"{place}: {error.strerror}") from error
    sources: dict[str, Callable[[TableSpecification, str, BinaryIO], Source]] = {
        "csv": CsvSource,
        "json": _JsonSource,
        "arrow": ArrowSource,
        "parquet": ParquetSource,
    }
    return sources[kind](spec, place, stream)


class TextSource(Source):
    """A file of text, which may be compressed by gzip: neither CSV nor JSON begins as gzip does."""

    def __init__(self, spec: TableSpecification, place: str, stream: BinaryIO) -> None:
        super().__init__(spec, place, stream)
        ahead = stream if isinstance(stream, BufferedReader) else BufferedReader(cast(RawIOBase, stream))
        self._stream = cast(BinaryIO, ahead)
        if ahead.peek(2)[:2] == b"\x1f\x8b":
            self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=ahead))


class _JsonSource(TextSource):
    _lines: list[int]
    _first = 0

    def _read(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Value]] = []
        self._lines, size = [], 0
        columns: list[str] = []
        for number, line in enumerate(self._stream, 1):
            if not line.strip():
                continue
            row = self._parsed(number, line)
            if not columns:
                columns = list(row)
            elif row.keys() != set(columns):
                # A batch has the same columns in all rows, and a null written where nothing was said is a lost value.
                wanted = ", ".join(columns)
                self._wrong(number, f"every line must name the fields of the first, {wanted} (null writes a null)")
            rows.append(row)
            self._lines.append(number)
            size += len(line)
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield from self._batched(rows, columns)
                rows, size = [], 0
        yield from self._batched(rows, columns)

    def _batched(self, rows: list[dict[str, Value]], columns: list[str]) -> Iterator[pa.RecordBatch]:
        self._first = self._rows
        yield from rows_to_batches(self._spec, rows, columns, batch_size=_BATCH_ROWS)
        self._lines = []

    def _parsed(self, number: int, line: bytes) -> dict[str, Value]:
        try:
            return row_from_json(self._spec, line.strip().decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError:
            self._wrong(number, "the text is not UTF-8")
        except json.JSONDecodeError as error:
            self._wrong(number, f"{error.msg} at column {error.colno}")
        except ValueError as error:
            self._wrong(number, str(error))

    def _row(self, number: int) -> str:
        position = number - self._first
        return f"{self.name}, line {self._lines[position]}" if position < len(self._lines) else super()._row(number)

    def _wrong(self, number: int, reason: str) -> NoReturn:
        raise UsageProblem(f"{self.name}, line {number}: {reason}")
