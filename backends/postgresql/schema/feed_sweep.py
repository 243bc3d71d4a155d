"""`FeedSweeper`: drops the remains of ended feeds."""

from __future__ import annotations

import logging
import re

from structable.backends.base.background import NotifiedThread
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    DEADLOCK_DETECTED,
    INTERNAL_ERROR,
    LOCK_NOT_AVAILABLE,
    UNDEFINED_FUNCTION,
    UNDEFINED_TABLE,
    PostgreSQLError,
    StatementRefusedError,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.feeds.feed_objects import feed_removal
from structable.backends.postgresql.feeds.layout import COMMITS, FEEDS, MARKS
from structable.backends.postgresql.sql.names import literal, qualified, quoted
from structable.spi import StructableError

_log = logging.getLogger("structable.postgresql")

_TABLE = re.compile(r"_feed_([0-9a-f]+)\Z")
_ROWS = 10_000
_PAUSE = 0.2
_TRIES = 50
_LOCK_TIMEOUT = 100
# In use, or just dropped by another process.
_LATER = frozenset({LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED, UNDEFINED_TABLE, UNDEFINED_FUNCTION, INTERNAL_ERROR})


class FeedSweeper:
    """Drops the data of ended feeds in a thread that lives while there is any.

    Tables that are in use for long are left to the next sweeper.
    """

    def __init__(self, pool: ServerPool, schema: str) -> None:
        self._pool = pool
        self._schema = schema
        self._background = NotifiedThread("structable-feeds", self._work)

    def notify(self) -> None:
        """Announce that a feed has ended."""
        self._background.notify()

    def stop(self) -> None:
        """Stop after the current step."""
        self._background.stop()

    def _work(self) -> None:
        try:
            for _ in range(_TRIES):
                if self._sweep() or self._background.stopping.wait(_PAUSE):
                    break
        except (PostgreSQLError, StructableError) as error:
            if not self._background.stopping.is_set():
                _log.warning("dropping ended change feeds failed and will be repeated: %s", error)
        except Exception:
            _log.exception("dropping ended change feeds failed unexpectedly and will be repeated")

    def _sweep(self) -> bool:
        """Drop all remains that are not in use; return whether that was all."""
        with self._pool.connection() as connection:
            whole = True
            for number in self._ended(connection):
                try:
                    whole = self._drop(connection, number) and whole
                finally:
                    connection.roll_back()
            return whole

    def _ended(self, connection: ServerConnection) -> list[int]:
        # Read the tables first: the row of a feed that has just begun is then seen below.
        where = f"relnamespace = {literal(quoted(self._schema))}::regnamespace and relkind = 'r'"
        tables = connection.ask(command(f"select relname::text from pg_class where {where} and relname ~ '^_feed_'"))
        found = [int(match[1], 16) for (name,) in tables if (match := _TABLE.match(str(name)))]
        if not found:
            return []
        alive = {row[0] for row in connection.ask(command(f"select feed from {qualified(self._schema, FEEDS)}"))}
        return [number for number in found if number not in alive]

    def _drop(self, connection: ServerConnection, number: int) -> bool:
        commits, marks = qualified(self._schema, COMMITS), qualified(self._schema, MARKS)
        # Keeps the newest version of the store known.
        some = (
            f"select ctid from {commits} where feed = {number} and version < (select max(version) from {commits}) "
            f"limit {_ROWS}"
        )
        delete = command(f"delete from {commits} where ctid = any(array({some}))")
        try:
            while connection.run(delete).command_tuples == _ROWS:
                if self._background.stopping.is_set():
                    return False
            connection.pipeline(
                (
                    command("begin"),
                    command(f"set local lock_timeout = {_LOCK_TIMEOUT}"),
                    command(f"delete from {marks} where feed = {number}"),
                    *map(command, feed_removal(self._schema, number)),
                    command("commit"),
                )
            )
        except StatementRefusedError as error:
            if error.state not in _LATER:
                raise
            _log.info("the ended change feed %x is dropped later: %s", number, error.message)
            return False
        _log.info("dropped the data of the ended change feed %x of schema %r", number, self._schema)
        return True
