"""Rows written as JSON lines, CSV, Arrow or Parquet, batch by batch, to standard output or to a file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from io import IOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from structable.cli.language.display import BatchWriter, TableWriter, progress
from structable.cli.language.errors import UsageProblem
from structable.spi import Field, TableSpecification
from structable.spi.text import value_to_json

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
}
TAB_SUFFIXES = (".tsv", ".tsv.gz")
"""Extensions of CSV files whose cells are separated by tabs."""
TABLE_LIMIT = 100
"""The rows that are shown as a table unless a limit is given."""
_ROW_GROUP_ROWS = 256 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024


def format_of(location: str, given: str | None) -> str:
    """Return the file format: from the option, or else from the path's extension."""
    path = Path(location)
    compressed = path.suffix.lower() == ".gz"
    found = given or _SUFFIXES.get((path.with_suffix("") if compressed else path).suffix.lower())
    if compressed and found in ("arrow", "parquet"):
        raise UsageProblem(f"'{location}': gzip compresses csv and json only, not {found}")
    if found is None:
        name = "standard input or output" if location == "-" else f"'{location}'"
        raise UsageProblem(
            f"{name} names no format; give --format, or a path that ends in {', '.join(_SUFFIXES)}; "
            "csv and json also with .gz"
        )
    return found


@contextlib.contextmanager
def open_output(location: str | None) -> Iterator[BinaryIO]:
    """Open a path to write, or standard output for None and `-`.

    A file appears under its name when it is complete, so a failure leaves the previous one.
    """
    if location is None or location == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(location))
    if path.exists() and not path.is_file():  # a device or a pipe is written directly
        with _named(location), path.open("wb") as stream:
            yield stream
        return
    with _named(location):
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with _named(location):
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(draft, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
            with os.fdopen(descriptor, "wb") as stream, _compressed(stream, Path(location)) as written:
                yield written
            os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise


@contextlib.contextmanager
def _compressed(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    if path.suffix.lower() != ".gz":
        yield stream
        return
    # Without a name and a time, the same rows give the same file.
    with gzip.GzipFile("", "wb", 6, stream, mtime=0) as written:
        yield cast(BinaryIO, written)


@contextlib.contextmanager
def _named(location: str) -> Iterator[None]:
    # An error in the draft is shown with the name of the user's file.
    try:
        yield
    except OSError as error:
        if error.strerror and type(error).__module__ == "builtins":
            raise OSError(error.errno, error.strerror, location) from error
        raise


def open_writer(
    format_: str, stream: BinaryIO, location: str | None, fields: Sequence[Field], key: Sequence[str]
) -> BatchWriter:
    """Return the writer of a format for columns of these fields, with its header written.

    The stream is the result of `open_output(location)`; key fields are never null.
    """
    import pyarrow as pa

    from structable.spi.arrow import arrow_type

    if format_ == "json":
        return _JsonWriter(stream, fields)
    if format_ == "csv":
        return _CsvWriter(
            stream, fields, "\t" if location is not None and location.lower().endswith(TAB_SUFFIXES) else ","
        )
    if format_ == "table":
        return TableWriter(stream, fields)
    if stream.isatty():
        raise UsageProblem(
            f"{format_} is binary and cannot be shown on a terminal; give --output, or redirect the output"
        )
    schema = pa.schema([pa.field(field.name, arrow_type(field), nullable=field.name not in key) for field in fields])
    if format_ == "parquet":
        return _ParquetWriter(stream, schema)
    streamed = location is None or Path(location).suffix.lower() == ".arrows" or not Path(location).suffix
    return _ArrowWriter(stream, schema, streamed=streamed)


def export_batches(
    batches: Generator[tuple[float | None, pa.RecordBatch], None, None],
    location: str,
    form: str,
    spec: TableSpecification,
    columns: Sequence[str],
) -> int:
    """Write batches of a table, each after the fraction read before it, to a file; return the number of rows."""
    rows, fields = 0, [spec.field(name) for name in columns]
    with (
        open_output(location) as stream,
        open_writer(form, stream, location, fields, spec.primary_key) as writer,
        progress(f"export {spec.name}") as advance,
        contextlib.closing(batches),
    ):
        for fraction, batch in batches:
            writer.write(batch)
            rows += batch.num_rows
            advance(fraction, rows)
        advance(1.0, rows)
    return rows


class _JsonWriter(BatchWriter):
    def __init__(self, stream: BinaryIO, fields: Sequence[Field]) -> None:
        self._stream = stream
        self._fields = fields
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

    def write(self, batch: pa.RecordBatch) -> None:
        encode, fields = self._encode, self._fields
        names = [field.name for field in fields]
        columns = [
            [value_to_json(field, value) for value in column.to_pylist()]
            for field, column in zip(fields, batch.columns, strict=True)
        ]
        lines = [encode(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]
        self._stream.write("".join(f"{line}\n" for line in lines).encode())


class _CsvWriter(BatchWriter):
    def __init__(self, stream: BinaryIO, fields: Sequence[Field], delimiter: str) -> None:
        self._stream = stream
        self._fields = fields
        self._delimiter = delimiter
        stream.write((delimiter.join(field.name for field in fields) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        from .text_columns import column_to_text

        cells = []
        for field, column in zip(self._fields, batch.columns, strict=True):
            texts = column_to_text(field, column)
            # Null is an empty cell; an empty string is a quoted one.
            special = pc.match_substring_regex(texts, f'["{self._delimiter}\r\n]|^$|^\\s|\\s$')
            quoted = pc.replace_substring_regex(pc.replace_substring(texts, '"', '""'), r"(?s)^(.*)$", r'"\1"')
            cells.append(pc.if_else(special, quoted, texts).fill_null(""))
        lines = pc.binary_join_element_wise(*cells, self._delimiter).to_pylist()
        self._stream.write("".join(f"{line}\n" for line in lines).encode())


class _ArrowWriter(BatchWriter):
    def __init__(self, stream: BinaryIO, schema: pa.Schema, *, streamed: bool) -> None:
        import pyarrow as pa

        self._schema = schema
        sink = cast(IOBase, stream)
        self._writer = pa.ipc.new_stream(sink, schema) if streamed else pa.ipc.new_file(sink, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))

    def finish(self) -> None:
        self._writer.close()


class _ParquetWriter(BatchWriter):
    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = schema
        # Statistics leave NaN out, and readers skip by them rows that a filter asks for.
        exact = [field.name for field in schema if not pa.types.is_floating(field.type)]
        self._writer = pq.ParquetWriter(stream, schema, write_statistics=exact)
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self._batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
        self._batches, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        # An open writer would try to write its end when it is collected, and report its failure on standard error.
        self._writer.is_open = False
