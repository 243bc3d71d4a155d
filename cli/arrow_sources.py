"""Arrow and Parquet files to import: typed columns, cast if no value changes."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from io import IOBase
from typing import BinaryIO, cast

import pyarrow as pa

from structable.spi import InvalidFieldError

from .source import BATCH_ROWS, Source
from .type_casts import cast_batch

__all__ = ["ArrowSource", "ParquetSource"]

_FILE_MAGIC = b"ARROW1"


class _TypedSource(Source):
    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return self._cast(batch)
        except InvalidFieldError as error:
            self._malformed(error)
        except pa.ArrowInvalid as error:
            self._malformed(f"rows {self._rows + 1:,} to {self._rows + batch.num_rows:,}: {error}")

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        if len(set(names)) < len(names):
            self._malformed(f"the column {next(name for name in names if names.count(name) > 1)!r} appears twice")
        feed = [name for name in names if self._columns.of_feed(name)]
        if not feed:
            return cast_batch(self._columns.spec, batch)
        plain = batch.select([name for name in names if name not in feed])
        cast = cast_batch(self._columns.spec, plain)
        for name in feed:
            cast = cast.append_column(name, batch.column(name))
        return cast


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


class ArrowSource(_TypedSource):
    """Arrow's IPC format, as a file or as a stream, detected from its content."""

    def _read(self) -> Iterator[pa.RecordBatch]:
        begin = self._stream.read(len(_FILE_MAGIC))
        try:
            for batch in self._file() if begin == _FILE_MAGIC else self._streamed(begin):
                batch.validate(full=True)  # before it is cast: reading damaged data may end the process
                yield batch
        except (pa.ArrowException, OSError) as error:
            self._malformed(f"is not Arrow's IPC format, or is cut or damaged: {error}")

    def _file(self) -> Iterator[pa.RecordBatch]:
        # Its directory is at its end, so a pipe must be read to the end first.
        with tempfile.TemporaryFile() as spooled:
            source: BinaryIO = self._stream
            if source.seekable():
                source.seek(0)
            else:
                source = cast(BinaryIO, spooled)
                source.write(_FILE_MAGIC)
                shutil.copyfileobj(self._stream, source)
                source.seek(0)
            reader = pa.ipc.open_file(cast(IOBase, source))
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def _streamed(self, begin: bytes) -> Iterator[pa.RecordBatch]:
        stream = _Unended(self._stream, begin)
        yield from pa.ipc.open_stream(stream)
        if stream.exhausted:
            self._malformed("the Arrow stream is cut: its end marker is missing; what wrote it has not finished")
        if stream.read(1):
            self._malformed("more follows the end of the Arrow stream; import one stream at a time")


class ParquetSource(_TypedSource):
    """A Parquet file."""

    _fraction = 0.0

    def _read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self._stream)
            done = 0
            for batch in file.iter_batches(BATCH_ROWS):
                done += batch.num_rows
                self._fraction = done / file.metadata.num_rows
                yield batch
        except (pa.ArrowException, OSError) as error:
            self._malformed(f"is not a Parquet file, or is cut or damaged: {error}")

    @property
    def fraction(self) -> float | None:
        return self._fraction
