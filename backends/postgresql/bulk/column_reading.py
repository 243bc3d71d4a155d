"""Pages of a table as Arrow batches: the server joins the values of each column, and NumPy uses them unchanged.

Each run of pages is one row of the result, with all values of a column concatenated, in the form that is cheapest for
the server; once that form is ambiguous, all later runs use a fuller one. The server skips nulls: if there are fewer
values than rows, it must also return which rows have one. Texts are separated by a rare character: if a text contains
it, their lengths are needed. A second query must return the rows in the same order, the order of the pages, which
`ORDERLY` ensures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import PostgreSQLError
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import Field, FieldType
from structable.spi.arrow import arrow_type

from .row_reading import arrow_numbers
from .split_state import PageRange, SplitState, next_size

_ORDERLY_SETTINGS = {
    "enable_tidscan": "on",
    "enable_indexscan": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
    "synchronize_seqscans": "off",
}
ORDERLY = "select " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _ORDERLY_SETTINGS.items())
"""The query that makes a transaction read rows in their physical order, so that pages return the same order again."""
_FIRST_PAGES = 64
"""The pages of the first query, and of every query with texts or bytes: compressed, these may hold some tens of MB."""
_MOST_PAGES = 1_024
_MOST_BYTES = 32 << 20
"""The maximum size of a batch's arrays without the bytes of texts, if all rows are as short as possible."""
_MOST_ROWS = 226
"""The maximum number of rows of a page."""
_BATCH_BYTES = 512 << 10
"""The approximate size of a batch."""
WARM_UP = "select octet_length(repeat(repeat('x', 1024), 4096))"
"""The query that makes the server allocate and free 4 MiB, more than a batch needs. From then on glibc keeps freed
memory; otherwise it would return memory to the kernel after every batch, which takes a third of the server's time."""
_LENGTH = np.dtype(">i4")
_SEPARATOR = "\x1f"

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]
Array = Any
"""A pyarrow.Array."""
Values = Sequence[bytes]
"""The server's result for one column, in binary; empty if no row has a value."""


def read_pages(
    connection: ServerConnection, state: SplitState, pages: PageRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows on some pages of a table, in physical order.

    The connection is in a transaction of the plan's snapshot, after `ORDERLY`.
    """
    if pages.begin == pages.end:
        return
    columns = [column_of(f"c{place}", state.spec.field(name)) for place, name in enumerate(state.columns)]
    query = _SplitQuery(connection, state.query, ", ".join(column.name for column in columns))
    if pages.end - pages.begin > _FIRST_PAGES:
        connection.pipeline((command(WARM_UP),))
    page = _MOST_ROWS * sum(_width(column.field) for column in columns)
    is_long = any(column.field.type in (FieldType.STRING, FieldType.BYTES) for column in columns)
    most = max(1, min(_FIRST_PAGES if is_long else _MOST_PAGES, _MOST_BYTES // page))
    size = min(_FIRST_PAGES, most)
    part = PageRange(pages.begin, min(pages.begin + size, pages.end))
    with closing(query):
        query.send(part, columns)
        while part.begin < part.end:
            count, answers = query.receive(columns)
            places = list(range(len(columns)))
            while places := [place for place in places if not columns[place].tells(count, answers[place])]:
                fuller = [columns[place].fuller(answers[place]) for place in places]
                query.send(part, fuller)
                for place, column, values in zip(places, fuller, query.receive(fuller)[1], strict=True):
                    columns[place], answers[place] = column, values
            received = sum(len(value) for values in answers for value in values)
            size = min(next_size(size, received, _BATCH_BYTES), most)
            part = PageRange(part.end, min(part.end + size, pages.end))
            if part.begin < part.end:
                query.send(part, columns)  # the server works on it while the caller uses this batch
            if count:
                arrays = [column.array(count, values) for column, values in zip(columns, answers, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _SplitQuery:
    """The query of a split, run for some pages at a time; `rows` is its SQL without pages, `names` are its columns."""

    def __init__(self, connection: ServerConnection, rows: str, names: str) -> None:
        self._connection = connection
        self._rows = rows
        self._names = names
        self._is_sent = False

    def send(self, pages: PageRange, columns: Iterable[ReadColumn]) -> None:
        wanted = ", ".join(["count(*)", *(piece for column in columns for piece in column.asked())])
        rows = f"({self._rows}{pages.condition()}) as found ({self._names})"
        self._connection.send(command(f"select {wanted} from {rows}"))
        self._is_sent = True

    def receive(self, columns: Iterable[ReadColumn]) -> tuple[int, list[Values]]:
        """Return the number of rows, and the result of each requested column."""
        self._is_sent = False
        result = self._connection.receive()
        values = (result.get_value(0, place) or b"" for place in range(result.nfields))
        count = integer_of(next(values))
        return count, [tuple(islice(values, len(column.asked()))) for column in columns]

    def close(self) -> None:
        """Receive and discard any pending result."""
        if self._is_sent and not self._connection.closed:
            with suppress(PostgreSQLError):
                self._connection.receive()


class ReadColumn(ABC):
    """A column in the server's form and as an Arrow array; a masked one also has a mask of the rows with a value."""

    def __init__(self, name: str, field: Field, *, masked: bool = False) -> None:
        self.name = name
        self.field = field
        self.masked = masked

    def asked(self) -> list[str]:
        """Return the SQL of the expressions for this column."""
        mask = [f"string_agg(boolsend({self.name} is not null), null)"] if self.masked else []
        return [*self._asked(), *mask]

    def tells(self, count: int, values: Values) -> bool:
        """Return whether the answer determines the values of `count` rows."""
        return self.masked or self._count(values) in (0, count)

    def fuller(self, values: Values) -> ReadColumn:
        """Return the column to query instead, if the answer is ambiguous."""
        return type(self)(self.name, self.field, masked=True)

    def array(self, count: int, values: Values) -> Array:
        if not self._count(values):
            kind: Any = arrow_type(self.field)
            return pa.nulls(count, kind)
        return self._array(count, values, np.frombuffer(values[-1], np.bool_) if self.masked else None)

    @abstractmethod
    def _asked(self) -> list[str]:
        """Return the SQL of the expressions for the values."""

    @abstractmethod
    def _count(self, values: Values) -> int:
        """Return the number of values that are not null."""

    @abstractmethod
    def _array(self, count: int, values: Values, valid: Flags | None) -> Array:
        """Return the array of `count` rows; `valid` is the mask of rows with a value, None if all have one."""


class _FixedWidthReader(ReadColumn):
    """Values of fixed width."""

    def __init__(self, name: str, field: Field, *, masked: bool = False) -> None:
        super().__init__(name, field, masked=masked)
        self._sent = np.dtype(stored_type(field).numpy)

    def _asked(self) -> list[str]:
        return [f"string_agg({stored_type(self.field).send}({self.name}), null)"]

    def _count(self, values: Values) -> int:
        return len(values[0]) // self._sent.itemsize

    def _array(self, count: int, values: Values, valid: Flags | None) -> Array:
        kind = self.field.type
        numbers = _spread(arrow_numbers(self.field, np.frombuffer(values[0], self._sent)), valid)
        return _made(arrow_type(self.field), count, valid, _bits(numbers) if kind is FieldType.BOOLEAN else numbers)


class _Texts(ReadColumn):
    """Strings, and decimals as strings: values with a separator between them, and their number."""

    @property
    def _value(self) -> str:
        return f"{self.name}::text" if self.field.type is FieldType.DECIMAL else self.name

    def _asked(self) -> list[str]:
        return [f"string_agg({self._value}, '{_SEPARATOR}')", f"count({self.name})"]

    def _count(self, values: Values) -> int:
        return integer_of(values[1])

    def _is_clear(self, values: Values) -> bool:
        """Return whether no value contains the separator."""
        return values[0].count(_SEPARATOR.encode()) == max(self._count(values) - 1, 0)

    def tells(self, count: int, values: Values) -> bool:
        return super().tells(count, values) and self._is_clear(values)

    def fuller(self, values: Values) -> ReadColumn:
        return super().fuller(values) if self._is_clear(values) else _Bytes(self.name, self.field, masked=self.masked)

    def _array(self, count: int, values: Values, valid: Flags | None) -> Array:
        data = values[0]
        whole = _made(pa.string(), 1, None, np.array([0, len(data)], np.int32), data)
        texts: Array = pc.split_pattern(whole, _SEPARATOR).values
        if valid is not None:
            _, ends, content = texts.buffers()
            lengths = np.diff(np.frombuffer(ends, np.int32, len(texts) + 1))
            texts = _made(pa.string(), count, valid, _ends(_spread(lengths, valid)), content)
        return texts.cast(arrow_type(self.field))


class _Bytes(ReadColumn):
    """Values of any length and any content, and their lengths."""

    def _asked(self) -> list[str]:
        return [f"string_agg({self.name}, null)", f"string_agg(int4send(octet_length({self.name})), null)"]

    def _count(self, values: Values) -> int:
        return len(values[1]) // _LENGTH.itemsize

    def _array(self, count: int, values: Values, valid: Flags | None) -> Array:
        lengths = _spread(np.frombuffer(values[1], _LENGTH), valid)
        return _made(arrow_type(self.field), count, valid, _ends(lengths), values[0])


def column_of(name: str, field: Field) -> ReadColumn:
    """Return the column of a field in the form that is cheapest for the server."""
    if stored_type(field).send:
        return _FixedWidthReader(name, field)
    return _Bytes(name, field) if field.type is FieldType.BYTES else _Texts(name, field)


def _width(field: Field) -> int:
    """Return the bytes of a row in an array, with or without a value."""
    if field.type in (FieldType.STRING, FieldType.BYTES):
        return _LENGTH.itemsize
    kind: Any = arrow_type(field)
    bits: int = kind.bit_width
    return max(bits // 8, 1)


def integer_of(value: bytes) -> int:
    """Return a number that the server sent in binary."""
    return int.from_bytes(value, "big")


def _spread(numbers: Numbers, valid: Flags | None) -> Numbers:
    """Return numbers at the positions of the rows that have one, and zeros at the others."""
    if valid is None:
        return numbers
    found = np.zeros(len(valid), numbers.dtype)
    found[valid] = numbers
    return found


def _ends(lengths: Numbers) -> Numbers:
    """Return the ends of values of these lengths, after a zero."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _bits(flags: Flags) -> Numbers:
    return np.packbits(flags, bitorder="little")


def _made(kind: pa.DataType, count: int, valid: Flags | None, *buffers: Numbers | bytes | pa.Buffer) -> Array:
    validity = () if valid is None else (_bits(valid),)
    content: list[Any] = [pa.py_buffer(one) for one in (*validity, *buffers)]
    return pa.Array.from_buffers(kind, count, content if validity else [None, *content])
