"""`AdminWork`: one admin call on one table, alone among all admin calls on it, with a budget of waiting time.

A lock on a table is tried for a moment at a time. While one statement waits for it, later statements queue behind it,
even readers' statements, so that one long transaction would stop all others.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from structable.backends.postgresql.driver.commit_outcome import was_committed
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    DEADLOCK_DETECTED,
    LOCK_NOT_AVAILABLE,
    BrokenConnectionError,
    PostgreSQLError,
    StatementRefusedError,
    translating,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import BEGIN_WRITING, BIGINT, COMMIT, Call, Statement, command
from structable.backends.postgresql.sql.names import literal, qualified
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError

_log = logging.getLogger("structable.postgresql")

Result = TypeVar("Result")

_BUSY = (LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED)
_ATTEMPT = 0.1  # seconds that other transactions may have to wait behind an attempt to lock a table
_LONGEST_PAUSE = 0.4
_AUTOVACUUM = 0.5  # seconds beyond deadlock_timeout, after which the server ends an autovacuum that is in the way

_TRY = Statement("select pg_try_advisory_lock($1)", (BIGINT,))
_UNLOCK = Statement("select pg_advisory_unlock($1)", (BIGINT,))
_BEGIN = (BEGIN_WRITING, command("set local statement_timeout = 0"))
_NUMBER = Call(Statement("select pg_current_xact_id()::text"))
# Transactions of this database that have a snapshot. Processes without a role are the server's own, which ends them
# if they are in the way; other builds of indexes do not wait for each other.
_OPEN = Statement(
    "select l.virtualxid from pg_locks l join pg_stat_activity a on a.pid = l.pid "
    "where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.granted and a.usesysid is not null "
    "and a.datid = (select oid from pg_database where datname = current_database()) and a.pid <> pg_backend_pid() "
    "and (a.backend_xmin is not null or a.backend_xid is not null) "
    "and a.pid not in (select pid from pg_stat_progress_create_index where pid is not null)"
)
_STILL_OPEN = (
    "select count(*) from pg_locks where locktype = 'virtualxid' and mode = 'ExclusiveLock' and granted "
    "and virtualxid = any(array[{}]::text[])"
)


class TableLock(NamedTuple):
    """A lock on a table."""

    table: str
    """The qualified, quoted name."""
    mode: str
    """The lock mode in SQL, such as "access exclusive"."""


class WaitBudget:
    """The seconds an admin call may still wait for others; its own work does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds
        self._pause = 0.02

    def pause(self) -> None:
        """Pause, longer each time."""
        began = time.monotonic()
        time.sleep(max(0.0, min(random.uniform(self._pause / 2, self._pause), self.left)))
        self.left -= time.monotonic() - began
        self._pause = min(self._pause * 1.6, _LONGEST_PAUSE)


class AdminWork:
    """An admin call at work on a table, in a `with` block of `alone`."""

    def __init__(self, pool: ServerPool, connection: ServerConnection, table: str, budget: WaitBudget) -> None:
        self._pool = pool
        self.connection = connection
        self.table = table
        self.budget = budget
        self._has_settings = False

    def ask(self, call: Call) -> list[tuple[object, ...]]:
        return self.connection.ask(call)

    def change(
        self, body: Callable[[], Result], *, lock: TableLock | None = None, budget: WaitBudget | None = None
    ) -> Result:
        """Run a transaction and commit it; repeat it while a lock blocks it, until the budget is used up.

        `lock` is taken first; `budget` replaces the budget of the call. A used-up budget raises
        `StorageUnavailableError`, with nothing changed; a connection that breaks during the commit raises
        `CommitOutcomeUnknownError` if the server cannot be reached.
        """
        budget = self.budget if budget is None else budget
        seconds = min(_ATTEMPT, budget.left)
        while True:
            began = time.monotonic()
            try:
                return self._attempt(body, lock, seconds)
            except StatementRefusedError as error:
                self.connection.roll_back()
                if error.state not in _BUSY:
                    raise
                budget.left -= time.monotonic() - began
                if budget.left <= 0:
                    raise self.busy(budget) from error
            except BaseException:
                self.connection.roll_back()
                raise
            _log.debug("table %r is in use; %.1f s are left to wait for it", self.table, budget.left)
            seconds = min(self._next_attempt(lock), budget.left)
            budget.pause()

    def _attempt(self, body: Callable[[], Result], lock: TableLock | None, seconds: float) -> Result:
        wait = command(f"set local lock_timeout = {max(1, round(seconds * 1_000))}")
        locks = [] if lock is None else [command(f"lock table {lock.table} in {lock.mode} mode")]
        number = self.connection.pipeline([*_BEGIN, wait, _NUMBER, *locks])[3]
        result = body()
        sent = time.monotonic()
        try:
            self.connection.pipeline((COMMIT,))
        except BrokenConnectionError as error:
            self._pool.release(self.connection)  # it may be the pool's only one
            committed = was_committed(self._pool, int(number.get_value(0, 0) or b""), self.connection, sent)
            if committed is None:
                raise CommitOutcomeUnknownError(
                    f"the connection was lost while table {self.table!r} was changed, and the server could not be "
                    f"asked whether it was: {error}"
                ) from error
            if not committed:
                raise
        return result

    def _next_attempt(self, lock: TableLock | None) -> float:
        """Return how long to try: longer if an autovacuum blocks the lock, so that the server ends it."""
        if lock is None:
            return _ATTEMPT
        table = literal(lock.table)
        running = command(
            "select setting::bigint from pg_settings where name = 'deadlock_timeout' and exists ("
            "select from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.usesysid is null "
            f"and l.granted and l.locktype = 'relation' and l.relation = to_regclass({table}) "
            "and l.database = (select oid from pg_database where datname = current_database()))"
        )
        rows = self.ask(running)
        return int(str(rows[0][0])) / 1_000 + _AUTOVACUUM if rows else _ATTEMPT

    def await_older_transactions(self) -> None:
        """Wait until all transactions of this database that have a snapshot now have ended, while the budget lasts."""
        open_now = [str(row[0]) for row in self.ask(Call(_OPEN))]
        while open_now:
            names = ", ".join(f"'{name}'" for name in open_now)
            if not self.ask(command(_STILL_OPEN.format(names)))[0][0]:
                return
            if self.budget.left <= 0:
                raise self.busy(self.budget)
            self.budget.pause()

    def outside(self, text: str) -> bool:
        """Run a command that cannot run in a transaction; the connection is closed afterwards.

        Returns False if the server ended the command because of a deadlock with another transaction: the command may be
        repeated once its remains are removed. The caller must remove them as well if the budget is used up, which
        raises `StorageUnavailableError`.
        """
        milliseconds = max(100, round(self.budget.left * 1_000))
        self._has_settings = True
        self.connection.pipeline([command("set statement_timeout = 0"), command(f"set lock_timeout = {milliseconds}")])
        began = time.monotonic()
        try:
            self.connection.run(command(text))
        except StatementRefusedError as error:
            if error.state not in _BUSY:
                raise
            self.budget.left -= time.monotonic() - began
            if error.state == DEADLOCK_DETECTED and self.budget.left > 0:
                return False
            raise self.busy(self.budget) from error
        return True

    def lock(self, key: bytes) -> bool:
        """Try to take an advisory lock for the session, and return whether it has it."""
        # An interruption must not leave the lock to the next user of the connection.
        self.connection.is_altered = True
        if self.ask(Call(_TRY, (key,)))[0][0]:
            return True
        self.connection.is_altered = False
        return False

    def unlock(self, key: bytes) -> None:
        if not self.connection.closed:  # otherwise the lock ended with the connection
            with suppress(PostgreSQLError):  # the pool closes a connection that keeps the lock
                self.connection.run(Call(_UNLOCK, (key,)))
                self.connection.is_altered = self._has_settings

    def busy(self, budget: WaitBudget) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"table {self.table!r} is in use by open transactions; waited {budget.seconds:g} s (ddl_timeout), and "
            "nothing was changed"
        )


@contextmanager
def alone(pool: ServerPool, schema: str, table: str, seconds: float) -> Iterator[AdminWork]:
    """Work on a table, its name in any case, while no other admin call of any process does; waits up to `seconds`."""
    name = qualified(schema, table.lower())
    key = hashlib.blake2b(f"structable {name}".encode(), digest_size=8).digest()
    budget = WaitBudget(seconds)
    with pool.connection() as connection, translating(f"changing table {table!r}"):
        work = AdminWork(pool, connection, table, budget)
        # Polled: a waiting statement has a snapshot, which would in turn block the build of an index.
        while not work.lock(key):
            if budget.left <= 0:
                raise StorageUnavailableError(
                    f"another admin call is changing table {table!r}; waited {seconds:g} s (ddl_timeout), and "
                    "nothing was changed"
                )
            budget.pause()
        try:
            yield work
        finally:
            work.unlock(key)
