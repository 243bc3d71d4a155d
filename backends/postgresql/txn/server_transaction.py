"""`ServerTransaction`: a transaction on the server, with as few round trips as possible.

It takes a connection with its first operation. Writes are deferred to the next statement that may read them, at the
latest to the commit. Until it has returned a result or sent a write, it restarts when a table turns out to have
changed.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable

from psycopg import pq

from structable.backends.base.transaction import TransactionLifecycle
from structable.backends.postgresql.driver.commit_outcome import was_committed
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    STALE,
    BrokenConnectionError,
    PostgreSQLError,
    StatementRefusedError,
    translated,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.snapshot_text import is_visible
from structable.backends.postgresql.driver.statement import Ask, Call, Values
from structable.backends.postgresql.feeds.gate import Exact, require_primary
from structable.backends.postgresql.schema.catalog import Catalog
from structable.backends.postgresql.schema.inspection import require_intact
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.backends.postgresql.sql.statements import current
from structable.spi import (
    CommitOutcomeUnknownError,
    Isolation,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
)
from structable.spi.rules.transaction_size import check_transaction_size

from .bound_table import BoundTable, Refusal, TableCall
from .boundaries import BEGIN, BEGIN_WAITING, COMMIT, NUMBER_AND_SNAPSHOT, SNAPSHOT, with_plans
from .changed_tables import NewerTableError, changed_since
from .deferred_writes import DeferredWrites

__all__ = ["ServerTransaction"]

_log = logging.getLogger("structable.postgresql")

_ATTEMPTS = 5
_MISFITS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, struct.error)


class ServerTransaction(TransactionLifecycle):
    """One connection and one snapshot, from the first operation to the end.

    One that `is_single` has one call, which writes one row. One that `waits` has one call, whose statements wait for
    other writers of their rows instead of conflicting: they take effect on the newest rows, not on a snapshot.
    """

    _connection: ServerConnection | None = None

    def __init__(
        self,
        pool: ServerPool,
        catalog: Catalog,
        isolation: Isolation,
        read_only: bool,
        *,
        is_single: bool = False,
        waits: bool = False,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._begin = BEGIN_WAITING if waits else BEGIN[isolation, read_only]
        self._identify = SNAPSHOT if read_only else NUMBER_AND_SNAPSHOT
        self.waits = waits
        self.read_only = read_only
        self.is_single = is_single
        self.begun = False
        self._answered = False
        self.position: int | None = None
        """The version that the snapshot is exactly, if that was asked for."""
        self._number: int | None = None
        self._snapshot = ""
        self._tables: dict[str, BoundTable] = {}
        self.writes = DeferredWrites()
        self.read_cursors: list[str] = []
        """Cursors read to their end; each takes memory in the server until it is closed."""

    # Used by tables

    def join(self, name: str, table: BoundTable) -> None:
        """Add a table to the transaction, which renews its binding from now on."""
        self._tables[name] = table

    def verify(self, table: BoundTable) -> None:
        """Let the server check that the binding of a table is current."""
        self.ask(table, lambda binding: Call(current(binding)))

    def binding(self, name: str) -> TableBinding:
        """Return the binding of a table; raises `TableNotFoundError`."""
        binding = self._catalog.known(name) if isinstance(name, str) else None
        if binding is None:
            binding = self._catalog.lookup(self.rows_alone, name)
        elif self.begun and not is_visible(binding.version.changed_by, self._snapshot):
            self.fail(changed_since(name))
        return binding

    def rows_alone(self, call: Call) -> list[Values]:
        """Run a statement that belongs to no table, and return its rows."""
        return self.rows_of(self._exchange(call, None))

    def begin_exactly(self, begin: Callable[..., Exact], check: Callable[[Ask], object]) -> None:
        """Begin by `VersionGate.begin`, unless `check`, which is run before, raises an error."""
        self.require_usable()
        connection = self._connection = self._pool.acquire()
        try:
            check(connection.ask)
            version, results = begin(connection, self._begin, after=(self._identify,))
            self.position = require_primary(version, "the position of a transaction")
        except (PostgreSQLError, StorageUnavailableError) as error:
            self.fail(translated(error, "the transaction"))
        except BaseException:
            self._release()
            raise
        self._note_begun(results[0])
        self._answered = True

    @property
    def connection(self) -> ServerConnection:
        assert self._connection is not None
        return self._connection

    def rows_of(self, result: pq.abc.PGresult) -> list[Values]:
        return self.connection.rows(result)

    def ask(
        self, table: BoundTable, build: Callable[[TableBinding], Call], key: Pieces | None = None
    ) -> pq.abc.PGresult:
        """Run a statement now, in one round trip with those deferred writes that it may read.

        Other writes stay deferred, so that their rows are not locked yet.
        """
        return self._exchange(None, TableCall(table, build, key))

    def defer(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: Refusal | None = None,
    ) -> pq.abc.PGresult | None:
        """Run a write before the next statement that may see it, at the latest with the commit.

        As the first operation it takes the snapshot: later writes of other transactions conflict. If the server refuses
        it and `refusal` has an error for that, the statement raises it, and all writes stay deferred; the commit fails.
        If it `begins`, run it now, and return its result.
        """
        if self.begins:
            self.writes.add(TableCall(table, build, key, refusal))
            return self._exchange(None, None)
        if not self.begun:
            self.flush()
        self.precede(table, build, key, refusal)
        return None

    @property
    def begins(self) -> bool:
        """Whether a write begins the transaction: then nothing comes between it and the commit."""
        return self.is_single and not self.begun

    def precede(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Run a statement just before the next one."""
        if self.writes.add(TableCall(table, build, key, refusal)):
            try:
                self.flush()
            except StructableError as error:
                # The call may have sent others of its writes. As no commit is possible either, the transaction ends.
                self.fail(error)

    def require_room(self, size: int) -> None:
        """Reject a call whose bytes would exceed the limit of the transaction."""
        check_transaction_size(self.writes.written + size)

    def note_written(self, size: int) -> None:
        """Count bytes written by other means than `defer`."""
        self.writes.written += size

    def flush(self) -> None:
        """Begin the transaction unless it has begun, and run the deferred statements."""
        if self.writes.works or not self.begun:
            self._exchange(None, None)

    def run(self, body: Callable[[ServerConnection], None], what: str) -> None:
        """Let `body` use the connection inside the transaction, after the deferred statements."""
        self.flush()
        self._answered = True
        try:
            body(self.connection)
        except PostgreSQLError as error:
            self.fail(self._explained(error, what))

    def require_usable(self) -> None:
        if not self.usable:
            self.refuse()

    def require_writable(self) -> None:
        if not self.usable or self.read_only:
            self.refuse_write()

    # Round trips

    def _exchange(self, call: Call | None, work: TableCall | None) -> pq.abc.PGresult:
        if not self.usable:
            self.refuse()
        all_of_it = call is None and (work is None or any(work.meets(one) for one in self.writes.works))
        guarded = all_of_it and self.begun and self.writes.may_not_fit
        for attempt in range(1, _ATTEMPTS + 1):
            calls = self.writes.calls(guarded=guarded) if all_of_it else []
            last = call if work is None else work.call
            try:
                result = self._attempt(calls if last is None else [*calls, last])
            except NewerTableError as newer:
                if self._answered or attempt == _ATTEMPTS:
                    self.fail(changed_since(newer.name))
            except PostgreSQLError as error:
                refusal = self.writes.refusal(error)
                if refusal is not None:
                    if guarded:
                        self._undo()
                        raise refusal from error
                    self.fail(refusal)
                stale = isinstance(error, StatementRefusedError) and error.state in STALE
                if not stale or self._answered or attempt == _ATTEMPTS:
                    self.fail(self._explained(error, "the transaction"))
            else:
                sent = self.writes.works if all_of_it else []
                for one in sent if work is None else [*sent, work]:
                    one.table.verified = True
                # From here on a restart would lose a returned result, or sent writes.
                self._answered = self._answered or bool(sent) or call is not None or work is not None
                if all_of_it:
                    self.writes.clear()
                return result
            self._restart(work)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _undo(self) -> None:
        """Return to the state before the deferred writes."""
        try:
            self.connection.pipeline(self.writes.undo)
            self.writes.remove_sent()
            self._answered = True
        except PostgreSQLError as error:
            self.fail(translated(error, "the transaction"))

    def _attempt(self, calls: list[Call]) -> pq.abc.PGresult:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._pool.acquire()
        last = -1
        if any(call.statement.is_planned_freely for call in calls):
            last = -1 - calls[-1].statement.is_planned_freely
            calls = with_plans(connection, calls)
        if self.begun:
            return connection.pipeline(calls)[last] if len(calls) > 1 else connection.run(calls[0])
        # With no statement yet, the server checks the bindings: otherwise the commit would reject a deferred write, too
        # late for another try.
        checks = [] if calls else [Call(current(table.binding)) for table in self._tables.values()]
        results = connection.pipeline([self._begin, self._identify, *checks, *calls])
        self._note_begun(results[1])
        for name, table in self._tables.items():
            if not is_visible(table.binding.version.changed_by, self._snapshot):
                raise NewerTableError(name)
        return results[last]

    def _note_begun(self, identified: pq.abc.PGresult) -> None:
        number, snapshot = identified.get_value(0, 0), identified.get_value(0, 1)
        self._number = None if number is None else int(number)
        self._snapshot = (snapshot or b"").decode()
        self.begun = True

    def _restart(self, work: TableCall | None) -> None:
        """Begin again, with the current tables: the transaction has had no effect yet."""
        _log.info("beginning a transaction again: one of the tables %s was changed", ", ".join(self._tables))
        self._release()
        self.begun = False
        try:
            for name, table in self._tables.items():
                self._catalog.forget(name)
                with self._pool.connection() as connection:
                    found = self._catalog.lookup(connection.ask, name)
                if not found.has_verbs_of(table.binding):
                    self.fail(changed_since(name))  # its verbs mean something else
                table.binding = found
            for one in [*self.writes.works, *([] if work is None else [work])]:
                one.call = one.build(one.table.binding)
        except PostgreSQLError as error:
            self.fail(translated(error, "reading the catalog"))
        except StructableError as error:
            self.fail(error)
        except _MISFITS as error:
            # The arguments were checked against another table of this name.
            names = ", ".join(repr(name) for name in self._tables)
            self.fail(
                TransactionConflictError(f"{names}: the table was dropped and created with other fields: {error!r}")
            )

    def _explained(self, error: Exception, what: str) -> StructableError:
        if not isinstance(error, StatementRefusedError) or error.state not in STALE:
            return translated(error, what)
        # The failed transaction may hold the only connection of the pool.
        self._release()
        # Another version in the catalog is the reason; otherwise the table was altered outside structable.
        try:
            with self._pool.connection() as connection:
                for name, table in self._tables.items():
                    known = table.binding.version
                    if self._catalog.find(connection.ask, name) != known:
                        self._catalog.forget(name)
                        return changed_since(name)
                for table in self._tables.values():
                    require_intact(connection.ask, table.binding.schema, table.binding.version)
        except StructableError as found:
            return found
        except PostgreSQLError:
            return translated(error, what)
        return translated(error, what)

    # The end

    def commit(self) -> None:
        if not self.usable:
            self.refuse_commit()
        if self.writes.works and not self.begun:
            # The commit takes a separate round trip, as the transaction's number must be known first.
            self.flush()
        if not self.begun:
            self._end()
            return
        connection = self.connection
        sent = time.monotonic()
        try:
            pending = with_plans(connection, self.writes.calls(guarded=False))
            result = connection.pipeline([*pending, COMMIT])[-1]
            if result.command_status != b"COMMIT":
                raise StatementRefusedError("40000", "the server rolled the transaction back")
        except BrokenConnectionError as error:
            self._resolve(connection, sent, error)
        except StatementRefusedError as error:
            self.fail(self.writes.refusal(error) or self._explained(error, "the commit"))
        except BaseException:
            self._end()
            raise
        self._end()

    def _resolve(self, connection: ServerConnection, sent: float, error: BrokenConnectionError) -> None:
        """Look up the outcome of the commit after the connection broke."""
        self._release()
        if self._number is None:
            self.fail(
                StorageUnavailableError(f"the connection was lost during the commit, which wrote nothing: {error}")
            )
        committed = was_committed(self._pool, self._number, connection, sent)
        if committed is None:
            self.fail(
                CommitOutcomeUnknownError(
                    f"the connection was lost during the commit of transaction {self._number}, and the server could "
                    f"not be asked about it: {error}"
                )
            )
        if not committed:
            self.fail(
                StorageUnavailableError(f"the connection was lost before the commit; nothing was written: {error}")
            )

    def _end(self) -> None:
        self.usable, self._tables = False, {}
        self.writes.clear()
        self._release()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.roll_back()
        finally:
            self._pool.release(connection)
