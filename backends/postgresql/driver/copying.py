"""`Copying`: COPY in binary format, in both directions, over libpq."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from psycopg import generators, pq
from psycopg.abc import Buffer, PQGen
from psycopg.waiting import Wait

from structable.backends.base.traffic import Tally

from .errors import FAILED, QUERY_CANCELED, BrokenConnectionError, StatementRefusedError

Result = TypeVar("Result")

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_SLICE = 1 << 20
_LONG_ROW = 4 << 10
_COPYING = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT)


class Waiter(Protocol):
    """Psycopg's `Connection.wait`."""

    def __call__(self, gen: PQGen[Result], /) -> Result:
        """Run a generator until it is done."""


class Copying:
    """One COPY on a connection, whose owner holds the lock, and closes the connection if the COPY fails."""

    def __init__(
        self, pg: pq.abc.PGconn, wait: Waiter, failure: Callable[[pq.abc.PGresult], Exception], tally: Tally
    ) -> None:
        self._pg = pg
        self._wait = wait
        self._failure = failure
        self._tally = tally
        self._begun = False

    def take_in(self, text: str, copies: Sequence[Iterable[bytes]]) -> int:
        """Run a COPY FROM STDIN; see `ServerConnection.copy_in`."""
        pg, wait = self._pg, self._wait
        pg.send_query("; ".join([text] * len(copies)).encode())
        wait(generators.send(pg))
        copied: list[int] = []
        failure: Exception | None = None
        for copy in copies:
            chunks = iter(copy)
            chunk: bytes | None = None
            try:
                chunk = next(chunks, None)
            except Exception as error:
                failure = error
            self._tally.round_trips += 1
            self._await_copy(copied)
            self._put(_HEADER)
            while chunk is not None:
                for begin in range(0, len(chunk), _SLICE):
                    self._put(chunk[begin : begin + _SLICE])
                    wait(generators.send(pg))
                try:
                    chunk = next(chunks, None)
                except Exception as error:
                    failure, chunk = error, None
            self._put(_TRAILER)
            while not pg.put_copy_end(None if failure is None else b"the rows could not be produced"):
                wait(generators.send(pg))
            wait(generators.send(pg))
            if failure is not None:
                break
        try:
            self._tally.round_trips += 1
            self._await_copy(copied)
        except StatementRefusedError as error:
            if failure is None or error.state != QUERY_CANCELED:  # the server's answer to an abandoned COPY
                raise
        if failure is not None:
            raise failure
        return sum(copied)

    def begin_out(self, text: str) -> bool:
        """Send a COPY TO STDOUT; return whether rows follow."""
        self._pg.send_query(text.encode())
        self._wait(generators.send(self._pg))
        self._tally.round_trips += 1
        return self._await_copy([])

    def next_rows(self, size: int, most: int) -> tuple[list[Buffer], bool]:
        """Return the next rows, some `size` bytes and at most `most` of them, and whether more may follow."""
        rows, more = self._received(size, most)
        if rows and not self._begun:
            rows[0], self._begun = bytes(rows[0]).removeprefix(_HEADER), True
        if rows and rows[-1] == _TRAILER:
            rows.pop()
        return rows, more

    def _received(self, size: int, most: int) -> tuple[list[Buffer], bool]:
        rows: list[Buffer] = []
        get = self._pg.get_copy_data
        while size > 0 and len(rows) < most:
            length, data = get(1)
            if length > 0:
                # Copying a short row costs less memory than keeping libpq's allocation for it until the batch is made.
                rows.append(bytes(data) if length < _LONG_ROW else data)
                size -= length
            elif length == 0:
                self._wait(_consumed(self._pg))
            else:
                return rows, self._await_copy([])
        return rows, True

    def _put(self, data: bytes) -> None:
        while not self._pg.put_copy_data(data):
            self._wait(generators.send(self._pg))

    def _await_copy(self, copied: list[int]) -> bool:
        """Wait for the server; return True if it accepts or sends rows, False if it has finished.

        Records the row counts of finished runs.
        """
        pg, wait = self._pg, self._wait
        failed: pq.abc.PGresult | None = None
        while (result := wait(generators.fetch(pg))) is not None:
            if result.status in _COPYING:
                return True
            if result.status in FAILED:
                failed = result
            copied.append(result.command_tuples or 0)
        if failed is not None:
            raise self._failure(failed)
        if pg.status != pq.ConnStatus.OK:
            raise BrokenConnectionError("the server closed the connection")
        return False


def _consumed(pg: pq.abc.PGconn) -> PQGen[None]:
    """Wait for more bytes from the server, and consume them."""
    while not (yield Wait.R):
        pass
    pg.consume_input()
