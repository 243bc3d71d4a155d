"""`VersionGate`: versions that are stable, and snapshots that equal a version exactly.

A commit that a feed records locks the gate, an empty table, in ROW EXCLUSIVE mode, then draws its version, and keeps
the lock until its end, so that the holders are the commits whose version may become visible after a higher one.

A version is stable once every commit has ended that held the gate when it was already visible: that takes no lock. A
snapshot is exactly a version if no commit held the gate between the two, which is tried first, or if it was taken
behind the closed gate: LOCK takes no snapshot, the next statement does, and the rollback to a savepoint opens the gate
and keeps the snapshot. Closing the gate waits for its holders, and commits wait behind it: for the time limit of the
lock at most.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from psycopg import pq

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    INSUFFICIENT_PRIVILEGE,
    LOCK_NOT_AVAILABLE,
    StatementRefusedError,
)
from structable.backends.postgresql.driver.statement import BIGINT, Call, Statement, command
from structable.backends.postgresql.sql.names import literal, qualified
from structable.spi import StorageUnavailableError, UnsupportedOperationError

from .layout import COMMITS, GATE, VERSIONS

_CLOSED_MILLISECONDS = 50
_PATIENCE = 10.0
"""Seconds after which the wait for a snapshot that is exactly a version is given up."""
_SHORT_PATIENCE = 0.5
"""Seconds after which a version that is already known serves as the newest."""
_FIRST_PAUSE, _LONGEST_PAUSE, _PAUSE_GROWTH = 0.01, 0.4, 1.6
_FIRST_LOOK, _LONGEST_LOOK = 0.001, 0.05

_BEGIN_LOOK = Call(Statement("begin isolation level read committed read only"))
_END_LOOK = Call(Statement("commit"))
_SAVEPOINT = command("savepoint _structable")
_OPEN = (command("rollback to savepoint _structable"), command("release savepoint _structable"))
_LIMIT = command(f"set local lock_timeout = {_CLOSED_MILLISECONDS}")


class Exact(NamedTuple):
    """A transaction whose snapshot is exactly a version."""

    version: int | None
    """The version; None on a server in recovery, where no version is known to be stable."""
    results: list[pq.abc.PGresult]
    """The results of the statements run first in the snapshot."""


def require_primary(version: int | None, what: str) -> int:
    """Return a version, or raise UnsupportedOperationError if it is None, on a server in recovery."""
    if version is None:
        raise UnsupportedOperationError(
            f"{what}: the server is a standby, which cannot tell which versions are stable; ask the primary"
        )
    return version


class VersionGate:
    """The gate of a schema. Threads may share it.

    `aside` lends connections that do not wait for a transaction of the borrower's.
    """

    def __init__(self, schema: str, aside: Callable[[], AbstractContextManager[ServerConnection]]) -> None:
        gate = qualified(schema, GATE)
        self._schema = schema
        self._aside = aside
        committed = f"select coalesce(max(version), 0), pg_is_in_recovery() from {qualified(schema, COMMITS)}"
        self._committed = Call(Statement(committed))
        self._committed_below = Statement(f"{committed} where version <= $1", (BIGINT,))
        self._drawn = Call(Statement(f"select last_value, pg_is_in_recovery() from {qualified(schema, VERSIONS)}"))
        held = (
            f"where l.locktype = 'relation' and l.relation = {literal(gate)}::regclass and "
            "l.database = (select oid from pg_database where datname = current_database()) and l.granted "
            "and l.mode = 'RowExclusiveLock'"
        )
        self._holders = Call(Statement(f"select l.virtualtransaction from pg_locks as l {held}", prepare=False))
        self._described = Call(
            Statement(
                "select coalesce('the prepared transaction ' || quote_literal(p.gid), 'the server process ' || l.pid "
                "|| ' of ' || a.application_name || coalesce(', waiting for ' || a.wait_event, '')) "
                "from pg_locks as l left join pg_stat_activity as a on a.pid = l.pid left join pg_locks as x "
                "on l.pid is null and x.locktype = 'transactionid' and x.virtualtransaction = l.virtualtransaction "
                f"left join pg_prepared_xacts as p on p.transaction = x.transactionid {held}",
                prepare=False,
            )
        )
        self._close = command(f"lock table {gate} in share mode")
        self._lock = threading.Lock()
        self._known = 0
        self._known_since = 0.0

    def newest(self, connection: ServerConnection, floor: int) -> tuple[int, bool]:
        """Return the newest stable version of a store and True, or the newest version that is known so far and False.

        Raises
        ------
        UnsupportedOperationError
            On a server in recovery.
        """
        found = self._watched(connection, _SHORT_PATIENCE)
        return (max(self._known, floor), False) if found is None else (found, True)

    def reach(self, connection: ServerConnection, version: int) -> int:
        """Return the newest stable version, having waited longer for it.

        Raises
        ------
        StorageUnavailableError
            If a commit does not end; the message names it.
        """
        found = self._watched(connection, _PATIENCE)
        if found is None:
            raise StorageUnavailableError(
                f"whether version {version} exists cannot be known now: {self._obstacle(connection)}"
            )
        return found

    def _watched(self, connection: ServerConnection, patience: float) -> int | None:
        """Return the newest version once all commits that may be below it have ended; None if some do not end."""
        began = time.monotonic()
        # One statement after the other, each with its own snapshot.
        seen, held = connection.pipeline((_BEGIN_LOOK, self._committed, self._holders, _END_LOOK))[1:3]
        version = require_primary(_version(seen), "the newest version")
        waiting, pause = _names(held), _FIRST_LOOK
        while waiting:
            if time.monotonic() - began > patience:
                return None
            time.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_LOOK)
            waiting &= _names(connection.pipeline((self._holders,))[-1])
        self._note(version, began)
        return version

    def _note(self, version: int, began: float) -> None:
        """Record a stable version: the highest one, unless the store was set back before this check began."""
        with self._lock:
            if version >= self._known or began > self._known_since:
                self._known, self._known_since = version, time.monotonic()

    def begin(
        self,
        connection: ServerConnection,
        begin: Call,
        *,
        before: Sequence[Call] = (),
        after: Sequence[Call] = (),
        is_serializable: bool = False,
    ) -> Exact:
        """Begin a transaction whose snapshot is exactly a version.

        Parameters
        ----------
        connection : ServerConnection
            In no transaction. After an error it may be in a failed one.
        begin : Call
            The statement that begins it, REPEATABLE READ or SERIALIZABLE.
        before : sequence of Call
            Statements that take no snapshot, which the transaction runs first.
        after : sequence of Call
            Statements that it runs in the snapshot.
        is_serializable : bool
            Whether it is SERIALIZABLE. It then does not read the commits, because that would conflict with all writers:
            the sequence of versions, with which no transaction can conflict, bounds the commits in its snapshot.

        Raises
        ------
        StorageUnavailableError
            If a commit does not end, which the message names, or if the role lacks the privilege to close the gate.
        """
        deadline = time.monotonic() + _PATIENCE
        pause, denied = _FIRST_PAUSE, None
        while True:
            found = self._unguarded(connection, begin, before, after, is_serializable)
            if found is not None:
                return found
            if denied is None:
                try:
                    found = self._behind_gate(connection, begin, before, after, is_serializable)
                except StatementRefusedError as error:
                    if error.call is not self._close or error.state != INSUFFICIENT_PRIVILEGE:
                        raise
                    denied = error
                if found is not None:
                    return found
            connection.roll_back()
            if time.monotonic() > deadline:
                if denied is not None:
                    refusal = StorageUnavailableError(
                        "a snapshot that is exactly a version needs the privilege to close the gate while others "
                        f"commit; grant update on table {qualified(self._schema, GATE)} to this role: {denied}"
                    )
                    raise refusal from denied
                raise StorageUnavailableError(
                    f"no snapshot was exactly a version for {_PATIENCE:g} s: {self._obstacle(connection)}"
                )
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)

    def _unguarded(
        self,
        connection: ServerConnection,
        begin: Call,
        before: Sequence[Call],
        after: Sequence[Call],
        is_serializable: bool,
    ) -> Exact | None:
        """Begin without the gate; None if others were committing. The transaction is then open."""
        began = time.monotonic()
        seen = self._drawn if is_serializable else self._committed
        # Commits are read after their holders: a commit that ends between the two reads is in the snapshot.
        look = (_BEGIN_LOOK, seen, self._holders, self._committed, _END_LOOK)
        results = connection.pipeline((*look, begin, *before, seen, *after))
        first = len(look) + 1 + len(before)
        version = _version(results[3])
        if version is not None:
            if results[2].ntuples or _version(results[1]) != _version(results[first]):
                return None
            self._note(version, began)
        return Exact(version, results[first + 1 :])

    def _behind_gate(
        self,
        connection: ServerConnection,
        begin: Call,
        before: Sequence[Call],
        after: Sequence[Call],
        is_serializable: bool,
    ) -> Exact | None:
        """Begin behind the closed gate; None if a commit holds it for too long."""
        began = time.monotonic()
        connection.roll_back()
        seen = self._drawn if is_serializable else self._committed
        guarded = (begin, *before, _SAVEPOINT, _LIMIT, self._close, seen)
        try:
            results = connection.pipeline((*guarded, *_OPEN, *after))
        except StatementRefusedError as error:
            if error.call is self._close and error.state == LOCK_NOT_AVAILABLE:
                return None
            raise
        version = _version(results[len(guarded) - 1])
        if is_serializable and version is not None:
            # Commits that drew a version before the gate closed have ended.
            with self._aside() as other:
                version = _version(other.run(Call(self._committed_below, (version.to_bytes(8, "big"),))))
        if version is not None:
            self._note(version, began)
        return Exact(version, results[len(guarded) + len(_OPEN) :])

    def _obstacle(self, connection: ServerConnection) -> str:
        holders = [str(row[0]) for row in connection.rows(connection.pipeline((self._described,))[-1])]
        if not holders:
            return "commits follow one another too closely"
        return f"a commit does not end, and all later positions wait for it: {'; '.join(sorted(holders))}"


def _version(result: pq.abc.PGresult) -> int | None:
    """Return the version in a result; None from a server in recovery."""
    if result.get_value(0, 1) == b"\1":
        return None
    return int.from_bytes(result.get_value(0, 0) or b"", "big")


def _names(result: pq.abc.PGresult) -> set[bytes | None]:
    return {result.get_value(row, 0) for row in range(result.ntuples)}


class StoreFeeds(NamedTuple):
    """The change feeds of a store: the gate of their versions; `used` is called with each table whose feed was used."""

    gate: VersionGate
    used: Callable[[str], None]
