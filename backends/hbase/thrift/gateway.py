"""`Gateway`: the way to HBase, by whichever of its Thrift gateways answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from .connection import Connection, Wiring
from .errors import ConnectionLostError, ServerError
from .pool import ConnectionPool
from .requests import Call, FoundRow
from .retry import Attempts
from .scanner import Scan, pages

__all__ = ["Gateway"]

Result = TypeVar("Result")

FRAME_LIMIT = 2_000_000
"""Bytes: a gateway takes frames of 2 MiB if it is not told otherwise."""


class Gateway:
    """HBase, through its Thrift gateways; threads may share it, a forked process may not use it.

    Parameters
    ----------
    addresses : sequence of tuple
        Hosts and ports: the first that is well is used, one that failed is avoided for some seconds.
    transport : str
        "buffered" or "framed", as the gateways have it.
    protocol : str
        "binary" or "compact".
    timeout : float
        Seconds for one reply, for connecting, and for all attempts at a call that may be repeated.
    pool_size : int
        How many connections may be open at once: a scan has one for as long as it runs.
    pool_timeout : float
        Seconds to wait for one.
    frame_limit : int
        Bytes that a framed request may have.

    Attributes
    ----------
    round_trips : int
        How often a thread waited for replies so far.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        *,
        transport: str = "buffered",
        protocol: str = "binary",
        timeout: float = 30.0,
        pool_size: int = 40,
        pool_timeout: float = 30.0,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        self.round_trips = 0
        self._timeout = timeout
        self._reached = False
        wiring = Wiring(transport, protocol, timeout, frame_limit)
        self._pool = ConnectionPool(
            addresses,
            lambda address, seconds: Connection(address, wiring, seconds),
            size=pool_size,
            pool_timeout=pool_timeout,
            timeout=timeout,
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or this process was forked from the one that connected."""
        return self._pool.closed

    def close(self) -> None:
        """Close all connections; what runs in other threads fails. Idempotent."""
        self._pool.close()

    def call(self, call: Call[Result], *, retry: bool = True) -> Result:
        """Make one call.

        Parameters
        ----------
        retry : bool
            Whether a call that may be repeated is, within the time-out, when its answer is lost or HBase says that it
            may succeed soon.

        Raises
        ------
        ServerError
            If HBase could not.
        ConnectionLostError
            If there was no valid answer: it may have been done.
        RequestTooLargeError
            If it does not fit a frame.
        StorageUnavailableError
            If all connections are in use for too long, or the gateway is closed.
        """
        return cast("Result", self._attempts([call], retry=retry and call.repeatable)[0])

    def flight(self, calls: Sequence[Call[object]], *, retry: bool = False) -> list[object]:
        """Make calls on one connection, which are done in this order, without waiting for each one's answer.

        All are made, also after one that failed; the error of the first that failed is raised at the end.

        Parameters
        ----------
        retry : bool
            Whether all of them are made again, if they may be, for the reasons that `call` has.

        Returns
        -------
        list of object
            Their results in the same order.

        Raises
        ------
        ServerError, ConnectionLostError, RequestTooLargeError, StorageUnavailableError
            As `call` does; the first three have in `results` what the calls before gave.
        """
        if not calls:
            return []
        return self._attempts(calls, retry=retry and all(call.repeatable for call in calls))

    def pages(
        self,
        table: str,
        begin: bytes,
        end: bytes,
        columns: Sequence[bytes],
        *,
        before: int | None,
        reverse: bool = False,
        page_rows: int = 1000,
        server_filter: str | None = None,
    ) -> Iterator[list[FoundRow]]:
        """Scan the rows from `begin`, included, to `end`, excluded, in pages of at most `page_rows`.

        The scan survives a lost connection or gateway: it goes on after the last row, with the same `before`. Without
        `before`, it may see rows at different times. Close the iterator to end it early.

        Parameters
        ----------
        begin, end : bytes
            Empty is the table's own end.
        columns : sequence of bytes
            b"family" or b"family:qualifier".
        before : int or None
            Only cells with a smaller timestamp count.
        reverse : bool
            Whether the rows come from the last to the first of the same range.
        page_rows : int
            Of how many rows a page has at most; the first pages are smaller, as are those of large rows.
        server_filter : str, optional
            A filter in HBase's filter language.

        Yields
        ------
        list of tuple
            At least one row's key and cells.

        Raises
        ------
        ServerError, ConnectionLostError, StorageUnavailableError
            As `call` does.
        """
        return pages(self, Scan(table, begin, end, tuple(columns), before, reverse, page_rows, server_filter))

    def _attempts(self, calls: Sequence[Call[object]], *, retry: bool) -> list[object]:
        attempts = Attempts(self)
        while True:
            try:
                with self.connection() as connection:
                    results = connection.exchange(calls)
            except ConnectionLostError as error:
                attempts.failed(error, retry=retry)
                continue
            failed = next((result for result in results if isinstance(result, ServerError)), None)
            if failed is None:
                return results
            failed.results = results
            attempts.failed(failed, retry=retry)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection for the `with` block; one that is lost there makes its gateway be avoided for a while."""
        connection = self._pool.acquire()
        waited = connection.waits
        try:
            yield connection
        except ConnectionLostError:
            self._pool.avoid(connection.address)
            raise
        else:
            self._pool.trust(connection.address)
        finally:
            self._reached |= connection.answered
            self.round_trips += connection.waits - waited
            self._pool.release(connection)

    @property
    def timeout(self) -> float:
        """Seconds for one reply, and for all attempts at what may be repeated."""
        return self._timeout

    @property
    def untried(self) -> bool:
        """Whether there is a gateway that has not failed, as far as is known."""
        return not self.closed and self._pool.untried

    @property
    def reached(self) -> bool:
        """Whether a gateway ever gave a valid answer."""
        return self._reached
