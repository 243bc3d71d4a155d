"""The changes of a request, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter

from structable.backends.base.feed_marks import FeedRequest
from structable.backends.postgresql.driver.statement import Values, command
from structable.spi import Change, Row, RowKind
from structable.spi.authors import RowShape

from .change_parts import RecordNumbers, whole_parts
from .commit_sizes import EntryQuery
from .entry_queries import RECORD_KINDS, FeedEntries, TicketPart
from .entry_walk import FIRST_ENTRIES, MOST_ENTRIES
from .feed_source import SourceReader

_CHUNK = 1_000
_CHUNK_BYTES = 4 << 20
_numbers = itertools.count(1)


def read_changes(reader: SourceReader, entries: FeedEntries, request: FeedRequest) -> Iterator[Change]:
    """Yield the changes of a request in their order; a generator, to be exhausted or closed.

    Raises
    ------
    ChangesLostError
        If changes that were not read yet have expired.
    """
    decode = _decoder(entries, request)
    chunks = _RowReader(reader, entries)
    for part in whole_parts(reader, entries, request):
        for found in part.walk(reader, entries, chunks):
            if not isinstance(found, EntryQuery):
                yield from decode(found)
            elif found.is_large:
                for rows in _fetched(reader, found):
                    yield from decode(rows)
            else:
                yield from decode(reader.rows(found.query, found.since, freely=found.freely))


class _RowChunk:
    """A chunk as rows: the columns of the shape, then `is_long`, `again` and `n`."""

    def __init__(self, rows: list[Values], key: slice, *, is_full: bool) -> None:
        self._rows = rows
        self._key = key
        self.count = len(rows)
        self.is_full = is_full
        self.has_statements = any(row[-2] for row in rows)
        self.is_long = any(row[-3] for row in rows)
        self.last = (int(str(rows[-1][-2])), int(str(rows[-1][-1]))) if rows else (0, 0)

    def version(self, place: int) -> int:
        return int(str(self._rows[place][0]))

    def begins_last(self) -> int:
        last, place = self._rows[-1][0], self.count
        while place and self._rows[place - 1][0] == last:
            place -= 1
        return place

    def repeats(self, count: int) -> bool:
        return len({(row[0], row[self._key]) for row in self._rows[:count]}) < count

    def head(self, count: int) -> list[Values]:
        return self._rows[:count]


class _RowReader:
    """Reads chunks as rows."""

    def __init__(self, reader: SourceReader, entries: FeedEntries) -> None:
        self._reader = reader
        self._entries = entries
        self._most = MOST_ENTRIES if entries.nets else FIRST_ENTRIES

    def versions(self, since: int, until: int) -> _RowChunk:
        return self._read(self._entries.first_of_versions(since, until, self._most), since)

    def part(self, part: TicketPart) -> _RowChunk:
        return self._read(self._entries.first_of_part(part, self._most), part.version - 1)

    def _read(self, query: str, since: int) -> _RowChunk:
        shape = self._entries.shape
        key = slice(len(shape.facts), len(shape.facts) + len(shape.key))
        rows = self._reader.rows(self._entries.shaped(query), since)
        is_full = len(rows) == self._most
        self._most = min(4 * self._most, MOST_ENTRIES)
        return _RowChunk(rows, key, is_full=is_full)


def _fetched(reader: SourceReader, query: EntryQuery) -> Iterator[list[Values]]:
    """Yield the rows of a query of any size, in chunks from a cursor on the server."""
    cursor = f"f{next(_numbers)}"
    with reader.kept(query.query, query.since, cursor) as connection:
        wanted = 1
        while True:
            result = connection.pipeline((command(f"fetch {wanted} from {cursor}"),))[-1]
            yield connection.rows(result)
            if result.ntuples < wanted:
                return
            sample = range(0, wanted, max(wanted // 8, 1))
            size = sum(len(result.get_value(row, place) or b"") for row in sample for place in range(result.nfields))
            average = max(size // len(sample), 1)
            wanted = max(1, min(_CHUNK, wanted * 4, _CHUNK_BYTES // average))


def _decoder(entries: FeedEntries, request: FeedRequest) -> Callable[[Iterable[Values]], Iterator[Change]]:
    shape = entries.shape
    row_shape = RowShape(request.spec.name, request.columns, request.spec.primary_key)
    begin = len(shape.facts)
    middle = begin + len(shape.key)
    rest = middle + len(shape.before)
    key = {field.name: begin + place for place, field in enumerate(shape.key)}
    before = _picked(request, key | {field.name: middle + place for place, field in enumerate(shape.before)})
    after = _picked(request, key | {field.name: rest + place for place, field in enumerate(shape.after)})
    number = _numbering(entries, request)

    def images(rows: Iterable[Values]) -> Iterator[Change]:
        for values in rows:
            version, time, had, has = values[:4]
            if had:
                kind = RowKind.UPDATE_BEFORE if has else RowKind.DELETE
                yield Change(kind, Row(row_shape, before(values)), version, time)
            if has:
                kind = RowKind.UPDATE_AFTER if had else RowKind.INSERT
                yield Change(kind, Row(row_shape, after(values)), version, time)

    def records(rows: Iterable[Values]) -> Iterator[Change]:
        for values in rows:
            version, time, kind = values[:3]
            yield Change(RECORD_KINDS[kind], Row(row_shape, after(values)), version, time, number(version))

    return images if entries.images else records


def _numbering(entries: FeedEntries, request: FeedRequest) -> Callable[[int], int | None]:
    """Return the function that gives each record its number, called with its version; None if records have none."""
    if entries.nets:
        return lambda version: None
    if request.after is None:
        return RecordNumbers(0, 0).number
    return RecordNumbers(request.segments[0].since + 1 if request.segments else 0, request.after + 1).number


def _picked(request: FeedRequest, places: Mapping[str, int]) -> Callable[[Values], Values]:
    """Return the function from an entry's values to the values of the request's columns; records have no images."""
    if not set(request.columns) <= set(places):
        return tuple
    chosen = [places[name] for name in request.columns]
    if len(chosen) > 1:
        return itemgetter(*chosen)
    only = chosen[0]
    return lambda values: (values[only],)
