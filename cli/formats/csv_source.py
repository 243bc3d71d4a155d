"""CSV files to import: cells as `literals` reads them; errors name the line.

This module cuts the file into chunks of whole rows, which Arrow parses. Its form is RFC 4180's, apart from the options
of the file. Arrow alone does not enforce it: it accepts a file that was truncated inside a quoted cell as complete.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow import csv as arrow_csv

from structable.spi.arrow import CastError

from .csv_dialect import CsvDialect, occurrences
from .file_columns import Columns, there_are
from .source import TextSource
from .text_columns import column_from_text
from .text_form import PLAIN, TextForm

_CHUNK = 2 * 1024 * 1024
_LARGEST_ROW = 64 * 1024 * 1024  # fits the largest row of a table, written as hexadecimal digits or doubled quotes


class CsvSource(TextSource):
    """A file with a header; an empty cell is null, an empty quoted one an empty string."""

    _fields: list[str | None]
    _line = 1
    _chunk = b""
    _chunk_rows = 0
    _skips_blank = True
    """Whether blank lines are skipped: false if the only column may be null, since a blank line is then a row."""

    def __init__(
        self,
        columns: Columns,
        location: str,
        stream: BinaryIO,
        form: TextForm = PLAIN,
        dialect: CsvDialect | None = None,
    ) -> None:
        super().__init__(columns, location, stream, form)
        self._dialect = dialect or CsvDialect()
        self.settled = set[str]()
        """Fields whose further texts are not needed: batches may leave them out, but not every field."""

    @property
    def fields(self) -> list[str]:
        """The fields of the columns, once the file is read."""
        return [name for name in self._fields if name is not None]

    def _read(self) -> Iterator[pa.RecordBatch]:
        self._fields = []
        self._skip_mark()
        chunks = self._chunks()
        for first in chunks:
            self._take(first)
            self._check_form(first)
            if self._begin(first):
                yield from self._rows_of(first)
            self._line += first.count(b"\n")
            break
        else:
            if self._named(0) is None:
                self._malformed("it is empty; a first line with the names of the columns is needed, or --no-header")
            return
        for chunk, parsed in self._ahead(chunks):
            self._take(chunk)
            yield from parsed() or self._rows_of(chunk)
            self._line += occurrences(b"\n", chunk)

    def _take(self, chunk: bytes) -> None:
        """Make a chunk the current one; errors are located in its lines."""
        self._chunk, self._chunk_rows = chunk, self._rows

    def _chunks(self) -> Iterator[bytes]:
        """Yield the first row, then all others in chunks of whole rows, some megabytes each."""
        pending, ended = b"", False
        find_end = self._dialect.end_of_first_row
        while pending or not ended:
            end = find_end(pending) or (len(pending) if ended else 0)
            if end:
                yield pending[:end]
                pending = pending[end:]
                find_end = self._dialect.end_of_last_row
                continue
            if len(pending) > _LARGEST_ROW:
                self._wrong(self._line, f"a quote is not closed, or the row is over {_LARGEST_ROW:,} bytes")
            read = self._stream.read(_CHUNK)
            pending, ended = pending + read, not read

    def _begin(self, row: bytes) -> bool:
        """Find the fields by the first row, and return whether it is a row of the table."""
        given = self._named(self._dialect.cells(row))
        names = self._header(row) if given is None else given
        self._fields = self._matched(names)
        if missing := self._columns.missing([name for name in self._fields if name is not None]):
            self._malformed(missing)
        self._skips_blank = len(names) > 1 or not self._columns.may_be_null(self._fields[0] or "")
        return given is not None

    def _named(self, cells: int) -> Sequence[str] | None:
        try:
            return self._columns.named(cells)
        except ValueError as error:
            self._wrong(self._line, str(error))

    def _header(self, row: bytes) -> list[str]:
        if not row.strip(b"\r\n"):
            self._malformed("its first line is blank; it must name the columns")
        ended = self._dialect.prepared(row, ()) + b"\n"  # Arrow takes one row without an end for an empty file
        table = arrow_csv.read_csv(
            cast(BinaryIO, pa.BufferReader(ended)),
            arrow_csv.ReadOptions(autogenerate_column_names=True, block_size=len(row) + 64),
            self._dialect.parse_options(skips_blank=True),
            arrow_csv.ConvertOptions(column_types={f"f{n}": pa.string() for n in range(self._dialect.cells(row))}),
        )
        return [str(column[0]) for column in table.columns]

    def _check_form(self, chunk: bytes) -> None:
        if self._is_faulty(chunk):
            for line, row in self._lines():
                if fault := self._dialect.fault(row):
                    self._wrong(line, fault)
        try:
            chunk.decode()
        except UnicodeDecodeError as error:
            self._wrong(self._line + chunk.count(b"\n", 0, error.start), "the text is not UTF-8")

    def _is_faulty(self, chunk: bytes) -> bool:
        return self._dialect.may_be_faulty(chunk) and bool(self._dialect.fault(chunk))

    def _rows_of(self, chunk: bytes) -> list[pa.RecordBatch]:
        """Return the rows of the current chunk, or raise the error of the first wrong row."""
        self._check_form(chunk)
        try:
            return self._arrow_rows(chunk)
        except pa.ArrowException as error:
            for line, row in self._lines():
                cells = self._dialect.cells(row)
                if cells != len(self._fields):
                    self._wrong(line, f"{there_are(cells)}; the first line has {len(self._fields)}")
            self._malformed(error)

    def _parsed(self, chunk: bytes) -> list[pa.RecordBatch]:
        """Return the rows of a later chunk; none of them if `_rows_of` must find the error."""
        try:
            return [] if self._is_faulty(chunk) else self._arrow_rows(chunk)
        except pa.ArrowException:
            return []

    def _ahead(self, chunks: Iterator[bytes]) -> Iterator[tuple[bytes, Callable[[], list[pa.RecordBatch]]]]:
        """Yield each chunk with a function that waits for its rows; a thread parses the next chunk in the meantime."""
        with ThreadPoolExecutor(1, thread_name_prefix="structable-parser") as thread:
            before = None
            for chunk in chunks:
                after = chunk, thread.submit(self._parsed, chunk).result
                if before is not None:
                    yield before
                before = after
            if before is not None:
                yield before

    def _arrow_rows(self, chunk: bytes) -> list[pa.RecordBatch]:
        if self._skips_blank and not chunk.strip(b"\r\n"):
            return []
        # Arrow would take a byte-order mark at the beginning for the file's; here it belongs to the first cell.
        content = BOM_UTF8 + chunk if chunk.startswith(BOM_UTF8) else chunk
        content = self._dialect.prepared(content, self._form.nulls)
        # By their places, because names in the file may be repeated.
        kept = {str(place): name for place, name in enumerate(self._fields) if name is not None}
        if content.isascii():  # Arrow checks that other texts are UTF-8
            needed = {place: name for place, name in kept.items() if name not in self.settled}
            kept = needed or dict([*kept.items()][:1])
        found = arrow_csv.read_csv(
            cast(BinaryIO, pa.BufferReader(content)),
            arrow_csv.ReadOptions(column_names=[str(n) for n in range(len(self._fields))], block_size=len(content) + 1),
            self._dialect.parse_options(skips_blank=self._skips_blank),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(kept, pa.string()),
                include_columns=list(kept),
                null_values=self._dialect.null_values(self._form.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return found.rename_columns(list(kept.values())).to_batches()

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for name, texts in zip(batch.schema.names, batch.columns, strict=True):
            try:
                columns.append(column_from_text(self._columns.field(name), texts, self._form))
            except CastError as error:
                self._misfit(name, error)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _row(self, number: int) -> str:
        for position, (line, _) in enumerate(self._lines(), self._chunk_rows):
            if position == number:
                return f"{self.name}, line {line}"
        return super()._row(number)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of the chunk, each with the number of its first line."""
        for line, row in self._dialect.rows(self._chunk, self._line):
            if not self._skips_blank or row.strip(b"\r\n"):
                yield line, row
