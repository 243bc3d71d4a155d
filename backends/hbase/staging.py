"""`Staging`: the staged runs of write jobs, in a table of their own, in chunks of many pairs.

    h JOB RUN          x:v   the time when it was begun, in seconds since the epoch, and the job's id
    d JOB RUN NUMBER   x:v   length-prefixed keys and values; an empty chunk ends the run

JOB is a hash of the job's id, which its h rows hold.
"""

from __future__ import annotations

import hashlib
import struct
import time
import uuid
from collections.abc import Iterator

from structable.backends.ordered.engine import Pair, successor
from structable.spi.errors import DataCorruptionError, StorageUnavailableError

from .layout import FAMILY, VALUE, Layout
from .tables import Tables
from .thrift.errors import TableMissingError
from .thrift.gateway import Gateway
from .thrift.requests import get_row, list_tables, put_rows, put_then_delete

__all__ = ["Staging"]

_PAIR = struct.Struct(">II")
_CHUNK_BYTES = 512 << 10
"""Of a chunk of several pairs."""
_NUMBER_BYTES = 6
_TIMESTAMP = 1


class Staging:
    """The staged runs of a prefix."""

    def __init__(self, gateway: Gateway, layout: Layout, tables: Tables) -> None:
        self._gateway = gateway
        self._layout = layout
        self._tables = tables

    def write(self, job_id: str, pairs: Iterator[Pair]) -> bytes:
        """Write a run, and return its row prefix, the argument of `read`."""
        table = self._tables.ensure_staging()
        run = _hashed(job_id) + uuid.uuid4().bytes
        about = struct.pack(">d", time.time()) + job_id.encode()
        self._gateway.call(put_rows(table, {b"h" + run: {VALUE: about}}, _TIMESTAMP))
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
        self._put(table, run, number, [b"."])
        return run

    def _put(self, table: str, run: bytes, number: int, parts: list[bytes]) -> None:
        row = b"d" + run + number.to_bytes(_NUMBER_BYTES)
        self._gateway.call(put_rows(table, {row: {VALUE: b"".join(parts)}}, _TIMESTAMP))

    def read(self, state: bytes) -> Iterator[Pair]:
        """Yield the pairs of a run, in the order written; `StorageUnavailableError` if it is not there."""
        table, expected = self._layout.staging, 0
        try:
            while True:
                row = b"d" + state + expected.to_bytes(_NUMBER_BYTES)
                cells = self._gateway.call(get_row(table, row, [VALUE]))
                if VALUE not in cells:
                    raise StorageUnavailableError("the staged rows are gone: their job has ended")
                chunk = cells[VALUE][0]
                if chunk == b".":
                    return
                yield from _pairs(chunk)
                expected += 1
        except TableMissingError as error:
            raise StorageUnavailableError("the staged rows are gone: the staging table was dropped") from error

    def drop(self, job_id: str) -> None:
        """Remove all runs of a job; a repeated call removes the remains of a crash."""
        head = _hashed(job_id)
        if self._layout.staging not in self._gateway.call(list_tables()):
            return
        for kind in (b"d", b"h"):
            begin = kind + head
            for page in self._gateway.pages(
                self._layout.staging,
                begin,
                successor(begin),
                [FAMILY],
                before=None,
                page_rows=100,
                server_filter="KeyOnlyFilter()",
            ):
                doomed = {row: [FAMILY] for row, _ in page}
                self._gateway.call(put_then_delete(self._layout.staging, {}, doomed, _TIMESTAMP))

    def jobs(self) -> dict[str, float]:
        """Return the ids of jobs that have runs, with the time of the newest run."""
        newest: dict[str, float] = {}
        if self._layout.staging not in self._gateway.call(list_tables()):
            return newest
        for page in self._gateway.pages(self._layout.staging, b"h", b"i", [FAMILY], before=None, page_rows=1_000):
            for _, cells in page:
                raw = cells[VALUE][0]
                job_id, (at,) = raw[8:].decode(), struct.unpack_from(">d", raw)
                newest[job_id] = max(at, newest.get(job_id, at))
        return newest


def _hashed(job_id: str) -> bytes:
    return hashlib.sha256(job_id.encode()).digest()[:16]


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
