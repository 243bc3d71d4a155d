"""`PostgreSQLFeed`: the change feed of a table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from structable.backends.base.admin_rules import require_unretired
from structable.backends.base.change_feed import FeedView, RecordedFeed, require_feed
from structable.backends.base.feed_marks import FeedRequest, Mark
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import STALE, PostgreSQLError, StatementRefusedError, translated
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.feeds.gate import StoreFeeds
from structable.backends.postgresql.feeds.layout import FEEDS
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.binding import TableVersion
from structable.backends.postgresql.sql.names import qualified
from structable.spi import Change, StorageUnavailableError, TableNotFoundError

from .change_reading import read_changes
from .entry_queries import FeedEntries
from .feed_source import FeedSource, LostEntriesError, SourceReader, query_call
from .feed_view import PostgreSQLFeedView

Result = TypeVar("Result")

_ATTEMPTS = 5


class PostgreSQLFeed(RecordedFeed):
    """The change feed of a table, looked up again at each call; an expiry ends early once `stopped`."""

    def __init__(
        self,
        pool: ServerPool,
        catalog: Catalog,
        feeds: StoreFeeds,
        table: str,
        *,
        read_only: bool,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(table, read_only=read_only)
        self._pool = pool
        self._catalog = catalog
        self._feeds = feeds
        self._stopped = stopped

    def _ask(self, body: Callable[[FeedView], Result]) -> Result:
        for _ in range(_ATTEMPTS):
            try:
                with self._view() as view:
                    return body(view)
            except LostEntriesError:
                continue  # the feed has ended in between: the next attempt finds the table's present feed
            except PostgreSQLError as error:
                if not isinstance(error, StatementRefusedError) or error.state not in STALE:
                    raise translated(error, f"the change feed of table {self._table!r}") from error
        raise StorageUnavailableError(f"the change feed of table {self._table!r} is being changed; try again")

    @contextmanager
    def _view(self) -> Iterator[FeedView]:
        with self._pool.connection() as connection:
            try:
                version, source, floor = self._found(connection)
                reader = SourceReader(source, lambda: nullcontext(connection))
                yield PostgreSQLFeedView(connection, reader, self._feeds.gate, version.spec, floor, self._stopped)
            finally:
                connection.roll_back()

    def _found(self, connection: ServerConnection) -> tuple[TableVersion, FeedSource, Mark]:
        while True:
            version = self._catalog.find(connection.ask, self._table)
            if version is None:
                self._catalog.forget(self._table)
                raise TableNotFoundError(self._table)
            require_unretired(version.spec)
            require_feed(version.spec)
            number = version.feed
            assert number is not None
            feeds = qualified(self._catalog.schema, FEEDS)
            found = connection.ask(query_call(f"select token, floor, floor_at from {feeds} where feed = {number}"))
            if found:  # the feed has not ended in between
                token, floor, time = found[0]
                source = FeedSource(self._catalog.schema, self._table, number, str(token))
                return version, source, Mark(int(str(floor)), time)

    def _changes(self, request: FeedRequest) -> Iterator[Change]:
        source: FeedSource = pickle.loads(request.state)
        self._feeds.used(self._table)
        entries = FeedEntries(source.schema, source.number, request.spec, request.columns)
        yield from read_changes(SourceReader(source, self._pool.connection), entries, request)
