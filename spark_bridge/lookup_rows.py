"""What a task of a look-up join does: reads the rows of its keys in batches, and remembers some."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from structable.spi import FieldSizeLimitError, InvalidFieldError, Row, Storage, TableSpecification
from structable.spi.arrow import arrow_type
from structable.spi.rules.rows import check_key
from structable.spi.values import Value

from .errors import one_line_errors, quiet_when_abandoned
from .store_client import StoreClient

__all__ = ["How", "Lookup", "RememberedRows"]

How: TypeAlias = Literal["inner", "left", "semi", "anti"]
KeyValues: TypeAlias = tuple[Value, ...]
Values: TypeAlias = tuple[Value, ...]
Read: TypeAlias = Callable[[list[KeyValues]], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Adds fields of the rows of a table to batches, for `mapInArrow`; picklable.

    Parameters
    ----------
    store : StoreClient
        The store.
    spec : TableSpecification
        The table.
    key : tuple of int
        The places of the columns that have the key, in its order.
    fields : tuple of str
        The fields to add.
    names : tuple of str
        All columns of the result.
    how : {"inner", "left", "semi", "anti"}
        Which rows are left.
    batch : int
        Rows whose keys are read together.
    cache_rows : int
        Rows and absences that are remembered at most.
    """

    store: StoreClient
    spec: TableSpecification
    key: tuple[int, ...]
    fields: tuple[str, ...]
    names: tuple[str, ...]
    how: How
    batch: int
    cache_rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        with quiet_when_abandoned(), one_line_errors(), self.store.connect() as storage:
            rows = RememberedRows(partial(self._read, storage), self.fields, self.cache_rows)
            for together in _together(chain((first,), filled), self.batch):
                keys = [self._keys(part) for part in together]
                found = rows.of({key for part in keys for key in part if key is not None})
                for part, own in zip(together, keys, strict=True):
                    yield self._joined(part, own, found)

    def _read(self, storage: Storage, keys: list[KeyValues]) -> list[Row]:
        """Return the rows of keys; refuses those of a table whose fields are not those that the join was made with.

        Raises
        ------
        InvalidFieldError
            If the key or a field is another now.
        """
        rows = storage.table(self.spec.name).multi_read(keys, self.fields or self.spec.primary_key)
        now = storage.admin.get_specification(self.spec.name)
        if now.primary_key != self.spec.primary_key:
            was_key, key = (f"the key ({', '.join(spec.primary_key)})" for spec in (self.spec, now))
            raise self._changed(now.primary_key[0], was_key, key)
        for name in (*now.primary_key, *self.fields):
            was, field = self.spec.field(name), now.field(name)
            if field != was:
                raise self._changed(name, was.type_text, field.type_text)
        return rows

    def _changed(self, name: str, was: str, now: str) -> InvalidFieldError:
        reason = f"has changed since this look-up join was made, from {was} to {now}; call lookup_join again"
        return InvalidFieldError(self.spec.name, name, reason)

    def _keys(self, batch: pa.RecordBatch) -> list[KeyValues | None]:
        """Return the key of each row; None for one that no row of the table has, such as of a null."""
        columns = [
            _values(batch.column(place).cast(arrow_type(field)))
            for place, field in zip(self.key, self.spec.key_fields, strict=True)
        ]
        known: dict[KeyValues, KeyValues | None] = {}
        keys: list[KeyValues | None] = []
        for key in zip(*columns, strict=True):
            if key not in known:
                known[key] = self._checked(key)
            keys.append(known[key])
        return keys

    def _checked(self, key: KeyValues) -> KeyValues | None:
        try:
            return check_key(self.spec, key)
        except (InvalidFieldError, FieldSizeLimitError):
            return None

    def _joined(
        self, batch: pa.RecordBatch, keys: Sequence[KeyValues | None], found: Mapping[KeyValues, Values]
    ) -> pa.RecordBatch:
        rows = [None if key is None else found.get(key) for key in keys]
        if self.how != "left":
            chosen = [(values is None) is (self.how == "anti") for values in rows]
            if not all(chosen):
                batch = batch.filter(pa.array(chosen, pa.bool_()))
                rows = [values for values, kept in zip(rows, chosen, strict=True) if kept]
        columns = list(batch.columns)
        for place, name in enumerate(self.fields):
            own = [None if values is None else values[place] for values in rows]
            columns.append(pa.array(own, arrow_type(self.spec.field(name))))
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))


class RememberedRows:
    """Rows of a table by their keys, of which the last used are remembered, and absences too.

    Parameters
    ----------
    read : callable
        Returns the rows of distinct keys.
    fields : tuple of str
        The fields that are wanted of a row.
    capacity : int
        The rows and absences to remember at most.
    """

    def __init__(self, read: Read, fields: tuple[str, ...], capacity: int) -> None:
        self._read = read
        self._fields = fields
        self._capacity = capacity
        self._known: OrderedDict[KeyValues, Values | None] = OrderedDict()

    def of(self, keys: Iterable[KeyValues]) -> dict[KeyValues, Values]:
        """Return the fields of those distinct keys that have a row; what is not remembered is read by one call."""
        found: dict[KeyValues, Values | None] = {}
        unknown: list[KeyValues] = []
        for key in keys:
            if key in self._known:
                self._known.move_to_end(key)
                found[key] = self._known[key]
            else:
                unknown.append(key)
        if unknown:
            read = {row.key: tuple([row[name] for name in self._fields]) for row in self._read(unknown)}
            for key in unknown:
                found[key] = self._known[key] = read.get(key)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return {key: values for key, values in found.items() if values is not None}


def _together(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches, cut and gathered into lists of `rows` rows together; the last list has fewer."""
    gathered: list[pa.RecordBatch] = []
    room = rows
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, room)
            gathered.append(part)
            start += part.num_rows
            room -= part.num_rows
            if not room:
                yield gathered
                gathered, room = [], rows
    if gathered:
        yield gathered


def _values(column: pa.Array[Any]) -> list[Value]:
    """Return Python's values; null for one that is none of Python's, such as a date after the year 9999."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(one) for one in column]


def _value(scalar: pa.Scalar[Any]) -> Value:
    try:
        value: Value = scalar.as_py()
    except (ValueError, OverflowError):
        return None
    return value
