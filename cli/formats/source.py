"""The interface of every input format: a file to import, read as record batches of the table's types."""

from __future__ import annotations

import gzip
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO, NoReturn, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from structable.cli.language.errors import UsageProblem
from structable.spi import InvalidFieldError, StructableError, UnsupportedOperationError
from structable.spi.arrow import CastError

from .file_columns import Columns
from .json_rows import without_mark
from .text_form import PLAIN, TextForm

BATCH_ROWS = 16_384
BATCH_BYTES = 16 * 1024 * 1024


class FileSource(ABC):
    """The rows of one file; a context manager that closes it."""

    def __init__(self, columns: Columns, location: str, stream: BinaryIO) -> None:
        self._columns = columns
        self._location = location
        self._stored = self._stream = stream
        self._rows = 0
        self._last: tuple[int, pa.RecordBatch] | None = None
        self.name = "standard input" if location == "-" else location

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._location != "-":
            self._stored.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of a bounded size; errors name the line or the row."""
        for batch in self.unconverted():
            if missing := self._columns.missing(batch.schema.names):
                self._malformed(missing)
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, rows):
                converted = self._converted(batch.slice(start, rows))
                self._last = self._rows, converted
                yield converted
                self._rows += converted.num_rows

    def unconverted(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns of fields in the file's own types."""
        try:
            yield from self._read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._malformed(f"its gzip compression is truncated or damaged: {error}")

    def _matched(self, columns: Sequence[str], *, growing: bool = False) -> list[str | None]:
        try:
            return self._columns.matched(columns, growing=growing)
        except ValueError as error:
            self._malformed(error)

    @abstractmethod
    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns that are fields, under the fields' names."""

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    @property
    def fraction(self) -> float | None:
        """The fraction of the file that has been read, 0 to 1; None if its size is unknown."""
        try:
            size = os.fstat(self._stored.fileno()).st_size
            return self._stored.tell() / size if size else None
        except (OSError, ValueError):
            return None

    def locate(self, error: InvalidFieldError | UnsupportedOperationError) -> StructableError | UsageProblem:
        """Return the store's error with the line of its row, searched in the last batch.

        An error that no row of the batch explains is returned unchanged; an error about a field names the file.
        """
        first, batch = self._last or (0, None)
        for position in range(0 if batch is None else batch.num_rows):
            where = self._row(first + position)
            try:
                [row] = cast(pa.RecordBatch, batch).slice(position, 1).to_pylist()
                self._columns.check(row)
            except (InvalidFieldError, UnsupportedOperationError) as found:
                return UsageProblem(f"{where}: {found}")
            except (ValueError, OverflowError):  # a time beyond Python's range; the store's error names it
                return UsageProblem(f"{where}: {error}")
        return UsageProblem(f"{self.name}: {error}") if isinstance(error, InvalidFieldError) else error

    def rows_of_key(self, names: Sequence[str], key: Sequence[object]) -> list[str]:
        """Return the lines or numbers of the rows of a key; the file must have been opened again."""
        found: list[str] = []
        for batch in self.batches():
            same: Any = pa.array([True] * batch.num_rows)
            for name, value in zip(names, key, strict=True):
                column: Any = batch.column(name)
                same = pc.and_(same, pc.equal(column, pa.scalar(value, column.type)))
            positions = pc.indices_nonzero(same).to_pylist()
            found += [self._row(self._rows + position).removeprefix(f"{self.name}, ") for position in positions]
        return found

    def _row(self, number: int) -> str:
        return f"{self.name}, row {number + 1}"

    def _misfit(self, name: str, error: CastError) -> NoReturn:
        where = self.name if error.position is None else self._row(self._rows + error.position)
        raise UsageProblem(f"{where}, field '{name}': {error}")

    def _malformed(self, error: object) -> NoReturn:
        raise UsageProblem(f"{self.name}: {error}")


class TextSource(FileSource):
    """A file of text, which gzip may have compressed: neither CSV nor JSON begins with gzip's magic number."""

    def __init__(self, columns: Columns, location: str, stream: BinaryIO, form: TextForm = PLAIN) -> None:
        super().__init__(columns, location, stream)
        self._form = form
        ahead = stream if isinstance(stream, BufferedReader) else BufferedReader(cast(RawIOBase, stream))
        self._stream = cast(BinaryIO, ahead)
        if ahead.peek(2)[:2] == b"\x1f\x8b":
            self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=ahead))

    def _skip_mark(self) -> None:
        begin = cast(BufferedReader, self._stream).peek(4)[:4]
        self._stream.read(len(begin) - len(without_mark(self.name, begin)))

    def _wrong(self, line: int, reason: str) -> NoReturn:
        raise UsageProblem(f"{self.name}, line {line}: {reason}")
