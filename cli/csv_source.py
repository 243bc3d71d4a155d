"""CSV files to import: cells as `literals` reads them; errors name the line.

This module cuts the file into chunks of whole rows, which Arrow parses. Its form is RFC 4180's, which Arrow alone does
not enforce: it accepts a file that was truncated inside a quoted cell as complete.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow import csv as arrow_csv

from structable.spi.arrow_columns import CastError
from structable.spi.showing import not_a_field

from .source import TextSource
from .text_columns import column_from_text

__all__ = ["CsvSource"]

_CHUNK = 4 * 1024 * 1024
_LARGEST_ROW = 64 * 1024 * 1024  # the largest row of a table, written as hexadecimal digits or doubled quotes, fits
_CELL = re.compile(r'(?:^|,)("(?:[^"]|"")*"|[^,]*)')
_QUOTED = re.compile(rb'"(?:[^"]|"")*"')
_STRAY_RETURN = re.compile(rb"\r(?!\n)")
_STRAY_QUOTE = re.compile(rb'(?<=[^,\r\n])""|""(?=[^,\r\n])')


class CsvSource(TextSource):
    """A file with a header; an empty cell is null, an empty quoted one an empty string."""

    _names: list[str]
    _line = 1
    _chunk = b""
    _chunk_rows = 0
    _skips_blank = True
    """Whether a blank line is no row, as it is where the only column may be null."""

    def _read(self) -> Iterator[pa.RecordBatch]:
        self._names = []
        self._skip_mark()
        for chunk in self._chunks():
            self._chunk, self._chunk_rows = chunk, self._rows
            if b'"' in chunk or b"\r" in chunk:
                self._check_form(chunk)
            try:
                chunk.decode()
            except UnicodeDecodeError as error:
                self._wrong(self._line + chunk.count(b"\n", 0, error.start), "the text is not UTF-8")
            if self._names:
                yield from self._parsed(chunk)
            else:
                self._names = self._header(chunk)
                self._skips_blank = len(self._names) > 1 or not self._may_be_null(self._names[0])
            self._line += chunk.count(b"\n")
        if not self._names:
            self._malformed("it is empty; a first line with the names of the columns is needed")

    def _chunks(self) -> Iterator[bytes]:
        """Yield the first row, then all others in chunks of whole rows, some megabytes each."""
        pending, ended = b"", False
        find_end = _end_of_first_row
        while pending or not ended:
            end = find_end(pending) or (len(pending) if ended else 0)
            if end:
                yield pending[:end]
                pending = pending[end:]
                find_end = _end_of_last_row
                continue
            if len(pending) > _LARGEST_ROW:
                self._wrong(self._line, f"a quote is not closed, or the row is over {_LARGEST_ROW:,} bytes")
            read = self._stream.read(_CHUNK)
            pending, ended = pending + read, not read

    def _header(self, row: bytes) -> list[str]:
        line = row.decode().strip("\r\n")
        if not line:
            self._malformed("its first line is blank; it must name the columns")
        # Not the module csv: programs change the limit of its cells. The form of the line was checked.
        names = [cell[1:-1].replace('""', '"') if cell.startswith('"') else cell for cell in _CELL.findall(line)]
        for position, name in enumerate(names):
            if name not in self._columns:
                self._malformed(f"the column {name[:50]!r} of its first line {not_a_field(self._columns.field_names)}")
            if name in names[:position]:
                self._malformed(f"the column {name!r} appears twice")
        if missing := self._columns.missing(names):
            self._malformed(missing)
        return names

    def _may_be_null(self, name: str) -> bool:
        spec = self._columns.spec
        return name in spec and name not in spec.primary_key

    def _check_form(self, chunk: bytes) -> None:
        if not _fault(chunk):
            return
        for line, row in self._lines():
            if fault := _fault(row):
                self._wrong(line, fault)

    def _parsed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        if self._skips_blank and not chunk.strip(b"\r\n"):
            return
        # Arrow takes a byte-order mark at the beginning for that of a file; here it belongs to the first cell.
        content = BOM_UTF8 + chunk if chunk.startswith(BOM_UTF8) else chunk
        try:
            yield from arrow_csv.read_csv(
                cast(BinaryIO, pa.BufferReader(content)),
                arrow_csv.ReadOptions(column_names=self._names, block_size=len(content) + 1),
                arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=self._skips_blank),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            ).to_batches()
        except pa.ArrowException as error:
            for line, row in self._lines():
                cells = _QUOTED.sub(b"", row).count(b",") + 1
                if cells != len(self._names):
                    self._wrong(line, f"there are {cells} cells; the first line has {len(self._names)}")
            self._malformed(error)

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for name, texts in zip(self._names, batch.columns, strict=True):
            try:
                columns.append(column_from_text(self._columns.field(name), texts))
            except CastError as error:
                self._misfit(name, error)
        return pa.RecordBatch.from_arrays(columns, self._names)

    def _row(self, number: int) -> str:
        for position, (line, _) in enumerate(self._lines(), self._chunk_rows):
            if position == number:
                return f"{self.name}, line {line}"
        return super()._row(number)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of the chunk, each with the number of its first line."""
        start, lines, quotes = self._line, list[bytes](), 0
        for number, line in enumerate(BytesIO(self._chunk), self._line):
            lines.append(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                row = b"".join(lines)
                if not self._skips_blank or row.strip(b"\r\n"):
                    yield start, row
                start, lines = number + 1, []
        if lines:
            yield start, b"".join(lines)


def _fault(rows: bytes) -> str:
    skeleton = _QUOTED.sub(b'""', rows)
    if skeleton.count(b'"') % 2:
        return "a quote is not closed"
    if _STRAY_QUOTE.search(skeleton):
        return "a quote stands inside a cell; such a cell is quoted, and the quote doubled"
    if _STRAY_RETURN.search(skeleton):
        return "a carriage return stands alone; such a cell is quoted, and lines end in a line feed"
    return ""


def _end_of_first_row(content: bytes) -> int:
    """Return the end of the first row, a line feed outside quotes; 0 if it has none."""
    quotes = start = 0
    while end := content.find(b"\n", start) + 1:
        quotes += content.count(b'"', start, end)
        if quotes % 2 == 0:
            return end
        start = end
    return 0


def _end_of_last_row(content: bytes) -> int:
    """Return the end of the last whole row, 0 if there is none."""
    quotes = content.count(b'"')
    end = len(content)
    while (start := content.rfind(b"\n", 0, end)) >= 0:
        quotes -= content.count(b'"', start, end)
        if quotes % 2 == 0:
            return start + 1
        end = start
    return 0
