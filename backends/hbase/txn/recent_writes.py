"""`RecentWrites`: what the transactions of a process write, listed for the other processes in one cell.

A transaction has to find whoever writes a row that it writes. Their intents and versions tell, but each row that is
read back costs HBase a search in a block. Therefore every transaction puts its process's list, with itself in it,
before it reads anything back; and a large one reads the lists of all processes, which are the cells of one row, after
its intents were placed, and reads back only the rows that it finds there. Whoever is not listed yet has not read
anything back yet either, and will find the intents that are placed by then: of two, at least one sees the other.

A list has the hashes of rows, so that a row may be found there by chance, which costs a look at it. It leaves out what
was committed at its floor or below, so that a transaction that is older than the floor of any list reads back all.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from structable.backends.hbase.layout import RECENT, RECENT_FAMILY, Layout, list_column
from structable.backends.hbase.thrift.requests import Call, Cells, get_row, put_rows
from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi.errors import DataCorruptionError

from .conflicts import Place
from .write_set import Changes

__all__ = ["Digest", "RecentWrites", "read_lists"]

_MOST_ROWS = 4_096
"""Of a transaction that lists its rows; a larger one lists the spaces that they are in."""
_MOST_ENDED = 16
_ALL_BYTES, _LEAST_BYTES, _MOST_BYTES = 64 << 10, 256, 8 << 10
"""Of what has ended, in all processes' lists together, and the bounds of what one of them takes of it. A process has
about as many of what is open: if more would be, transactions list the spaces that their rows are in."""
_BYTES_OF_A_ROW = 4 << 10
"""Of lists: as many are read in the time that it takes to read a row back."""
_VAIN = 8
"""Transactions that read all rows back at once after one that found that the lists were of no use."""
_FLOOR = struct.Struct(">Q")
_HEAD = struct.Struct(">QHH")


class Digest(NamedTuple):
    """What a transaction writes: rows with some hashes of some spaces; without any hash, all rows of the spaces."""

    spaces: frozenset[bytes]
    rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, changes: Changes) -> Digest:
        """Return that of a write set: of the rows that conflict with other transactions' writes."""
        spaces = frozenset(changes.spaces)
        if changes.rows > _MOST_ROWS:
            return cls(spaces)
        return cls(spaces, tuple(_hash((space, row)) for space, one in changes.spaces.items() for row in one.checked))


def _hash(place: Place) -> int:
    space, row = place
    return zlib.crc32(row, zlib.crc32(space))


Rows = Mapping[bytes, Mapping[bytes, bytes]]
"""Row to column to value."""

_Written = tuple[int, Iterable[bytes], Iterable[int]]
"""Commit timestamp, spaces and hashes."""


@dataclass(slots=True)
class _Listed:
    """A transaction in a list: what it writes, the number of the first list that it is in, and when it ended.

    That is the timestamp that it was committed at, or can have been at most; 0 if it has not ended.
    """

    spaces: frozenset[bytes]
    rows: tuple[int, ...]
    number: int
    commit: int = 0
    _tail: bytes = field(init=False)

    def __post_init__(self) -> None:
        names = b"".join(self.spaces)
        counts = len(self.spaces), len(self.rows)
        self._tail = struct.pack(f">HH{len(names)}s{len(self.rows)}I", *counts, names, *self.rows)

    @property
    def raw(self) -> bytes:
        return self.commit.to_bytes(8) + self._tail

    @property
    def size(self) -> int:
        return 8 + len(self._tail)


class RecentWrites:
    """The list of a session, which all threads of its process share.

    Parameters
    ----------
    layout : Layout
        The names.
    session : bytes
        The session.
    """

    def __init__(self, layout: Layout, session: bytes) -> None:
        self._layout = layout
        self._column = list_column(session)
        self._number = 0
        self._floor = 0
        self._listed: dict[bytes, _Listed] = {}
        self.has_news = False
        """Whether something in it has ended since it was put last."""
        self._budget = _MOST_BYTES // 4  # how many others there are is seen in their lists
        self._size = 0
        self._vain = 0
        self._lock = Lock()

    def enter(self, txid: bytes, digest: Digest, record: Rows | None = None) -> Call[None]:
        """Return the call that puts the list with one more transaction, which must be made before anything is read.

        Parameters
        ----------
        record : Rows, optional
            To be put by the same call.
        """
        spaces, rows = digest
        with self._lock:
            still_open = sum(one.size for one in self._listed.values() if not one.commit)
            if not rows or still_open + 4 * len(rows) > _ALL_BYTES:
                one = _Listed(spaces, (), self._number + 1)
            else:
                one = _Listed(frozenset(), rows, self._number + 1)
            self._listed[txid] = one
            return self._put(_MOST_ENDED, record or {})

    def news(self) -> Call[None] | None:
        """Return the call that puts the list if it has news."""
        with self._lock:
            return self._put(_MOST_ENDED) if self.has_news else None

    def last(self) -> Call[None] | None:
        """Return the call that puts what is left of the list when the process ends; None if there never was one."""
        with self._lock:
            return self._put(0) if self._number else None

    def _put(self, most_ended: int, record: Rows = MappingProxyType({})) -> Call[None]:
        self._trim(most_ended)
        self._number += 1
        self.has_news = False
        content = _FLOOR.pack(self._floor) + b"".join(one.raw for one in self._listed.values())
        return put_rows(self._layout.transactions, {**record, RECENT: {self._column: content}}, self._number)

    def _trim(self, most_ended: int) -> None:
        """Take out what was committed before the last few transactions, and raise the floor to it."""
        ended, size = 0, 0
        for txid, one in reversed(list(self._listed.items())):
            if not one.commit:
                continue
            ended += 1
            size += one.size
            if ended > most_ended or size > self._budget or one.commit <= self._floor:
                self._floor = max(self._floor, one.commit)
                del self._listed[txid]

    def end(self, txid: bytes, commit: int | None) -> None:
        """Note what a transaction was committed at, or can have been at most; None if it never was and will be."""
        with self._lock:
            self.has_news = True
            if commit is None:
                self._listed.pop(txid, None)
            else:
                self._listed[txid].commit = commit

    def reads_back(self, rows: int, few: int) -> bool:
        """Tell whether a transaction does better to read all its rows back than to read the lists.

        Parameters
        ----------
        rows : int
            How many it has.
        few : int
            As many are read back as fast as the lists of few processes.
        """
        with self._lock:
            self._vain -= self._vain > 0
            # What was seen of the lists is some time ago: they are looked at again now and then.
            self._size -= self._size // 16
            return bool(self._vain) or rows <= max(few, self._size // _BYTES_OF_A_ROW)

    def suspects(self, txid: bytes, start: int, places: Collection[Place], lists: Cells) -> set[Place]:
        """Return the rows that another transaction may have committed after `start`, or may be about to.

        Parameters
        ----------
        txid, start : bytes and int
            The transaction, and the timestamp of its snapshot.
        places : collection of Place
            Some of the rows that it writes, whose intents were placed before the lists were read; or others, if their
            writers commit at a timestamp that they draw after they were listed.
        lists : Cells
            All processes' lists, as they were read.

        Raises
        ------
        DataCorruptionError
            If they are none.
        """
        with self._lock:
            self._budget = min(max(_ALL_BYTES // max(len(lists), 1), _LEAST_BYTES), _MOST_BYTES)
            self._size = sum(len(raw) for raw, _ in lists.values())
            own = lists.get(self._column)
            # Where the row was deleted by hand, HBase hides what is put, until it has compacted the table.
            is_hidden = own is None or own[1] < self._listed[txid].number
            floor = self._floor
            listed: list[_Written] = [
                (one.commit, one.spaces, one.rows) for other, one in self._listed.items() if other != txid
            ]
        for column, (raw, _) in lists.items():
            if column != self._column:
                others_floor, others = _decode(raw)
                floor = max(floor, others_floor)
                listed += others
        if floor > start or is_hidden:
            self._vain = _VAIN
            return set(places)
        hashes: dict[int, list[Place]] = {}
        for place in places:
            hashes.setdefault(_hash(place), []).append(place)
        spaces: set[bytes] = set()
        found: set[Place] = set()
        for commit, whole, rows in listed:
            if not 0 < commit <= start:
                spaces.update(whole)
                for one in hashes.keys() & rows:
                    found.update(hashes[one])
        if spaces:
            found.update(place for place in places if place[0] in spaces)
            self._vain = _VAIN
        return found


def _decode(raw: bytes) -> tuple[int, list[_Written]]:
    """Return the floor of a list, and what is in it."""
    found: list[_Written] = []
    try:
        (floor,) = _FLOOR.unpack_from(raw)
        at = _FLOOR.size
        while at < len(raw):
            commit, count, rows = _HEAD.unpack_from(raw, at)
            at += _HEAD.size
            end = at + SPACE_BYTES * count
            spaces = [raw[begin : begin + SPACE_BYTES] for begin in range(at, end, SPACE_BYTES)]
            found.append((commit, spaces, struct.unpack_from(f">{rows}I", raw, end)))
            at = end + 4 * rows
    except struct.error as error:
        raise DataCorruptionError(f"a list of recent writes is not structable's: {raw[:40]!r}") from error
    return floor, found


def read_lists(layout: Layout) -> Call[Cells]:
    """Return the call that reads all processes' lists."""
    return get_row(layout.transactions, RECENT, [RECENT_FAMILY])
