"""Chunks of entries as columns that the server joins.

A query asks for a side of images only if the chunk before had it: most feeds have long runs of one kind.
The server works on the next chunk while the caller uses one: a thread receives it, so that a slow reader holds no
statement open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq

from structable.backends.postgresql.bulk.column_reading import WARM_UP, ReadColumn, column_of, integer_of
from structable.spi import Field, StorageUnavailableError

from .entry_queries import FeedEntries, TicketPart
from .entry_walk import MOST_ENTRIES
from .feed_source import SourceReader

Content = TypeVar("Content")
Result = TypeVar("Result")

Array = Any
"""A pyarrow.Array."""
Letters = npt.NDArray[np.bytes_]
Numbers = npt.NDArray[Any]

_FIRST_BIT = 0x20
_OF_VERSIONS = (
    "count(*)",
    "max(again)::bigint * 4294967296",
    "bool_or(is_long)::integer",
    # The entries of a statement follow one another, and have version and time in common.
    "string_agg(case n when 0 then set_bit(charsend(kind), 5, 1) else charsend(kind) end, null)",
    "string_agg(case n when 0 then int8send(version) || timestamptz_send(time) end, null)",
)
_OF_PART = (
    "count(*)",
    "max(again::bigint * 4294967296 + n)",
    "bool_or(is_long)::integer",
    "string_agg(charsend(kind), null)",
    "int8send(min(version)) || timestamptz_send(min(time))",
)
_STAMPS = {field.name: column_of(field.name, field) for field in (Field.long("version"), Field.timestamp("time"))}


class JoinedChunk(Generic[Content]):
    """A chunk; `make` makes its content from the kinds of entries, and arrays by the names of columns.

    `key` has the columns of the key, if all were read; `follow` requests the chunk after a number of entries.
    """

    def __init__(
        self,
        values: Sequence[bytes],
        columns: Mapping[str, tuple[ReadColumn, Sequence[bytes]]],
        key: tuple[str, ...],
        make: Callable[[Letters, dict[str, Array]], Content],
        follow: Callable[[JoinedChunk[Content], int], None],
    ) -> None:
        count, last, is_long, kinds, stamps = values
        self.count = integer_of(count)
        self.is_full = self.count == MOST_ENTRIES
        self.last = divmod(integer_of(last), 1 << 32)
        self.has_statements = self.last[0] > 0
        self.is_long = integer_of(is_long) > 0
        letters: Numbers = np.frombuffer(kinds, np.uint8)
        self._kinds: Letters = (letters & ~np.uint8(_FIRST_BIT)).view("S1")
        # The statement of each entry, from 0; a part has one version, whatever its statements.
        begins = letters & _FIRST_BIT > 0
        self._statements: Numbers = np.maximum(np.cumsum(begins) - 1, 0)
        self._versions: Numbers
        self._versions, self._times = np.frombuffer(stamps, ">i8").reshape(-1, 2).T
        self._columns = columns
        self._arrays: dict[str, Array] = {}
        self._key = key
        self._make = make
        self._follow = follow
        self._is_followed = False

    def version(self, place: int) -> int:
        return int(self._versions[self._statements[place]])

    def begins_last(self) -> int:
        return int(np.searchsorted(self._statements, np.argmax(self._versions == self._versions[-1])))

    def repeats(self, count: int) -> bool | None:
        if not self._key:
            return None
        self._go_on(count)
        key = [self._array(name).slice(0, count) for name in self._key]
        versions = self._versions[self._statements[:count]]
        if _ascend(versions, key):
            return False
        names = [str(place) for place in range(len(key) + 1)]
        table = pa.table([pa.array(versions.astype(np.int64)), *key], names)
        return bool(table.group_by(names, use_threads=False).aggregate([]).num_rows < count)

    def head(self, count: int) -> Content:
        self._go_on(count)
        arrays = {name: self._array(name).slice(0, count) for name in ("version", "time", *self._columns)}
        return self._make(self._kinds[:count], arrays)

    def _go_on(self, count: int) -> None:
        if self.is_full and not self._is_followed:
            self._is_followed = True
            self._follow(self, count)

    def _array(self, name: str) -> Array:
        array = self._arrays.get(name)
        if array is None:
            if name in _STAMPS:
                values = (self._versions if name == "version" else self._times).tobytes()
                array = _STAMPS[name].array(len(self._versions), (values,)).take(pa.array(self._statements))
            else:
                column, joined = self._columns[name]
                array = column.array(self.count, joined)
            self._arrays[name] = array
        return array


def _ascend(versions: Numbers, key: Sequence[Array]) -> bool:
    """Return whether each key of a version is above the key before it, as after a bulk load."""
    same = versions[1:] == versions[:-1]
    above = ~same
    for array in key:
        later, earlier = array[1:], array[:-1]
        above |= same & np.asarray(pc.greater(later, earlier))
        same &= np.asarray(pc.equal(later, earlier))
    return bool(above.all())


class JoinedReader(Generic[Content]):
    """Reads chunks as columns, to be closed; `make` is passed to `JoinedChunk`."""

    def __init__(
        self, reader: SourceReader, entries: FeedEntries, make: Callable[[Letters, dict[str, Array]], Content]
    ) -> None:
        self._reader = reader
        self._entries = entries
        self._make = make
        key, before, after = entries.names()
        fields = {**before, **key, **after}
        # The forms of columns, which become wider once a chunk needs it.
        self._columns: dict[str, ReadColumn] = {name: column_of(name, field) for name, field in fields.items()}
        self._sides = {"before": tuple(before), "after": tuple(after)}
        self._both = tuple(key)
        self._key = tuple(key) if entries.has_whole_key else ()
        self._asked = tuple(fields)
        self._is_warm = False
        self._ahead: _Ahead[pq.abc.PGresult] | None = None

    def wait(self) -> None:
        """Wait for a chunk that was requested ahead; then its connection is free."""
        if self._ahead is not None:
            self._ahead.wait()

    def close(self) -> None:
        self.wait()
        self._ahead = None

    def versions(self, since: int, until: int) -> JoinedChunk[Content]:
        def follow(chunk: JoinedChunk[Content], count: int) -> None:
            self._ask_ahead(self._of_versions(chunk.version(count - 1), until))

        return self._read(self._of_versions(since, until), follow)

    def part(self, part: TicketPart) -> JoinedChunk[Content]:
        def follow(chunk: JoinedChunk[Content], count: int) -> None:
            self._ask_ahead(self._of_part(part._replace(after=chunk.last)))

        return self._read(self._of_part(part), follow)

    def _of_versions(self, since: int, until: int) -> _Entries:
        return _Entries(self._entries.first_of_versions(since, until, MOST_ENTRIES), since, _OF_VERSIONS)

    def _of_part(self, part: TicketPart) -> _Entries:
        return _Entries(self._entries.first_of_part(part, MOST_ENTRIES), part.version - 1, _OF_PART)

    def _read(self, query: _Entries, follow: Callable[[JoinedChunk[Content], int], None]) -> JoinedChunk[Content]:
        facts, answers = self._ask(query, [self._columns[name] for name in self._asked])
        if not self._is_warm and integer_of(facts[0]) == MOST_ENTRIES:
            self._is_warm = True
            self._reader.ask(WARM_UP)
        if not integer_of(facts[0]):
            return JoinedChunk((*facts[:1], b"", b"", b"", b""), {}, (), self._make, follow)
        count, found = integer_of(facts[0]), dict(zip(self._asked, answers, strict=True))
        needed = (
            self._needed({letter & ~_FIRST_BIT for letter in set(facts[3])})
            if self._entries.images
            else tuple(self._columns)
        )
        self._asked = needed
        fuller = [self._columns[name] for name in needed if name not in found]
        fuller += [
            self._columns[name].fuller(found[name])
            for name in needed
            if name in found and not self._columns[name].tells(count, found[name])
        ]
        while fuller:
            _, answers = self._ask(query, fuller)
            fuller, asked = [], fuller
            for column, values in zip(asked, answers, strict=True):
                self._columns[column.name], found[column.name] = column, values
                if not column.tells(count, values):
                    fuller.append(column.fuller(values))
        columns = {name: (self._columns[name], found[name]) for name in needed}
        return JoinedChunk(facts, columns, self._key, self._make, follow)

    def _needed(self, kinds: set[int]) -> tuple[str, ...]:
        before = self._sides["before"] if kinds - {ord("I")} else ()
        after = self._sides["after"] if kinds - {ord("D")} else ()
        return (*self._both, *before, *after)

    def _ask_ahead(self, query: _Entries) -> None:
        text = query.joined([self._columns[name] for name in self._asked])
        self._ahead = _Ahead(text, lambda: self._reader.result(text, query.since))

    def _ask(self, query: _Entries, columns: Sequence[ReadColumn]) -> tuple[list[bytes], list[tuple[bytes, ...]]]:
        """Return the facts of the entries of a query, and the values of columns; entries never change."""
        text = query.joined(columns)
        ahead = self._ahead
        if ahead is not None and ahead.text == text:
            self._ahead = None
            result = ahead.result()
        else:
            self.close()
            result = self._reader.result(text, query.since)
        values = (result.get_value(0, place) or b"" for place in range(result.nfields))
        facts = list(islice(values, len(query.facts)))
        return facts, [tuple(islice(values, len(column.asked()))) for column in columns]


class _Entries(NamedTuple):
    """A query of entries after a version, and the requested facts about them."""

    text: str
    since: int
    facts: tuple[str, ...]

    def joined(self, columns: Sequence[ReadColumn]) -> str:
        pieces = [*self.facts, *(piece for column in columns for piece in column.asked())]
        return f"select {', '.join(pieces)} from ({self.text}) as found"


class _Ahead(Generic[Result]):
    """The result of a call that begins now, in a separate thread; `text` names it."""

    def __init__(self, text: str, call: Callable[[], Result]) -> None:
        self.text = text
        self._call = call
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        thread = threading.Thread(target=self._run, name="structable-ahead", daemon=True)
        with suppress(RuntimeError):  # no thread can start now: `result` calls
            thread.start()
            self._thread = thread

    def wait(self) -> None:
        """Wait for the end of the call."""
        if self._thread is not None:
            self._thread.join()

    def result(self) -> Result:
        """Return the result, or raise the call's exception."""
        if self._thread is None:
            return self._call()
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._results:
            raise StorageUnavailableError("these changes were being read by the process that forked this one")
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
