"""Arrow files to import, and the base shared with Parquet files: typed columns, cast if no value changes."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from io import IOBase
from typing import Any, BinaryIO, NoReturn, cast

import pyarrow as pa

from structable.spi import FEED_COLUMNS
from structable.spi.arrow import CastError, cast_column

from .source import FileSource

_FILE_MAGIC = b"ARROW1"

IN_FOOTER, IN_MESSAGE = 1, 2
"""The position of the schema in the footer of an IPC file, and in the first message of a stream."""

_WIDEST = 64
"""The width of the widest integers that pyarrow reads, in bits; Polars writes 128."""

# Positions of fields in their tables, and the number of a type in its union.
_FIELDS, _NAME, _TYPE_NUMBER, _TYPE, _CHILDREN, _BITS = 1, 0, 2, 3, 5, 0
_INTEGER = 2


class TypedSource(FileSource):
    """A file whose columns have Arrow types."""

    _fields: list[str | None]
    _of: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """Return the types of the columns that are fields, under the fields' names; no rows are read."""
        schema = self._schema()
        fields = zip(self._matched(self._names_of(schema)), schema.types, strict=True)
        return pa.schema([(name, kind) for name, kind in fields if name is not None])

    @abstractmethod
    def _schema(self) -> pa.Schema:
        """Return the types of the file's columns."""

    def _mapped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that are fields, under the fields' names."""
        if self._of is None or not batch.schema.equals(self._of):
            self._fields = self._matched(self._names_of(batch.schema))
            self._of = batch.schema
        kept = {place: name for place, name in enumerate(self._fields) if name is not None}
        return pa.RecordBatch.from_arrays([batch.column(place) for place in kept], list(kept.values()))

    def _names_of(self, schema: pa.Schema) -> list[str]:
        try:
            return schema.names
        except UnicodeDecodeError as error:
            self._malformed(f"the name of a column is not UTF-8: {error.object!r}")

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: list[pa.Array[Any]] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                # A feed's own columns are checked by the store.
                columns.append(column if name in FEED_COLUMNS else cast_column(self._columns.field(name), column))
            except CastError as error:
                self._misfit(name, error)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _unread(self, error: pa.ArrowNotImplementedError, columns: list[str]) -> NoReturn:
        """Reject a file that may be whole, but that pyarrow cannot read; `columns` are the cause, if known."""
        named = f" the column {columns[0]!r}" if columns else ""
        self._malformed(f"pyarrow cannot read{named or ' it'}: {error}; write another type, or leave the column out")


class _Unended(io.RawIOBase):
    """A stream that remembers reads past its end: Arrow accepts a truncated stream as complete."""

    def __init__(self, stream: BinaryIO, begin: bytes) -> None:
        self._stream = stream
        self._begin = begin
        self.exhausted = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        read, self._begin = self._begin[:size], self._begin[size:]
        while len(read) < size:
            more = self._stream.read(size - len(read))
            if not more:
                self.exhausted = True
                break
            read += more
        return read


class ArrowSource(TypedSource):
    """Arrow's IPC format, as a file or as a stream, detected from its content."""

    def _schema(self) -> pa.Schema:
        begin = self._stream.read(len(_FILE_MAGIC))
        try:
            if begin != _FILE_MAGIC:
                return pa.ipc.open_stream(_Unended(self._stream, begin)).schema
            return next(self._readers()).schema
        except (pa.ArrowException, OSError) as error:
            self._refuse(error, begin)

    def _read(self) -> Iterator[pa.RecordBatch]:
        begin = self._stream.read(len(_FILE_MAGIC))
        try:
            for batch in self._file() if begin == _FILE_MAGIC else self._streamed(begin):
                # Before the cast: reading damaged data may end the process. Any date64 can be read.
                kinds = batch.schema.types
                batch.select([place for place, kind in enumerate(kinds) if kind != pa.date64()]).validate(full=True)
                yield self._mapped(batch)
        except (pa.ArrowException, OSError) as error:
            self._refuse(error, begin)

    def _refuse(self, error: Exception, begin: bytes) -> NoReturn:
        if isinstance(error, pa.ArrowNotImplementedError):
            self._unread(error, self._unread_columns(begin))
        self._malformed(f"is not Arrow's IPC format, or is cut or damaged: {error}")

    def _file(self) -> Iterator[pa.RecordBatch]:
        for reader in self._readers():
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def _readers(self) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """Yield the one reader of the file."""
        # The file's directory is at its end, so a pipe must be read to the end first.
        with tempfile.TemporaryFile() as spooled:
            source: BinaryIO = self._stream
            if source.seekable():
                source.seek(0)
            else:
                source = cast(BinaryIO, spooled)
                source.write(_FILE_MAGIC)
                shutil.copyfileobj(self._stream, source)
                source.seek(0)
            yield pa.ipc.open_file(cast(IOBase, source))

    def _streamed(self, begin: bytes) -> Iterator[pa.RecordBatch]:
        stream = _Unended(self._stream, begin)
        yield from pa.ipc.open_stream(stream)
        if stream.exhausted:
            self._malformed("the Arrow stream is cut: its end marker is missing; what wrote it has not finished")
        if stream.read(1):
            self._malformed("more follows the end of the Arrow stream; import one stream at a time")

    def _unread_columns(self, begin: bytes) -> list[str]:
        if not self._stream.seekable():
            return []
        if begin == _FILE_MAGIC:
            self._stream.seek(-10, os.SEEK_END)
            size = int.from_bytes(self._stream.read(4), "little")
            self._stream.seek(-10 - size, os.SEEK_END)
            return unread_columns(self._stream.read(size), IN_FOOTER)
        self._stream.seek(4)  # behind the marker of a message
        size = int.from_bytes(self._stream.read(4), "little")
        return unread_columns(self._stream.read(size), IN_MESSAGE)


def unread_columns(content: bytes, place: int) -> list[str]:
    """Return the names of columns with too wide integers in a flatbuffer with a schema; empty if it is damaged.

    pyarrow's own error names no column. Arrow's Schema.fbs, Message.fbs and File.fbs define the form of a schema.
    """
    try:
        schema = _referred(content, _field(content, _referred(content, 0), place))
        return [_text(content, one) for one in _tables(content, schema, _FIELDS) if _is_wide(content, one)]
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError):
        return []


def _is_wide(content: bytes, column: int) -> bool:
    if any(_is_wide(content, child) for child in _tables(content, column, _CHILDREN)):
        return True
    number, kind = (_field(content, column, place) for place in (_TYPE_NUMBER, _TYPE))
    if not number or not kind or content[number] != _INTEGER:
        return False
    bits = _field(content, _referred(content, kind), _BITS)
    return bits > 0 and _number(content, "<i", bits) > _WIDEST


def _number(content: bytes, form: str, place: int) -> int:
    return int(struct.unpack_from(form, content, place)[0])


def _referred(content: bytes, place: int) -> int:
    return place + _number(content, "<I", place)


def _field(content: bytes, table: int, position: int) -> int:
    """Return the offset of a table's field, 0 if it is left out."""
    layout = table - _number(content, "<i", table)
    entry = 4 + 2 * position
    offset = _number(content, "<H", layout + entry) if entry < _number(content, "<H", layout) else 0
    return table + offset if offset else 0


def _tables(content: bytes, table: int, position: int) -> Iterator[int]:
    place = _field(content, table, position)
    if place:
        vector = _referred(content, place)
        for entry in range(vector + 4, vector + 4 + 4 * _number(content, "<I", vector), 4):
            yield _referred(content, entry)


def _text(content: bytes, column: int) -> str:
    text = _referred(content, _field(content, column, _NAME))
    return content[text + 4 : text + 4 + _number(content, "<I", text)].decode()
