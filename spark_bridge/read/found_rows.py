"""Rows that look-ups have found by their keys: matched with the requested keys, and cached for later requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from structable.spi import Row, TableSpecification
from structable.spi.arrow import arrow_type
from structable.spi.values import Value

from .lookup_keys import KeyColumns, KeyValues, Mark, mark_function

if TYPE_CHECKING:
    import numpy.typing as npt

    Places: TypeAlias = npt.NDArray[np.int64]

__all__ = ["Found", "Matches", "RowCache", "Values"]

Values: TypeAlias = tuple[Value, ...]

_FACTS = np.dtype([("expires", np.float64), ("used", np.int64), ("there", np.bool_)])
_NEW_ROWS = 10_000
"""The number of new rows that are kept apart, so that old rows are not copied; it grows with the old rows."""


class Found(NamedTuple):
    """Rows that were found: their keys, and for each wanted field its values in the order of the keys."""

    keys: Sequence[KeyValues]
    columns: Sequence[Sequence[Value]]

    @classmethod
    def of(cls, rows: Mapping[KeyValues, Values], fields: Sequence[str]) -> Found:
        """Build from rows in a dict by key."""
        return cls(list(rows), list(zip(*rows.values(), strict=True)) if rows else [()] * len(fields))

    @classmethod
    def of_rows(cls, spec: TableSpecification, fields: Sequence[str], rows: Sequence[Row]) -> Found:
        """Build from rows of a table."""
        if not rows:
            return cls([], [()] * len(fields))
        values = zip(*[row.astuple() for row in rows], strict=True)
        columns = dict(zip(rows[0].keys(), values, strict=True))
        keys = list(zip(*[columns[name] for name in spec.primary_key], strict=True))
        return cls(keys, [columns[name] for name in fields])


class Matches(NamedTuple):
    """The result for each of some keys: whether there is a row, and its wanted fields, or nulls."""

    there: pa.BooleanArray
    columns: Sequence[pa.Array[Any]]

    @classmethod
    def of(
        cls,
        spec: TableSpecification,
        fields: Sequence[str],
        asked: KeyColumns,
        read: Callable[[list[KeyValues]], Found],
    ) -> Matches:
        """Return the rows of keys, which may repeat, as `read` finds them."""
        keys = asked.tuples()
        found = read(list({key for key in keys if key is not None}))
        places: dict[KeyValues | None, int] = {key: place for place, key in enumerate(found.keys)}
        taken = pa.array(map(places.get, keys), pa.int32(), size=len(keys))
        columns = [
            pa.array(values, arrow_type(spec.field(name))).take(taken)
            for name, values in zip(fields, found.columns, strict=True)
        ]
        return cls(taken.is_valid(), columns)

    def slice(self, start: int, rows: int) -> Matches:
        """Return the matches of some consecutive keys."""
        return Matches(self.there.slice(start, rows), [column.slice(start, rows) for column in self.columns])


class RowCache:
    """A cache of rows by their keys, and of absences; evicts the least recently used. For one thread at a time.

    The rows are kept as columns, from which a batch of keys takes its values at once. Rows that have expired, or were
    read again, count until some must be evicted.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    fields : sequence of str
        The fields that are wanted.
    most : int
        The maximum number of rows and absences to keep; if there would be more, an eighth of them is dropped.
    ttl : float
        The seconds for which they are kept.
    absent : bool
        Whether absences are kept.
    """

    def __init__(
        self,
        spec: TableSpecification,
        fields: Sequence[str],
        most: int,
        *,
        ttl: float = math.inf,
        absent: bool = True,
    ) -> None:
        self._types = [arrow_type(spec.field(name)) for name in fields]
        self._most, self._ttl, self._absent = most, ttl, absent
        self._mark = mark_function(spec)
        self._turn = 0
        self.close()

    def close(self) -> None:
        """Forget all rows."""
        self._set([], np.zeros(0, _FACTS), [pa.array([], kind) for kind in self._types])

    def of(self, keys: KeyColumns, read: Callable[[list[KeyValues]], Found]) -> Matches:
        """Return the rows of keys as `Matches.of` does; all rows that are not kept are read by one call."""
        self._turn += 1
        now = time.monotonic()
        marks = keys.marks()
        places = self._known(marks, now)
        missing = np.flatnonzero(places < 0).tolist()
        unknown = {mark: place for place in missing if (mark := marks[place]) is not None}
        if unknown:
            wanted = [key for key in keys.at(list(unknown.values())).tuples() if key is not None]
            self._add(unknown, read(wanted), now + self._ttl)
            places[missing] = self._known([marks[place] for place in missing], now)
        known = places[places >= 0]
        self._facts["used"][known] = self._turn
        matches = self._taken(places)
        if len(self._marks) > self._most:
            self._forget(now)
        return matches

    def _set(self, marks: list[Mark], facts: npt.NDArray[np.void], columns: list[pa.Array[Any]]) -> None:
        self._marks = marks
        """The marks of keys by their positions; a key that was read again has several, and the last one counts."""
        self._places: dict[Mark | None, int] = {mark: place for place, mark in enumerate(marks)}
        # One more than there are, which stands for the place -1.
        self._facts = np.concatenate([facts, np.zeros(1, _FACTS)])
        self._old, self._begin = columns, len(marks)
        self._new = [column.slice(0, 0) for column in columns]

    def _known(self, marks: Sequence[Mark | None], now: float) -> Places:
        """Return the positions of keys; -1 for those that are not kept."""
        places = np.fromiter(map(self._places.get, marks, repeat(-1)), np.int64, len(marks))
        places[self._facts["expires"][places] <= now] = -1
        return places

    def _add(self, marks: Iterable[Mark], found: Found, expires: float) -> None:
        there = dict.fromkeys(map(self._mark, found.keys))
        gone = [mark for mark in marks if mark not in there] if self._absent else []
        begin, added = len(self._marks), [*there, *gone]
        end = begin + len(added)
        self._marks += added
        self._places.update(zip(added, range(begin, end), strict=True))
        if end >= len(self._facts):
            self._facts = np.concatenate([self._facts[:begin], np.zeros(2 * end - begin + 1, _FACTS)])
        self._facts["expires"][begin:end] = expires
        self._facts["there"][begin : begin + len(there)] = True
        for place, (values, kind) in enumerate(zip(found.columns, self._types, strict=True)):
            self._new[place] = pa.concat_arrays([self._new[place], pa.array([*values, *[None] * len(gone)], kind)])
        if end - self._begin > max(_NEW_ROWS, self._begin // 4):
            self._old, self._begin = self._columns(), end
            self._new = [column.slice(0, 0) for column in self._old]

    def _columns(self) -> list[pa.Array[Any]]:
        return [pa.concat_arrays(parts) for parts in zip(self._old, self._new, strict=True)]

    def _taken(self, places: Places) -> Matches:
        there = (places >= 0) & self._facts["there"][places]
        old = there & (places < self._begin)
        taken = pa.array(places[old], pa.int64())
        # The new rows, after the old rows that are needed.
        among = places - self._begin + len(taken)
        among[old] = np.arange(len(taken))
        wanted = pa.array(among, pa.int64(), mask=~there)
        columns = [
            pa.concat_arrays([some.take(taken), new]).take(wanted)
            for some, new in zip(self._old, self._new, strict=True)
        ]
        return Matches(pa.array(there), columns)

    def _forget(self, now: float) -> None:
        rows = len(self._marks)
        lasts = np.fromiter(map(self._places.__getitem__, self._marks), np.int64, rows)
        kept = np.flatnonzero((lasts == np.arange(rows)) & (self._facts["expires"][:rows] > now))
        if len(kept) > self._most:
            order = np.argsort(self._facts["used"][kept], kind="stable")
            kept = np.sort(kept[order[len(kept) - (self._most - self._most // 8) :]])
        taken = pa.array(kept, pa.int64())
        columns = [column.take(taken) for column in self._columns()]
        self._set([self._marks[place] for place in kept.tolist()], self._facts[kept], columns)
