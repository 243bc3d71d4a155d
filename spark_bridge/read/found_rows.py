"""Rows that look-ups have found by their keys: matched with the requested keys, and cached for later requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from structable.spi import Row, TableSpecification, Value
from structable.spi.arrow import arrow_type

from .hashed_places import HashedPlaces
from .lookup_keys import KeyColumns, KeyValues

if TYPE_CHECKING:
    import numpy.typing as npt

    from .hashed_places import Hashes, Places

Values: TypeAlias = tuple[Value, ...]

_FACTS = np.dtype([("hash", np.uint64), ("expires", np.float64), ("used", np.int64), ("there", np.bool_)])
_NEW_ROWS = 10_000
"""The number of new rows that are kept apart, so that old rows are not copied; it grows with the old rows."""

_MOST_BYTES = 2**30
"""The size of a column of rows above which rows are dropped, however few: Arrow's texts have at most twice as much."""


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
        distinct, which = asked.distinct()
        keys = distinct.tuples()
        wanted = [key for key in keys if key is not None]
        found = read(wanted) if wanted else Found([], [()] * len(fields))
        taken: pa.Int64Array = pa.array(which, pa.int64())
        if found.keys != keys:  # a quarter of the time of finding each key
            places: dict[KeyValues | None, int] = {key: place for place, key in enumerate(found.keys)}
            taken = pa.array(map(places.get, keys), pa.int64(), size=len(keys)).take(taken)
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
        The maximum number of rows and absences to keep; if there would be more, an eighth of them is dropped. If values
        are long, fewer rows are kept: at most a gigabyte of each field.
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
        self._spec, self._fields = spec, fields
        self._most, self._ttl, self._absent = most, ttl, absent
        self._turn = 0
        self.close()

    def close(self) -> None:
        """Forget all rows."""
        names = (*self._spec.primary_key, *self._fields)
        self._set(np.zeros(0, _FACTS), [pa.array([], arrow_type(self._spec.field(name))) for name in names])

    def of(self, keys: KeyColumns, read: Callable[[list[KeyValues]], Found]) -> Matches:
        """Return the rows of keys as `Matches.of` does; all rows that are not kept are read by one call."""
        self._turn += 1
        now = time.monotonic()
        hashes = keys.hashes()
        places = self._places.of(hashes)
        places[self._facts["expires"][places] <= now] = -1
        width = len(keys.columns)
        # Different keys may have equal hashes; only the one added last is kept.
        known = keys.equal(self._taken(slice(width), places))
        places[~known] = -1
        self._facts["used"][places[known]] = self._turn
        there = self._facts["there"][places]
        missing = np.flatnonzero(~known)
        if not len(missing):
            return Matches(pa.array(there), self._taken(slice(width, None), places))
        asked = keys.at(missing)
        found = Matches.of(self._spec, self._fields, asked, read)
        there[missing] = found.there.to_numpy(zero_copy_only=False)
        places[missing] = np.arange(self._rows, self._rows + len(missing))
        matches = Matches(pa.array(there), self._taken(slice(width, None), places, found.columns))
        self._add(hashes[missing], asked, found, now + self._ttl)
        size = max(old.nbytes + new.nbytes for old, new in zip(self._old, self._new, strict=True))
        if self._rows > self._most or size > _MOST_BYTES:
            self._forget(now, self._most if size <= _MOST_BYTES else self._rows // 2)
        return matches

    def _set(self, facts: npt.NDArray[np.void], columns: list[pa.Array[Any]]) -> None:
        self._rows = self._begin = len(facts)
        # One more than there are, which stands for the place -1.
        self._facts = np.concatenate([facts, np.zeros(1, _FACTS)])
        self._places = HashedPlaces()
        self._places.add(facts["hash"], np.arange(self._rows))
        self._old = columns
        self._new = [column.slice(0, 0) for column in columns]

    def _add(self, hashes: Hashes, asked: KeyColumns, found: Matches, expires: float) -> None:
        there = found.there.to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(there | asked.whole() if self._absent else there)
        kept = kept[np.unique(hashes[kept], return_index=True)[1]]
        begin, end = self._rows, self._rows + len(kept)
        if end >= len(self._facts):
            self._facts = np.concatenate([self._facts[:begin], np.zeros(2 * end - begin + 1, _FACTS)])
        added = self._facts[begin:end]
        added["hash"], added["expires"], added["used"], added["there"] = hashes[kept], expires, self._turn, there[kept]
        taken = pa.array(kept, pa.int64())
        new = [
            pa.concat_arrays([new, column.take(taken)])
            for new, column in zip(self._new, (*asked.columns, *found.columns), strict=True)
        ]
        self._places.add(hashes[kept], np.arange(begin, end))
        self._rows, self._new = end, new
        if end <= _NEW_ROWS or end - self._begin > max(_NEW_ROWS, self._begin // 4):
            self._old, self._begin = self._columns(), end
            self._new = [column.slice(0, 0) for column in self._old]

    def _columns(self) -> list[pa.Array[Any]]:
        return [pa.concat_arrays(parts) for parts in zip(self._old, self._new, strict=True)]

    def _taken(self, which: slice, places: Places, more: Sequence[pa.Array[Any]] = ()) -> list[pa.Array[Any]]:
        """Return columns of the rows at positions, null for -1; `more` are rows after the kept ones."""
        if places.max(initial=-1) < self._begin:
            wanted = pa.array(places, pa.int64(), mask=places < 0)
            return [column.take(wanted) for column in self._old[which]]
        old = (places >= 0) & (places < self._begin)
        taken = pa.array(places[old], pa.int64())
        # The new rows, after the old rows that are needed.
        among = places - self._begin + len(taken)
        among[old] = np.arange(len(taken))
        wanted = pa.array(among, pa.int64(), mask=places < 0)
        parts = [[one.take(taken) for one in self._old[which]], self._new[which], *([more] if more else [])]
        return [pa.concat_arrays(columns).take(wanted) for columns in zip(*parts, strict=True)]

    def _forget(self, now: float, most: int) -> None:
        facts = self._facts[: self._rows]
        lasts = self._places.of(facts["hash"])
        kept = np.flatnonzero((lasts == np.arange(self._rows)) & (facts["expires"] > now))
        if len(kept) > most:
            order = np.argsort(facts["used"][kept], kind="stable")
            kept = np.sort(kept[order[len(kept) - (most - most // 8) :]])
        taken = pa.array(kept, pa.int64())
        self._set(facts[kept], [column.take(taken) for column in self._columns()])
