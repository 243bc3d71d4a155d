"""`SeenRows`: the sizes of rows that a transaction has read or written, so that it need not ask again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from psycopg import pq

from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.row_limit import ABSENT
from structable.spi.values import MAX_ROW_SIZE

__all__ = ["SeenRows"]

_MOST = 4_096


class SeenRows:
    """The maximum sizes of rows, or `ABSENT` for rows that do not exist, by their binary keys.

    A row that is known to exist is changed by a plain UPDATE, which may be deferred to the commit, and so is a row of
    known size. Another transaction's change of the row is a conflict, so that the knowledge stays valid.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[Pieces, int] = {}

    def get(self, key: Pieces) -> int | None:
        """Return the size of a row; None if it is unknown."""
        return self._sizes.get(key)

    def known(self, keys: Iterable[Pieces]) -> dict[Pieces, int]:
        """Return the known sizes among some rows."""
        sizes = self._sizes
        return {key: sizes[key] for key in keys if key in sizes} if sizes else {}

    def put(self, key: Pieces, size: int | None) -> None:
        """Record the size of a row; None if it is no longer known."""
        if size is None:
            self._sizes.pop(key, None)
            return
        if len(self._sizes) >= _MOST:
            self._sizes.clear()
        self._sizes[key] = size

    def put_each(self, sizes: Mapping[Pieces, int | None]) -> None:
        """Record the size of each of some rows, as `put` does."""
        known = {key: size for key, size in sizes.items() if size is not None}
        if len(known) < len(sizes):
            for key in sizes.keys() - known.keys():
                self._sizes.pop(key, None)
        if len(self._sizes) + len(known) > _MOST:
            self._sizes.clear()
        if len(known) <= _MOST:
            self._sizes.update(known)

    def put_all(self, keys: Collection[Pieces], size: int) -> None:
        """Record one maximum size of several rows."""
        if len(self._sizes) + len(keys) > _MOST:
            self._sizes.clear()
        if len(keys) <= _MOST:
            self._sizes.update(dict.fromkeys(keys, size))

    def clear(self) -> None:
        """Forget all rows."""
        self._sizes.clear()

    def note_one(self, key: Pieces, result: pq.abc.PGresult, is_whole: bool) -> None:
        """Record a row whose fields outside the key were read, all or some."""
        if not result.ntuples:
            self.put(key, ABSENT)
        elif is_whole:
            value = result.get_value
            self.put(key, at_most(key + tuple([value(0, place) for place in range(result.nfields)])))
        elif self._sizes.get(key, ABSENT) == ABSENT:
            self.put(key, MAX_ROW_SIZE)

    def note(self, result: pq.abc.PGresult, binding: TableBinding, columns: tuple[str, ...] | None) -> None:
        """Record rows read with some columns, the key's first; None is all columns."""
        count = result.ntuples
        if count > _MOST:
            return
        value, width = result.get_value, len(binding.key_fields)
        places = range(width)
        fixed = binding.width_without(())
        if fixed is None and columns is None:
            fields = range(result.nfields)
            for row in range(count):
                pieces = tuple([value(row, place) for place in fields])
                self.put(pieces[:width], at_most(pieces))
            return
        for row in range(count):
            key = tuple([value(row, place) for place in places])
            # Any column that was not read may be large.
            if self._sizes.get(key, ABSENT) == ABSENT:
                self.put(key, MAX_ROW_SIZE if fixed is None else fixed)
