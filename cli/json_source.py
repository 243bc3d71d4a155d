"""JSON lines to import: one object per line, every line with the fields of the first."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from structable.spi import Value
from structable.spi.arrow import arrow_type

from .json_rows import row_from_json
from .source import BATCH_BYTES, BATCH_ROWS, TextSource

__all__ = ["JsonSource"]


class JsonSource(TextSource):
    """A file of JSON lines."""

    _lines: list[int]
    _first = 0

    def _read(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Value]] = []
        self._lines, size = [], 0
        self._skip_mark()
        columns: list[str] = []
        for number, line in enumerate(self._stream, 1):
            if not line.strip():
                continue
            row = self._parsed(number, line)
            if not columns:
                columns = list(row)
                if not columns:
                    self._wrong(number, "the object names no field (null writes a null)")
                if missing := self._columns.missing(columns):
                    self._wrong(number, missing)
            elif row.keys() != set(columns):
                # All rows of a batch have the same columns, and a null for an unnamed field would lose its value.
                wanted = ", ".join(columns)
                self._wrong(number, f"every line must name the fields of the first, {wanted} (null writes a null)")
            rows.append(row)
            self._lines.append(number)
            size += len(line)
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from self._batched(rows, columns)
                rows, size = [], 0
        yield from self._batched(rows, columns)

    def _batched(self, rows: list[dict[str, Value]], columns: list[str]) -> Iterator[pa.RecordBatch]:
        self._first = self._rows
        if rows:
            arrays = [pa.array([row[name] for row in rows], arrow_type(self._columns.field(name))) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, columns)
        self._lines = []

    def _parsed(self, number: int, line: bytes) -> dict[str, Value]:
        try:
            return row_from_json(self._columns, line.strip().decode())
        except UnicodeDecodeError:
            self._wrong(number, "the text is not UTF-8")
        except json.JSONDecodeError as error:
            self._wrong(number, f"{error.msg} at column {error.colno}")
        except ValueError as error:
            self._wrong(number, str(error))

    def _row(self, number: int) -> str:
        position = number - self._first
        return f"{self.name}, line {self._lines[position]}" if position < len(self._lines) else super()._row(number)
