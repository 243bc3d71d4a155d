"""`FeedSource`: a feed as it was found, and the transactions in which its entries are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from psycopg import pq

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    NUMERIC_VALUE_OUT_OF_RANGE,
    STALE,
    PostgreSQLError,
    StatementRefusedError,
    translated,
)
from structable.backends.postgresql.driver.statement import BEGIN_READING, Call, Statement, Values, command
from structable.backends.postgresql.feeds.layout import FEEDS
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.sql.names import qualified
from structable.spi import (
    ChangesLostError,
    FeedPosition,
    TableNotFoundError,
    TransactionConflictError,
    UnsupportedOperationError,
)

Lend = Callable[[], AbstractContextManager[ServerConnection]]

_COMMIT = command("commit")
_ALONE = command("set local max_parallel_workers_per_gather = 0")
"""The command that keeps the order in which an index and a loop find entries."""


class FeedSource(NamedTuple):
    """A feed of a table, by its number and the token of its positions."""

    schema: str
    table: str
    number: int
    token: str


class LostEntriesError(Exception):
    """Entries have expired, or their feed is gone."""

    def __init__(self, floor: int | None) -> None:
        super().__init__(floor)
        self.floor = floor
        """The floor of the feed; None if the feed is gone."""


def query_call(text: str) -> Call:
    """Return the call of a query that is used once."""
    return Call(Statement(text, prepare=False))


def floor_call(source: FeedSource) -> Call:
    """Return the call that returns the floor of a feed and its token."""
    return query_call(f"select floor, token from {qualified(source.schema, FEEDS)} where feed = {source.number}")


class SourceReader:
    """Reads entries of one feed, over connections that it borrows.

    Reads are complete: the entries' snapshot also has the feed's floor, which is raised before entries are deleted.
    """

    def __init__(self, source: FeedSource, lend: Lend) -> None:
        self.source = source
        self._lend = lend
        self._floor = floor_call(source)

    def ask(self, text: str, *, freely: bool = False) -> list[Values]:
        """Return the rows of a query about entries that may have expired."""
        with self._lent(0) as connection:
            settings = connection.plan_freely if freely else _ALONE
            results = connection.pipeline((BEGIN_READING, settings, query_call(text), _COMMIT))
            return connection.rows(results[-2])

    def rows(self, text: str, since: int, *, freely: bool = False) -> list[Values]:
        """Return the rows of a query of entries after a version.

        Raises
        ------
        ChangesLostError
            If some of the entries have expired.
        """
        with self._lent(since) as connection:
            return connection.rows(self._run(connection, text, since, freely))

    def result(self, text: str, since: int) -> pq.abc.PGresult:
        """Return the result of a query as `rows` does."""
        with self._lent(since) as connection:
            return self._run(connection, text, since, False)

    def _run(self, connection: ServerConnection, text: str, since: int, freely: bool) -> pq.abc.PGresult:
        settings = connection.plan_freely if freely else _ALONE
        results = connection.pipeline((BEGIN_READING, self._floor, settings, query_call(text), _COMMIT))
        self._check(connection.rows(results[1]), since)
        return results[-2]

    @contextmanager
    def begun(self, since: int, *, freely: bool) -> Iterator[ServerConnection]:
        """Lend a connection in a transaction that has all entries after a version; raises as `rows` does."""
        with self._lent(since) as connection:
            settings = (connection.plan_freely,) if freely else ()
            results = connection.pipeline((BEGIN_READING, self._floor, *settings))
            self._check(connection.rows(results[1]), since)
            yield connection

    @contextmanager
    def kept(self, text: str, since: int, cursor: str) -> Iterator[ServerConnection]:
        """Lend a connection with a cursor of a query's rows, which the server keeps; no transaction is open."""
        with self._lent(since) as connection:
            declare = query_call(f"declare {cursor} no scroll cursor with hold for {text}")
            results = connection.pipeline((BEGIN_READING, self._floor, connection.plan_freely, declare, _COMMIT))
            try:
                self._check(connection.rows(results[1]), since)
                yield connection
            finally:
                if not connection.closed:
                    connection.pipeline((command(f"close {cursor}"),))

    @contextmanager
    def _lent(self, since: int) -> Iterator[ServerConnection]:
        with self._explained(since), self._lend() as connection:
            try:
                yield connection
            finally:
                connection.roll_back()

    def _check(self, found: Sequence[Values], since: int) -> None:
        floor, token = found[0] if found else (None, None)
        if token != self.source.token:
            raise LostEntriesError(None)
        if int(str(floor)) > since:
            raise LostEntriesError(int(str(floor)))

    @contextmanager
    def _explained(self, since: int) -> Iterator[None]:
        """Turn errors into the contract's."""
        source = self.source
        position = FeedPosition(source.token, since)
        try:
            yield
        except LostEntriesError as error:
            if error.floor is None:
                raise self._gone(position) from None
            earliest = FeedPosition(source.token, error.floor)
            raise ChangesLostError(source.table, position, earliest, "has expired") from None
        except PostgreSQLError as error:
            state = error.state if isinstance(error, StatementRefusedError) else ""
            if state in STALE:
                raise self._gone(position) from error
            if state == NUMERIC_VALUE_OUT_OF_RANGE:
                raise TransactionConflictError(
                    f"table {source.table!r} has wider fields since these changes were asked for; ask again"
                ) from error
            raise translated(error, f"reading the changes of table {source.table!r}") from error

    def _gone(self, position: FeedPosition) -> Exception:
        """Return the error for a feed that is gone."""
        source = self.source
        with self._lend() as connection:
            try:
                version = Catalog(source.schema).find(connection.ask, source.table)
                if version is None:
                    return TableNotFoundError(source.table)
                number = version.feed
                if number is None:
                    return UnsupportedOperationError(f"table {source.table!r} has no change feed any more")
                found = connection.ask(floor_call(source._replace(number=number)))
            except PostgreSQLError as error:
                return translated(error, "reading the catalog")
        floor, token = found[0] if found else (position.version, position.feed)
        earliest = FeedPosition(str(token), int(str(floor)))
        return ChangesLostError(source.table, position, earliest, "belongs to a feed that is gone")
