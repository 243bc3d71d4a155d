"""JSON to import: lines of one object each, or one array of objects; the objects may name different fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from structable.spi import FieldType, Value
from structable.spi.arrow import arrow_type
from structable.spi.text import LiteralError

from .json_array import ArrayError, array_elements
from .json_rows import JsonObject, decoded_object, row_of_object
from .source import BATCH_BYTES, BATCH_ROWS, TextSource

_PENDING_ROWS = 4 * BATCH_ROWS
"""The number of rows among which rows with the same fields are grouped."""


class _ParsedLine(NamedTuple):
    line: int
    values: dict[str, Value]


class JsonSource(TextSource):
    """A file of JSON objects.

    A batch has the same fields in all rows. If fields that are not named keep their values, objects with other fields
    go into other batches, after earlier objects of the same key.
    """

    _lines: list[int]
    _first = 0

    def _read(self) -> Iterator[pa.RecordBatch]:
        self._lines = []
        pending = _PendingRows(self._columns.key, one_group=self._columns.fills_up)
        size = 0
        for line, text, document in self.objects():
            row = _ParsedLine(line, self._row_of(line, document))
            if missing := self._columns.missing(list(row.values)):
                self._wrong(line, missing)
            if pending.separates(row.values) or pending.rows >= _PENDING_ROWS or size >= BATCH_BYTES:
                yield from self._batched(pending)
                size = 0
            pending.add(row)
            size += len(text)
            if len(pending.groups) == 1 and pending.rows >= BATCH_ROWS:
                yield from self._batched(pending)
                size = 0
        yield from self._batched(pending)

    def objects(self) -> Iterator[tuple[int, str, JsonObject]]:
        """Yield the objects with their lines and texts."""
        self._skip_mark()
        names: dict[str, str | None] = {}
        nulls = frozenset(self._form.nulls)
        for line, text in self._texts():
            try:
                document = decoded_object(text)
            except json.JSONDecodeError as error:
                self._wrong(line + error.lineno - 1, f"{error.msg} at column {error.colno}")
            except ValueError as error:
                self._wrong(line, str(error))
            if not document:
                self._wrong(line, "the object names no field (null writes a null)")
            if new := [name for name, _ in document if name not in names]:
                columns = list(dict.fromkeys([*names, *new]))
                try:
                    found = dict(zip(columns, self._columns.matched(columns, growing=True), strict=True))
                except ValueError as error:
                    self._wrong(line, str(error))
                for name, before in names.items():
                    if found[name] != before:
                        self._wrong(line, f"the columns {name!r} and {new[0]!r} are one field; --rename names another")
                names = found
            pairs = [(names[name] or "", value) for name, value in document if names[name]]
            if nulls:
                pairs = [(name, None if type(value) is str and value in nulls else value) for name, value in pairs]
            yield line, text, JsonObject(pairs)
        if names:
            self._matched(list(names))  # every column that the options name must have occurred

    def _texts(self) -> Iterator[tuple[int, str]]:
        begin = self._first_line()
        if begin.lstrip().startswith(b"["):
            try:
                yield from array_elements(begin, self._stream, self._skipped)
            except ArrayError as error:
                self._wrong(error.line, str(error))
            return
        number = self._skipped
        line = begin
        while line:
            number += 1
            if line.strip():
                try:
                    yield number, line.strip().decode()
                except UnicodeDecodeError:
                    self._wrong(number, "the text is not UTF-8")
            line = self._stream.readline()

    _skipped = 0

    def _first_line(self) -> bytes:
        """Return the first line that is not blank; empty at the end of the file."""
        while line := self._stream.readline():
            if line.strip():
                return line
            self._skipped += 1
        return b""

    def _row_of(self, line: int, document: JsonObject) -> dict[str, Value]:
        try:
            if self._form.true:
                document = JsonObject([(name, self._truth(name, value)) for name, value in document])
            return row_of_object(self._columns, document, self._form.parse)
        except ValueError as error:
            self._wrong(line, str(error))

    def _truth(self, name: str, value: object) -> object:
        if type(value) is not str or name not in self._columns:
            return value
        field = self._columns.field(name)
        if field.type is not FieldType.BOOLEAN:
            return value
        try:
            return self._form.parse(field, value)
        except LiteralError as error:
            raise LiteralError(f"field {name!r}: {error}") from None

    def _batched(self, pending: _PendingRows) -> Iterator[pa.RecordBatch]:
        for names, rows in pending.groups.items():
            for start in range(0, len(rows), BATCH_ROWS):
                part = rows[start : start + BATCH_ROWS]
                self._first, self._lines = self._rows, [row.line for row in part]
                arrays = [
                    pa.array([row.values.get(name) for row in part], arrow_type(self._columns.field(name)))
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(arrays, list(names))
        pending.clear()
        self._lines = []

    def _row(self, number: int) -> str:
        position = number - self._first
        return f"{self.name}, line {self._lines[position]}" if position < len(self._lines) else super()._row(number)


class _PendingRows:
    """The last rows read, grouped by the fields that they name, in the order of each group's first row."""

    def __init__(self, key: tuple[str, ...], *, one_group: bool) -> None:
        self._key = key
        self._one_group = one_group
        self._last: dict[tuple[Value, ...], frozenset[str]] = {}
        self.groups: dict[tuple[str, ...], list[_ParsedLine]] = {}
        self._names: dict[frozenset[str], tuple[str, ...]] = {}
        self.rows = 0

    def separates(self, row: dict[str, Value]) -> bool:
        """Return whether a row must be in a later batch: an earlier row with its key names other fields."""
        named = frozenset(row)
        if self._one_group or not self.groups or (len(self.groups) == 1 and named in self._names):
            return False
        last = self._keys().get(self._key_of(row))
        return last is not None and last != named

    def _keys(self) -> dict[tuple[Value, ...], frozenset[str]]:
        # Needed from the second group on.
        if not self._last:
            self._last = {
                self._key_of(row.values): frozenset(names) for names, rows in self.groups.items() for row in rows
            }
        return self._last

    def _key_of(self, row: dict[str, Value]) -> tuple[Value, ...]:
        return tuple(row.get(name) for name in self._key)

    def add(self, row: _ParsedLine) -> None:
        """Add a row."""
        named = frozenset(row.values)
        if self._one_group:
            every = tuple(dict.fromkeys([*next(iter(self.groups), ()), *row.values]))
            self.groups = {every: next(iter(self.groups.values()), [])}
            self.groups[every].append(row)
        else:
            names = self._names.setdefault(named, tuple(row.values))
            self.groups.setdefault(names, []).append(row)
            if self._last:
                self._last[self._key_of(row.values)] = named
        self.rows += 1

    def clear(self) -> None:
        """Forget all rows."""
        self.groups, self._names, self._last, self.rows = {}, {}, {}, 0
