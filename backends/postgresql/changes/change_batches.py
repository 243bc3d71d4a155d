"""Entries as Arrow batches of changes.

The server joins the values of each column, and the images before and after are interleaved here. Rows of unlimited size
come by COPY into a temporary file, so that a slow reader holds no transaction open.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from structable.backends.postgresql.bulk.row_reading import copied_arrays
from structable.backends.postgresql.bulk.split_reading import MOST_COLUMNS
from structable.spi import FEED_COLUMNS, RowKind, TableSpecification
from structable.spi.arrow import arrow_type

from .change_parts import ChangePart
from .commit_sizes import EntryQuery
from .entry_queries import RECORD_KINDS, RECORD_LETTERS, FeedEntries
from .feed_source import SourceReader
from .joined_chunks import JoinedReader, Letters

_IN_MEMORY = 16 << 20

Array = Any
"""A pyarrow.Array."""
Flags = npt.NDArray[np.bool_]


def change_schema(spec: TableSpecification, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of changes with these fields."""
    fields = [pa.field(name, arrow_type(spec.field(name))) for name in columns]
    kinds = (pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"))
    given = zip(FEED_COLUMNS, kinds, strict=True)
    return pa.schema([*fields, *(pa.field(name, kind, nullable=False) for name, kind in given)])


class ChangeBatches:
    """Reads parts of a feed; `columns` are the fields of the batches."""

    def __init__(
        self, reader: SourceReader, entries: FeedEntries, spec: TableSpecification, columns: Sequence[str]
    ) -> None:
        self._reader = reader
        self._entries = entries
        self._names = tuple(columns)
        self._schema = change_schema(spec, columns)
        self._key, self._before, self._after = entries.names()

    def read(self, part: ChangePart) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a part; raises as `SourceReader.rows` does."""
        is_wide = len(self._entries.shape.fields) > MOST_COLUMNS
        with closing(JoinedReader(self._reader, self._entries, self._joined)) as chunks:
            for found in part.walk(self._reader, self._entries, None if is_wide else chunks):
                if isinstance(found, EntryQuery):
                    chunks.wait()
                    yield from self._spooled(found)
                else:
                    yield found

    def _joined(self, kinds: Letters, arrays: dict[str, Array]) -> pa.RecordBatch:
        if self._entries.images:
            return self._images(kinds != b"I", kinds != b"D", arrays)
        places = np.zeros(256, np.int8)
        places[list(RECORD_LETTERS.encode())] = range(len(RECORD_LETTERS))
        return self._records(pa.array(places[kinds.view(np.uint8)]), arrays)

    def _spooled(self, query: EntryQuery) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a query after all of them have arrived."""
        fields = self._entries.shape.fields
        facts = [field.name for field in self._entries.shape.facts]
        names = [*facts, *self._key, *self._before, *self._after]
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            with (
                self._reader.begun(query.since, freely=query.freely) as connection,
                pa.ipc.new_stream(file, self._schema) as stream,
            ):
                for arrays in copied_arrays(connection, query.query, fields):
                    found = dict(zip(names, arrays, strict=True))
                    if self._entries.images:
                        batch = self._images(np.asarray(found["had"]), np.asarray(found["has"]), found)
                    else:
                        batch = self._records(found["kind"], found)
                    stream.write_batch(batch)
            file.seek(0)
            with pa.ipc.open_stream(file) as batches:
                yield from batches

    def _records(self, kinds: Array, arrays: dict[str, Array]) -> pa.RecordBatch:
        columns = {field.name: arrays[name] for name, field in self._after.items()}
        return self._batch(columns, _RECORD_TEXTS.take(kinds), arrays["version"], arrays["time"])

    def _images(self, had: Flags, has: Flags, arrays: dict[str, Array]) -> pa.RecordBatch:
        """Return the changes of images: the row before if there was one, then the row after if there is one."""
        count = len(had)
        if not had.any() or not has.any():
            side = self._before if had.any() else self._after
            kind = RowKind.DELETE if had.any() else RowKind.INSERT
            columns = {field.name: arrays[name] for many in (self._key, side) for name, field in many.items()}
            first: Array = pa.array(np.zeros(count, np.int8))
            kinds: Array = pa.DictionaryArray.from_arrays(first, pa.array([kind.change_type]))
            return self._batch(columns, kinds.cast(pa.string()), arrays["version"], arrays["time"])
        number = had.astype(np.int8) + has
        places = np.repeat(np.arange(count), number)
        is_after = np.zeros(len(places), np.bool_)
        is_after[(np.cumsum(number) - 1)[has]] = True
        rows, sides = pa.array(places), pa.array(places + count * is_after)
        kinds = _IMAGE_TEXTS.take(pa.array((had & has)[places] + 2 * is_after))
        columns = {field.name: arrays[name].take(rows) for name, field in self._key.items()}
        for before, (after, field) in zip(self._before, self._after.items(), strict=True):
            columns[field.name] = pa.concat_arrays([arrays[before], arrays[after]]).take(sides)
        return self._batch(columns, kinds, arrays["version"].take(rows), arrays["time"].take(rows))

    def _batch(self, columns: dict[str, Array], kinds: Array, versions: Array, times: Array) -> pa.RecordBatch:
        chosen = [columns[name] for name in self._names]
        return pa.RecordBatch.from_arrays([*chosen, kinds, versions, times], schema=self._schema)


_IMAGE_TEXTS: Array = pa.array(
    [kind.change_type for kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE, RowKind.INSERT, RowKind.UPDATE_AFTER)]
)
_RECORD_TEXTS: Array = pa.array([kind.change_type for kind in RECORD_KINDS])
