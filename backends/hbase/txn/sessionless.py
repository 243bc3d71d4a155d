"""Reading without a session: no process keeps old versions for it, so each read checks that none was removed.

A process publishes a timestamp before it removes versions up to it. A snapshot that finds a later timestamp after a
read is a conflict; any other snapshot has lost nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from structable.backends.hbase.layout import GC, REMOVED, Layout
from structable.backends.hbase.thrift.errors import TableDisabledError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import compare_and_put, get_row
from structable.backends.ordered.engine import FeedEntry, Pair
from structable.spi import StorageUnavailableError, TransactionConflictError

from .context import PrefixContext
from .feed_reader import FeedReader
from .reader import CommittedReader, FirstPairs
from .session import ProcessSession
from .snapshot import HBaseSnapshot


def removed_point(gateway: Gateway, layout: Layout) -> int:
    """Return the timestamp before which snapshots may have lost versions."""
    cells = gateway.call(get_row(layout.transactions, GC, [REMOVED]))
    return int(cells[REMOVED][0]) if REMOVED in cells else 0


def publish_removed(gateway: Gateway, layout: Layout, upto: int) -> None:
    """Publish that snapshots before a timestamp may lose versions, before any version is removed.

    After an error nothing may be removed.
    """
    while (previous := removed_point(gateway, layout)) < upto:
        expected = b"%d" % previous if previous else None
        call = compare_and_put(layout.transactions, GC, REMOVED, expected, b"%d" % upto)
        gateway.call(call, retry=False)  # another process may have published less in between


class NoSession(ProcessSession):
    """Takes the place of a session in a read-only storage: it holds nothing, and has no heartbeat."""

    def __init__(self, layout: Layout) -> None:
        self.id = b""
        self.clock = 0
        self._layout = layout
        self.over = False

    def heartbeat(self) -> None: ...

    def publish_recent_writes(self) -> None: ...

    def hold(self, holder: object, timestamp: int) -> None: ...

    def release(self, holder: object) -> None: ...

    def require_alive(self) -> None:
        if self.over:
            raise StorageUnavailableError("the storage was closed; connect again")

    def close(self) -> None:
        self.over = True


class SessionlessSnapshot(HBaseSnapshot):
    """A snapshot that checks after each read that no version it needs was removed."""

    def __init__(
        self, reader: CommittedReader, feeds: FeedReader, session: ProcessSession, context: PrefixContext
    ) -> None:
        super().__init__(reader, feeds, session)
        self._gateway = context.gateway
        self._layout = context.layout

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._unless_disabled():
            values = super().get_many(keys)
        self._require_there()
        return values

    def scan(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        with self._unless_disabled():
            for pairs in self._reader.pages(begin, end, self.timestamp, reverse=reverse):
                self.session.require_alive()
                self._require_there()
                yield from pairs
        self.session.require_alive()
        self._require_there()

    def _firsts(self, intervals: list[tuple[bytes, bytes]], rows: int, reverse: bool) -> list[FirstPairs]:
        with self._unless_disabled():
            found = super()._firsts(intervals, rows, reverse)
        self._require_there()
        return found

    def settled_version(self, feed: bytes) -> int:
        with self._unless_disabled():
            return super().settled_version(feed)

    def entries(self, feed: bytes, since: int, until: int, chunk: int = 0) -> Generator[FeedEntry]:
        with self._unless_disabled():
            yield from super().entries(feed, since, until, chunk)

    @contextmanager
    def _unless_disabled(self) -> Iterator[None]:
        """Look for removed versions if the block finds a disabled table: it is disabled before it is dropped."""
        try:
            yield
        except TableDisabledError:
            self._require_there()
            raise

    def _require_there(self) -> None:
        if removed_point(self._gateway, self._layout) > self.timestamp:
            raise TransactionConflictError(
                "the snapshot is too old: versions that it reads have been removed, which a storage with "
                "read_only=True cannot prevent (see the writers' option late_writes)"
            )
