"""`StagingTable`: the staged runs of write jobs, in a table of their own, in chunks of many pairs.

    h OWNER RUN          x:v   the time when it was begun, in seconds since the epoch
                         x:e   there once the run is whole
    d OWNER RUN NUMBER   x:v   length-prefixed keys and values; the last chunk of a run is "."

The h rows are the list of all runs: a run that is not whole is kept for an hour even if its job has ended, as a living
process may still write chunks, which nothing would find without the h row.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterable, Iterator

from structable.backends.ordered.engine import Pair, RunLostError, StagedRun, successor
from structable.spi import DataCorruptionError

from .layout import FAMILY, VALUE, Layout
from .tables import PrefixTables
from .thrift.errors import TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import FoundRow, delete_columns, get_row, list_tables, put_rows

_PAIR = struct.Struct(">II")
_CHUNK_BYTES = 512 << 10
"""The size of a chunk of several pairs."""
_OWNER_BYTES = 16
_NUMBER_BYTES = 6
_TIMESTAMP = 1
_WHOLE = FAMILY + b":e"
_UNFINISHED_SECONDS = 3600.0
"""Seconds after which the process that was writing a run counts as ended."""


class StagingTable:
    """The staged runs of a prefix."""

    def __init__(self, gateway: Gateway, layout: Layout, tables: PrefixTables) -> None:
        self._gateway = gateway
        self._layout = layout
        self._tables = tables

    def write(self, owner: str, pairs: Iterator[Pair]) -> bytes:
        """Write a run, and return its row prefix, the argument of `read`."""
        table = self._tables.ensure_staging()
        run = bytes.fromhex(owner) + uuid.uuid4().bytes
        self._gateway.call(put_rows(table, {b"h" + run: {VALUE: struct.pack(">d", time.time())}}, _TIMESTAMP))
        number = size = 0
        parts: list[bytes] = []
        for key, value in pairs:
            added = len(key) + len(value)
            if parts and size + added > _CHUNK_BYTES:
                self._put(table, run, number, parts)
                number, size, parts = number + 1, 0, []
            parts += (_PAIR.pack(len(key), len(value)), key, value)
            size += added
        if parts:
            self._put(table, run, number, parts)
            number += 1
        end = {_chunk_row(run, number): {VALUE: b"."}, b"h" + run: {_WHOLE: b"."}}
        self._gateway.call(put_rows(table, end, _TIMESTAMP))
        return run

    def _put(self, table: str, run: bytes, number: int, parts: list[bytes]) -> None:
        self._gateway.call(put_rows(table, {_chunk_row(run, number): {VALUE: b"".join(parts)}}, _TIMESTAMP))

    def read(self, state: bytes) -> Iterator[Pair]:
        """Yield the pairs of a run, in the order written; `RunLostError` if it is not there."""
        table, expected = self._layout.staging, 0
        try:
            while True:
                cells = self._gateway.call(get_row(table, _chunk_row(state, expected), [VALUE]))
                if VALUE not in cells:
                    raise RunLostError("the staged rows are gone")
                chunk = cells[VALUE][0]
                if chunk == b".":
                    return
                yield from _pairs(chunk)
                expected += 1
        except TableMissingError as error:
            raise RunLostError("the staged rows are gone: the staging table was dropped") from error

    def find(self, owner: str) -> list[StagedRun]:
        """Return the runs of an owner, or all for an empty one."""
        begin, found = b"h" + bytes.fromhex(owner), list[StagedRun]()
        for row, cells in self._rows(begin):
            run, (began,) = row[1:], struct.unpack_from(">d", cells[VALUE][0])
            found.append(StagedRun(run[:_OWNER_BYTES].hex(), run, began, _WHOLE in cells))
        return found

    def drop(self, runs: Iterable[StagedRun]) -> None:
        """Remove runs; a repeated call removes the remains of a crash."""
        now = time.time()
        doomed = {run.state for run in runs if run.whole or now - run.time > _UNFINISHED_SECONDS}
        for owner in sorted({run[:_OWNER_BYTES] for run in doomed}):
            chunks = self._rows(b"d" + owner, "KeyOnlyFilter()")
            self._delete(row for row, _ in chunks if row[1:-_NUMBER_BYTES] in doomed)
        self._delete(b"h" + run for run in doomed)

    def _rows(self, begin: bytes, server_filter: str | None = None) -> Iterator[FoundRow]:
        if self._layout.staging not in self._gateway.call(list_tables()):
            return
        for page in self._gateway.pages(
            self._layout.staging, begin, successor(begin), [FAMILY], before=None, server_filter=server_filter
        ):
            yield from page

    def _delete(self, rows: Iterable[bytes]) -> None:
        for call in delete_columns(self._layout.staging, rows, [FAMILY], _TIMESTAMP):
            self._gateway.call(call)


def _chunk_row(run: bytes, number: int) -> bytes:
    return b"d" + run + number.to_bytes(_NUMBER_BYTES)


def _pairs(chunk: bytes) -> Iterator[Pair]:
    at = 0
    while at < len(chunk):
        try:
            key_size, value_size = _PAIR.unpack_from(chunk, at)
        except struct.error as error:
            raise DataCorruptionError(f"a chunk of staged rows is cut off at byte {at}") from error
        at += _PAIR.size
        middle, end = at + key_size, at + key_size + value_size
        if end > len(chunk):
            raise DataCorruptionError(f"a chunk of staged rows is cut off after {len(chunk)} bytes")
        yield chunk[at:middle], chunk[middle:end]
        at = end
