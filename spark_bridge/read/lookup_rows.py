"""The task of a look-up join: reads the rows of its keys in batches, and caches some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from structable.spark_bridge.base.errors import one_line_errors, quiet_when_abandoned
from structable.spark_bridge.base.python_workers import collecting_rarely, freeze_imports
from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import InvalidFieldError, Row, Storage, TableSpecification
from structable.spi.arrow import arrow_type

from .found_rows import Found, Matches, RowCache
from .lookup_keys import KeyColumns, KeyValues

How: TypeAlias = Literal["inner", "left", "semi", "anti"]
RowsOf: TypeAlias = Callable[[KeyColumns], Matches]


class RowSource(Protocol):
    """Where a task finds rows; picklable."""

    def open(self) -> AbstractContextManager[RowsOf]:
        """Return a context that yields a function from keys to the wanted fields of their rows."""


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Rows of a table, read over a connection of the task's own, and cached in part.

    Parameters
    ----------
    store : StoreClient
        The store.
    spec : TableSpecification
        The table.
    fields : tuple of str
        The fields that are wanted.
    cache_rows : int
        The maximum number of rows and absences to cache.
    """

    store: StoreClient
    spec: TableSpecification
    fields: tuple[str, ...]
    cache_rows: int

    @contextmanager
    def open(self) -> Iterator[RowsOf]:
        with self.store.connect() as storage:
            read = partial(read_rows, storage, self.spec, self.fields)
            cached = RowCache(self.spec, self.fields, self.cache_rows)
            yield lambda keys: cached.of(keys, lambda some: Found.of_rows(self.spec, self.fields, read(some)))


def read_rows(storage: Storage, spec: TableSpecification, fields: tuple[str, ...], keys: list[KeyValues]) -> list[Row]:
    """Return the rows of keys, after checking that the table still has the key and the fields of the join.

    Raises
    ------
    InvalidFieldError
        If the key or a field has changed.
    """
    rows = storage.table(spec.name).multi_read(keys, fields or spec.primary_key)
    now = storage.admin.get_specification(spec.name)
    if now.primary_key != spec.primary_key:
        was_key, key = (f"the key ({', '.join(one.primary_key)})" for one in (spec, now))
        raise _changed(spec, now.primary_key[0], was_key, key)
    for name in (*now.primary_key, *fields):
        was, field = spec.field(name), now.field(name)
        if field != was:
            raise _changed(spec, name, was.type_text, field.type_text)
    return rows


def _changed(spec: TableSpecification, name: str, was: str, now: str) -> InvalidFieldError:
    reason = f"has changed since this look-up join was made, from {was} to {now}; make it again"
    return InvalidFieldError(spec.name, name, reason)


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Adds fields of the rows of a table to batches, for `mapInArrow`; picklable.

    Parameters
    ----------
    source : RowSource
        Where the rows are found.
    spec : TableSpecification
        The table.
    key : tuple of int
        The positions of the columns that have the key, in its order.
    names : tuple of str
        All columns of the result.
    how : {"inner", "left", "semi", "anti"}
        Which rows the result has.
    batch : int
        Rows whose keys are read together.
    """

    source: RowSource
    spec: TableSpecification
    key: tuple[int, ...]
    names: tuple[str, ...]
    how: How
    batch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        with quiet_when_abandoned(), one_line_errors(), self.source.open() as rows_of, collecting_rarely():
            freeze_imports()  # the store's driver too
            for together in _together(chain((first,), filled), self.batch):
                matches = rows_of(self._keys(together))
                start = 0
                for part in together:
                    yield self._joined(part, matches.slice(start, part.num_rows))
                    start += part.num_rows

    def _keys(self, batches: Sequence[pa.RecordBatch]) -> KeyColumns:
        columns = [
            pa.concat_arrays([batch.column(place) for batch in batches]).cast(arrow_type(field))
            for place, field in zip(self.key, self.spec.key_fields, strict=True)
        ]
        return KeyColumns(self.spec, columns)

    def _joined(self, batch: pa.RecordBatch, matches: Matches) -> pa.RecordBatch:
        columns = [*batch.columns, *matches.columns]
        if self.how != "left":
            chosen = pc.invert(matches.there) if self.how == "anti" else matches.there
            if chosen.false_count:
                columns = [column.filter(chosen) for column in columns]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))


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
