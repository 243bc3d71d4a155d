"""Parquet files to import."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from structable.spi.arrow import CastError

from .arrow_sources import IN_MESSAGE, TypedSource, unread_columns
from .source import BATCH_ROWS

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_FIRST_SECOND, _LAST_SECOND = pa.scalar(-62_135_596_800), pa.scalar(253_402_300_799)
"""The seconds since 1970 at which the years 1 to 9999 begin and end."""
_THOUSAND, _MILLION, _BILLION = pa.scalar(10**3), pa.scalar(10**6), pa.scalar(10**9)
_ARROW_SCHEMA = re.compile(rb"ARROW:schema\x18[\x80-\xff]*[\x00-\x7f]([A-Za-z0-9+/]+=*)")
"""The schema that writers add to a footer, a message of Arrow in base64 after its length."""


class ParquetSource(TypedSource):
    """A Parquet file."""

    _fraction = 0.0

    def _schema(self) -> pa.Schema:
        from pyarrow.parquet import ParquetFile

        try:
            file = ParquetFile(self._stream)
            schema = file.schema_arrow
            for name in self._int96_columns(file):
                instants = pa.field(name, pa.timestamp("us", tz="UTC"))
                schema = schema.set(schema.get_field_index(name), instants)
        except pa.ArrowNotImplementedError as error:
            self._unread(error, self._unread_columns())
        except (pa.ArrowException, OSError) as error:
            self._damaged(error)
        return schema

    def _damaged(self, error: Exception) -> NoReturn:
        self._malformed(f"is not a Parquet file, or is cut or damaged: {error}")

    def _read(self) -> Iterator[pa.RecordBatch]:
        from pyarrow.parquet import ParquetFile

        try:
            file = ParquetFile(self._stream, coerce_int96_timestamp_unit="s")
            instants = self._int96_columns(file)
            done = 0
            with Path(self._location).open("rb") as again:
                exact = _ParquetRows(ParquetFile(again), instants) if instants else None
                for batch in file.iter_batches(BATCH_ROWS):
                    done += batch.num_rows
                    self._fraction = done / file.metadata.num_rows
                    whole = batch if exact is None else self._with_instants(batch, exact.next(batch.num_rows))
                    yield self._mapped(whole)
        except pa.ArrowNotImplementedError as error:
            self._unread(error, self._unread_columns())
        except (pa.ArrowException, OSError) as error:
            self._damaged(error)

    @property
    def fraction(self) -> float | None:
        return self._fraction

    def _int96_columns(self, file: ParquetFile) -> list[str]:
        """Return the fields' columns of the type with which Spark writes instants, unless they are lists."""
        schema = file.schema_arrow
        fields = dict(zip(schema.names, self._matched(self._names_of(schema)), strict=True))
        columns = (file.schema.column(place) for place in range(len(file.schema)))
        names = [column.path for column in columns if column.physical_type == "INT96"]
        return [name for name in names if fields.get(name) and pa.types.is_timestamp(schema.field(name).type)]

    def _with_instants(self, batch: pa.RecordBatch, exact: pa.Table) -> pa.RecordBatch:
        for name in exact.column_names:
            place = batch.schema.get_field_index(name)
            try:
                column = _instants(batch.column(place), exact.column(name).combine_chunks())
            except CastError as error:
                self._misfit(name, error)
            batch = batch.set_column(place, name, column)
        return batch

    def _unread_columns(self) -> list[str]:
        self._stream.seek(-8, os.SEEK_END)
        size = int.from_bytes(self._stream.read(4), "little")
        self._stream.seek(-8 - size, os.SEEK_END)
        schema = _ARROW_SCHEMA.search(self._stream.read(size))
        return unread_columns(base64.b64decode(schema[1])[8:], IN_MESSAGE) if schema else []


class _ParquetRows:
    """Reads some columns of a file by numbers of rows."""

    def __init__(self, file: ParquetFile, columns: list[str]) -> None:
        self._batches = file.iter_batches(BATCH_ROWS, columns=columns)
        self._ahead = file.schema_arrow.empty_table().select(columns)

    def next(self, rows: int) -> pa.Table:
        while self._ahead.num_rows < rows:
            self._ahead = pa.concat_tables([self._ahead, pa.Table.from_batches([next(self._batches)])])
        found, self._ahead = self._ahead.slice(0, rows), self._ahead.slice(rows)
        return found


def _instants(seconds: pa.Array[Any], nanoseconds: pa.Array[Any]) -> pa.Array[Any]:
    """Return INT96 timestamps as instants in microseconds.

    pyarrow reads them in one unit: it truncates finer digits, or wraps years beyond the range of nanoseconds. Two reads
    together have all digits: a difference is exact if both terms wrap alike.
    """
    whole: Any = seconds.view(pa.int64())
    finer: Any = pc.subtract(nanoseconds.view(pa.int64()), pc.multiply(whole, _BILLION))
    micros: Any = pc.divide(finer, _THOUSAND)
    lost = pc.not_equal(pc.multiply(micros, _THOUSAND), finer)
    beyond: Any = pc.or_(pc.less(whole, _FIRST_SECOND), pc.greater(whole, _LAST_SECOND))
    position = pc.index(pc.or_(lost, beyond), pa.scalar(True)).as_py()
    if position >= 0:
        text = f"{seconds.slice(position, 1).cast(pa.string())[0]}.{finer[position].as_py():09}Z"
        fault = "is outside of the years 1 to 9999" if beyond[position].as_py() else "is finer than a microsecond"
        raise CastError(f"{text} {fault}", position)
    found: Any = pc.add(pc.multiply(whole, _MILLION), micros)
    return found.view(pa.timestamp("us", tz="UTC"))  # type: ignore[no-any-return]
