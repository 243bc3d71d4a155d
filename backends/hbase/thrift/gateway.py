"""`Gateway`: HBase, reached through the first of its Thrift gateways that answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

from structable.spi import Traffic

from .connection import GatewayConnection, Wiring
from .errors import ConnectionLostError, ServerError
from .pool import GatewayPool
from .requests import FoundRow, ThriftCall
from .retry import RetryPolicy
from .scanner import FIRST_ROWS, CellScan, FirstPage, first_pages, pages

Result = TypeVar("Result")

FRAME_LIMIT = 2_000_000
"""Bytes of the largest frame; a gateway accepts frames of 2 MiB by default."""


class Gateway:
    """HBase, through its Thrift gateways; threads may share it, a forked process may not use it.

    The first of the addresses that works is used; one that failed is avoided for some seconds. `timeout` is the limit
    in seconds for one reply, for connecting, and for all attempts at a call that may be repeated. A scan holds one of
    the `pool_size` connections while it runs; `pool_timeout` is the limit in seconds of the wait for one. A framed
    request has at most `frame_limit` bytes.
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
        self.timeout = timeout
        wiring = Wiring(transport, protocol, timeout, frame_limit)
        self.pool = GatewayPool(
            addresses,
            lambda address, seconds: GatewayConnection(address, wiring, seconds),
            size=pool_size,
            pool_timeout=pool_timeout,
            timeout=timeout,
        )

    @property
    def closed(self) -> bool:
        return self.pool.closed

    def traffic(self) -> Traffic:
        return self.pool.traffic()

    def close(self) -> None:
        """Close all connections; calls in other threads fail. Idempotent."""
        self.pool.close()

    def call(self, call: ThriftCall[Result], *, retry: bool = True) -> Result:
        """Make one call.

        With `retry`, a repeatable call is repeated, within the time-out, if its answer is lost or the error is
        transient.

        Raises
        ------
        ServerError
            If HBase reports an error.
        ConnectionLostError
            If there was no valid answer: the call may have been executed.
        RequestTooLargeError
            If it exceeds the frame limit.
        StorageUnavailableError
            If all connections were in use for `pool_timeout`, or the gateway is closed.
        """
        return cast("Result", self._attempts([call], retry=retry and call.repeatable)[0])

    def flight(self, calls: Sequence[ThriftCall[object]], *, retry: bool = False) -> list[object]:
        """Pipeline calls over one connection; the gateway executes them in order.

        Returns their results in the same order. All are executed, even after one failed; the error of the first that
        failed is raised at the end. It raises the errors of `call`. With `retry`, all calls are repeated, if all are
        repeatable.
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
        first_rows: int = FIRST_ROWS,
    ) -> Iterator[list[FoundRow]]:
        """Scan the rows from `begin`, included, to `end`, excluded, in pages of at most `page_rows`.

        The scan survives a lost connection or gateway: it continues after the last row, with the same `before`. Without
        `before`, it may see rows at different times; with it, only cells with a smaller timestamp count. An empty
        `begin` or `end` is the table's own. The first page has at most `first_rows`; the next pages, and pages of large
        rows, may have fewer than `page_rows`; no page is empty.
        With `reverse`, the rows of the same range come from the last to the first. `columns` are as for `get_row`, and
        `server_filter` is in HBase's filter language.

        Close the iterator to end it early. Raises the errors of `call`.
        """
        scan = CellScan(table, begin, end, tuple(columns), before, reverse, page_rows, server_filter, first_rows)
        return pages(self.pool, scan)

    def first_pages(self, scans: Sequence[CellScan], rows: int) -> list[FirstPage]:
        """Return the first `rows` rows of each scan, in two round trips for each hundred scans.

        Raises
        ------
        ServerError, ConnectionLostError, StorageUnavailableError
            As `call` does.
        """
        return first_pages(self.pool, scans, rows)

    def _attempts(self, calls: Sequence[ThriftCall[object]], *, retry: bool) -> list[object]:
        policy = RetryPolicy(self.pool)
        while True:
            try:
                with self.pool.connection() as connection:
                    results = connection.exchange(calls)
            except ConnectionLostError as error:
                policy.wait_or_raise(error, retry=retry)
                continue
            failed = next((result for result in results if isinstance(result, ServerError)), None)
            if failed is None:
                return results
            policy.wait_or_raise(failed, retry=retry)
