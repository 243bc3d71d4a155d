"""Scans: pages of rows from a scanner, reopened after the last row if its connection or gateway is lost.

The first pages of many scans come together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from .connection import GatewayConnection
from .errors import ConnectionLostError, ServerError
from .pool import GatewayPool
from .requests import FoundRow, ThriftCall, close_scanner, next_rows, open_scanner
from .retry import RetryPolicy

FIRST_ROWS = 100
_GROWTH = 4
_PAGE_BYTES = 1 << 20
_BELOW = b"\xff" * 8


@dataclass(frozen=True, slots=True)
class CellScan:
    """The arguments of a scan: see `Gateway.pages`."""

    table: str
    begin: bytes
    end: bytes
    columns: tuple[bytes, ...]
    before: int | None
    reverse: bool
    page_rows: int
    server_filter: str | None
    first_rows: int = FIRST_ROWS

    def opening(self, last: bytes | None) -> ThriftCall[int]:
        """Return the call that opens a scanner, behind the last returned row, if there was one."""
        if self.reverse:
            # HBase includes the first row of a range and excludes the last, in either direction: `trimmed` removes the
            # excess.
            begin = self.end if last is None else last
            end = _below(self.begin)
        else:
            begin = self.begin if last is None else last + b"\0"
            end = self.end
        return open_scanner(
            self.table,
            startRow=begin or None,
            stopRow=end or None,
            timestamp=self.before,
            columns=list(self.columns),
            caching=self.page_rows,
            filterString=self.server_filter.encode() if self.server_filter is not None else None,
            reversed=self.reverse or None,
        )

    def trimmed(self, rows: list[FoundRow], last: bytes | None) -> list[FoundRow]:
        """Return the rows of a page that belong to the scan."""
        if self.reverse and rows:
            end = self.end if last is None else last
            if end and rows[0][0] >= end:
                rows = rows[1:]
            while rows and rows[-1][0] < self.begin:
                rows.pop()
        return rows

    def is_last(self, page: list[FoundRow], asked: int) -> bool:
        """Return whether an untrimmed page of a request for `asked` rows is the last."""
        return len(page) < asked or (self.reverse and page[-1][0] < self.begin)


@dataclass(frozen=True, slots=True)
class FirstPage:
    """The first rows of a scan, and whether there are no more."""

    rows: list[FoundRow]
    ended: bool


def first_pages(pool: GatewayPool, scans: Sequence[CellScan], rows: int) -> list[FirstPage]:
    """Return the first rows of scans; see `Gateway.first_pages`."""
    policy = RetryPolicy(pool)
    while True:
        try:
            with pool.connection() as connection:
                return _first_pages(connection, scans, rows)
        except (ConnectionLostError, ServerError) as error:
            policy.wait_or_raise(error, retry=True)


def _first_pages(connection: GatewayConnection, scans: Sequence[CellScan], rows: int) -> list[FirstPage]:
    opened = connection.exchange([scan.opening(None) for scan in scans])
    scanners = [number for number in opened if isinstance(number, int)]
    asked = [rows + scan.reverse for scan in scans]  # a reverse scan begins with one row too many
    complete = len(scanners) == len(scans)
    calls: list[ThriftCall[object]] = list(map(next_rows, scanners, asked)) if complete else []
    found = connection.exchange([*calls, *map(close_scanner, scanners)])[: len(calls)]
    for result in (*opened, *found):
        if isinstance(result, ServerError):
            result.transient |= result.kind == "IllegalArgument"  # a gateway forgets an idle scanner
            raise result
    first: list[FirstPage] = []
    for scan, number, page in zip(scans, asked, cast("list[list[FoundRow]]", found), strict=True):
        ended = scan.is_last(page, number)
        first.append(FirstPage(scan.trimmed(page, None), ended))
    return first


def _below(key: bytes) -> bytes:
    """Return a smaller key, as close as possible; empty for the smallest."""
    if not key or key.endswith(b"\0"):
        return key[:-1]
    return key[:-1] + bytes([key[-1] - 1]) + _BELOW


class _PageSize:
    """The number of rows to request: few at first, in case the caller needs no more, and never too many bytes."""

    def __init__(self, first: int, most: int) -> None:
        self._most = most
        self.rows = min(first, most)

    def learn(self, rows: int, size: int) -> None:
        fitting = max(1, _PAGE_BYTES * rows // max(size, 1)) if rows else self._most
        self.rows = min(self.rows * _GROWTH, self._most, fitting)


def pages(pool: GatewayPool, scan: CellScan) -> Iterator[list[FoundRow]]:
    """Yield the rows of a scan; see `Gateway.pages`."""
    if scan.end and scan.begin >= scan.end:
        return
    last: bytes | None = None
    size = _PageSize(scan.first_rows, scan.page_rows)
    policy = RetryPolicy(pool)
    while True:
        try:
            with pool.connection() as connection:
                scanning = _Scanner(connection, scan, last, size)
                for page in scanning.pages():
                    policy.reset()
                    last = page[-1][0]
                    yield page
                if scanning.ended:
                    return
        except (ConnectionLostError, ServerError) as error:
            policy.wait_or_raise(error, retry=True)


class _Scanner:
    """One scanner of a gateway, and the connection it is bound to.

    A restarted gateway gives the same numbers to other scanners, so a scanner is never used on another connection.
    """

    def __init__(
        self,
        connection: GatewayConnection,
        scan: CellScan,
        last: bytes | None,
        size: _PageSize,
    ) -> None:
        self._connection = connection
        self._scan = scan
        self._last = last
        self._size = size
        self.ended = False

    def pages(self) -> Generator[list[FoundRow], None, None]:
        """Yield pages until there are no more rows, or the scanner must be reopened."""
        connection = self._connection
        number = connection.exchange([self._scan.opening(self._last)])[0]
        if isinstance(number, ServerError):
            raise number
        scanner = cast("int", number)
        is_open = True
        try:
            received = connection.tally.received
            asked = deque([self._ask(scanner)])
            first = True
            taken = 0
            while True:
                if not first and self._size.rows <= taken:
                    # The gateway reads it while the previous one is received. The two together have no more rows than
                    # a page that the caller has taken before.
                    asked.append(self._ask(scanner))
                page = self._answer()
                taken = len(page)
                self._size.learn(taken, connection.tally.received - received)
                received = connection.tally.received
                self.ended = self._scan.is_last(page, asked.popleft())
                rows = self._scan.trimmed(page, self._last)
                if self.ended:
                    connection.post([close_scanner(scanner)])
                    is_open = False
                elif not first and not asked:
                    # A caller that takes a second page will most likely take a third: the gateway reads it while the
                    # caller decodes this one.
                    asked.append(self._ask(scanner))
                if rows:
                    self._last = rows[-1][0]
                    yield rows
                if self.ended:
                    return
                if first:
                    first = False
                    if connection.stale:
                        return
                    asked.append(self._ask(scanner))
        finally:
            if connection.sound:
                self._finish(scanner if is_open else None)

    def _ask(self, scanner: int) -> int:
        asked = self._size.rows
        self._connection.post([next_rows(scanner, asked)])
        return asked

    def _answer(self) -> list[FoundRow]:
        page = self._connection.wait()
        if isinstance(page, ServerError):
            # A gateway forgets an idle scanner.
            page.transient |= page.kind == "IllegalArgument"
            raise page
        return cast("list[FoundRow]", page)

    def _finish(self, scanner: int | None) -> None:
        # Without the connection there is nothing to close.
        with suppress(ConnectionLostError):
            if scanner is not None:
                self._connection.post([close_scanner(scanner)])
            for _reply in self._connection.take_all():
                pass
