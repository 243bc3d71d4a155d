"""`RecentWrites`: the recent writes of a process's transactions, listed in one cell for the other processes.

A transaction must find all other writers of its rows. Their intents and versions show them, but each row read back
costs HBase a search in a block. Therefore every transaction puts its process's list, which includes the transaction,
before it reads anything back. A large transaction then reads the lists of all processes, which are the cells of one
row, after its intents were written, and reads back only the listed rows. A transaction that is not listed yet has not
read anything back yet, and will find the intents written by then: of two transactions, at least one sees the other.

A list has hashes of rows; a collision costs one row read back. It omits commits at or below its low watermark, so a
transaction older than the low watermark of any list reads back all its rows.
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
from structable.backends.hbase.thrift.requests import Cells, ThriftCall, get_row, put_rows
from structable.backends.ordered.engine import SPACE_BYTES
from structable.spi import DataCorruptionError

from .intent_set import IntentSet
from .intents import RowId

_MOST_ROWS = 4_096
"""Limit of rows for a transaction that lists them; a larger one lists their spaces."""
_MOST_ENDED = 16
_ALL_BYTES, _LEAST_BYTES, _MOST_BYTES = 64 << 10, 256, 8 << 10
"""Byte budget for ended transactions over all processes' lists, and the smallest and largest share of one process.
Open transactions of a process take at most the first of these; beyond it they list spaces instead of rows."""
_BYTES_OF_A_ROW = 4 << 10
"""The bytes of lists that take as long to read as reading back one row."""
_READ_BACK_ALL = 8
"""The number of transactions that read back all rows without the lists, after one for which the lists were useless."""
_LOW_WATERMARK = struct.Struct(">Q")
_HEAD = struct.Struct(">QHH")


class Digest(NamedTuple):
    """The writes of a transaction: the hashes of its rows, or, without any, all rows of the spaces."""

    spaces: frozenset[bytes]
    rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, intents: IntentSet) -> Digest:
        spaces = frozenset(intents.spaces)
        if intents.rows > _MOST_ROWS:
            return cls(spaces)
        return cls(
            spaces, tuple(row_hash((space, row)) for space, one in intents.spaces.items() for row in one.checked)
        )


def row_hash(row_id: RowId) -> int:
    """Return the number by which the lists of recent writes name a row."""
    space, row = row_id
    return zlib.crc32(row, zlib.crc32(space))


Rows = Mapping[bytes, Mapping[bytes, bytes]]
"""Row to column to value."""

_Written = tuple[int, Iterable[bytes], Iterable[int]]
"""Commit timestamp, spaces and hashes."""


@dataclass(slots=True)
class _Listed:
    """A transaction in a list: its writes, the number of its first list, and its commit timestamp.

    The timestamp is an upper bound if the outcome is unknown, and 0 while the transaction is open.
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
    """The list of a session, shared by all threads of its process."""

    def __init__(self, layout: Layout, session: bytes) -> None:
        self._layout = layout
        self._column = list_column(session)
        self._number = 0
        self._low_watermark = 0
        self._listed: dict[bytes, _Listed] = {}
        self.has_news = False  # whether a transaction has ended since the list was put last
        self._budget = _MOST_BYTES // 4  # adapted to the number of lists when they are read
        self._size = 0
        self._reading_back = 0
        self._lock = Lock()

    def enter(self, txid: bytes, digest: Digest, record: Rows | None = None) -> ThriftCall[None]:
        """Return the call that puts the list with one more transaction; it must be made before anything is read back.

        `record` has further cells for the same call.
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

    def news(self) -> ThriftCall[None] | None:
        """Return the call that puts the list if it has changed since the last put."""
        with self._lock:
            return self._put(_MOST_ENDED) if self.has_news else None

    def last(self) -> ThriftCall[None] | None:
        """Return the call that puts the list when the process ends; None if it was never put."""
        with self._lock:
            return self._put(0) if self._number else None

    def _put(self, most_ended: int, record: Rows = MappingProxyType({})) -> ThriftCall[None]:
        self._trim(most_ended)
        self._number += 1
        self.has_news = False
        content = _LOW_WATERMARK.pack(self._low_watermark) + b"".join(one.raw for one in self._listed.values())
        return put_rows(self._layout.transactions, {**record, RECENT: {self._column: content}}, self._number)

    def _trim(self, most_ended: int) -> None:
        """Remove the commits before the last few transactions, and raise the low watermark to them."""
        ended, size = 0, 0
        for txid, one in reversed(list(self._listed.items())):
            if not one.commit:
                continue
            ended += 1
            size += one.size
            if ended > most_ended or size > self._budget or one.commit <= self._low_watermark:
                self._low_watermark = max(self._low_watermark, one.commit)
                del self._listed[txid]

    def end(self, txid: bytes, commit: int | None) -> None:
        """Record the commit timestamp, or its upper bound; None if the transaction will never commit."""
        with self._lock:
            self.has_news = True
            if commit is None:
                self._listed.pop(txid, None)
            else:
                self._listed[txid].commit = commit

    def reads_back(self, rows: int, few: int) -> bool:
        """Return whether a transaction of `rows` rows should read them all back, instead of reading the lists.

        Reading `few` rows back is as fast as reading the lists of few processes.
        """
        with self._lock:
            self._reading_back -= self._reading_back > 0
            # Let the last known size decay, so that the lists are read again from time to time.
            self._size -= self._size // 16
            return bool(self._reading_back) or rows <= max(few, self._size // _BYTES_OF_A_ROW)

    def suspects(self, txid: bytes, start: int, rows: Collection[RowId], lists: Cells) -> set[RowId]:
        """Return the rows that another transaction may have committed after `start`, or may still commit.

        The transaction wrote its intents to `rows` before the lists of all processes were read, or the other writers of
        `rows` are listed before they draw their commit timestamp.
        """
        with self._lock:
            self._budget = min(max(_ALL_BYTES // max(len(lists), 1), _LEAST_BYTES), _MOST_BYTES)
            self._size = sum(len(raw) for raw, _ in lists.values())
            own = lists.get(self._column)
            # After the row was deleted by hand, HBase hides all puts until it has compacted the table.
            is_hidden = own is None or own[1] < self._listed[txid].number
            low_watermark = self._low_watermark
            listed: list[_Written] = [
                (one.commit, one.spaces, one.rows) for other, one in self._listed.items() if other != txid
            ]
        for column, (raw, _) in lists.items():
            if column != self._column:
                others_mark, others = _decode(raw)
                low_watermark = max(low_watermark, others_mark)
                listed += others
        if low_watermark > start or is_hidden:
            self._reading_back = _READ_BACK_ALL
            return set(rows)
        hashes: dict[int, list[RowId]] = {}
        for row_id in rows:
            hashes.setdefault(row_hash(row_id), []).append(row_id)
        spaces: set[bytes] = set()
        found: set[RowId] = set()
        for commit, whole, listed_rows in listed:
            if not 0 < commit <= start:
                spaces.update(whole)
                for one in hashes.keys() & listed_rows:
                    found.update(hashes[one])
        if spaces:
            found.update(row_id for row_id in rows if row_id[0] in spaces)
            self._reading_back = _READ_BACK_ALL
        return found


def _decode(raw: bytes) -> tuple[int, list[_Written]]:
    """Return the low watermark of a list, and its transactions."""
    found: list[_Written] = []
    try:
        (low_watermark,) = _LOW_WATERMARK.unpack_from(raw)
        at = _LOW_WATERMARK.size
        while at < len(raw):
            commit, count, rows = _HEAD.unpack_from(raw, at)
            at += _HEAD.size
            end = at + SPACE_BYTES * count
            spaces = [raw[begin : begin + SPACE_BYTES] for begin in range(at, end, SPACE_BYTES)]
            found.append((commit, spaces, struct.unpack_from(f">{rows}I", raw, end)))
            at = end + 4 * rows
    except struct.error as error:
        raise DataCorruptionError(f"a list of recent writes is not structable's: {raw[:40]!r}") from error
    return low_watermark, found


def read_lists(layout: Layout) -> ThriftCall[Cells]:
    """Return the call that reads all processes' lists."""
    return get_row(layout.transactions, RECENT, [RECENT_FAMILY])
