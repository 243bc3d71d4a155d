"""`ServerTransaction`: a transaction on the server, with as few round trips as possible.

It takes a connection with its first operation. Writes are deferred to the next statement that may read them, at the
latest to the commit. Until it has returned a result or sent a write, it restarts when a table turns out to have
changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from psycopg import pq

from structable.backends.base.transaction import TransactionLifecycle
from structable.backends.postgresql.driver.commit_outcome import error_of_lost_commit, was_committed
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    STALE,
    BrokenConnectionError,
    PostgreSQLError,
    StatementRefusedError,
    require_commit,
    translated,
)
from structable.backends.postgresql.driver.planning import with_plans
from structable.backends.postgresql.driver.snapshot_text import Snapshot
from structable.backends.postgresql.driver.statement import BEGIN, BEGIN_WAITING, COMMIT, IDENTIFY, Ask, Call, Values
from structable.backends.postgresql.feeds.gate import Exact, require_primary
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.key_lookups import current, identified
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.spi import Isolation, StorageUnavailableError, StructableError
from structable.spi.authors import check_transaction_size

from .bound_table import BoundTable, RefusalHandler, TableCall
from .changed_tables import NewerTableError, changed_since, explained, rebind
from .deferred_writes import DeferredWrites
from .receipts import Receipt
from .store_context import StoreContext

_log = logging.getLogger("structable.postgresql")
_ATTEMPTS = 5


class ServerTransaction(TransactionLifecycle):
    """One connection and one snapshot, from the first operation to the end.

    A transaction that `has_one_call` defers even its first write, so that it is one round trip, with a receipt, if the
    call reads nothing. If it also `waits`, its statements wait for other writers of their rows instead of conflicting:
    they take effect on the newest rows, not on a snapshot.
    """

    _connection: ServerConnection | None = None
    _snapshot: Snapshot  # once it has begun

    def __init__(
        self,
        store: StoreContext,
        isolation: Isolation,
        read_only: bool,
        *,
        has_one_call: bool = False,
        waits: bool = False,
    ) -> None:
        self._pool, self._catalog, _, self._receipts, _ = store
        self._begin = BEGIN_WAITING if waits else BEGIN[isolation, read_only]
        self._identify = IDENTIFY[read_only]
        self.waits = waits
        self.read_only = read_only
        self.has_one_call = has_one_call
        self.begun = False
        self._answered = False
        self.position: int | None = None
        """The version that the snapshot is exactly, if it was requested."""
        self._number: int | None = None
        self._tables: dict[str, BoundTable] = {}
        self.writes = DeferredWrites()
        self.read_cursors: list[str] = []
        """Cursors read to their end; each takes memory in the server until it is closed."""

    def join(self, name: str, table: BoundTable) -> None:
        """Add a table to the transaction, which renews its binding from now on."""
        self._tables[name] = table

    def verify(self, table: BoundTable) -> None:
        """Let the server check that the binding of a table is current."""
        if self.begun or self.writes.works:
            self.ask(table, lambda binding: Call(current(binding)))
        else:
            self.flush()  # checks the bindings of all tables
            self._answered = True

    def binding(self, name: str) -> TableBinding:
        """Return the binding of a table; raises `TableNotFoundError`."""
        binding = self._catalog.known(name) if isinstance(name, str) else None
        if binding is None:
            binding = self._catalog.lookup(self.rows_alone, name)
        elif self.begun and not self._snapshot.sees(binding.version.changed_by):
            self.fail(changed_since(name))
        return binding

    def rows_alone(self, call: Call) -> list[Values]:
        """Run a statement that belongs to no table, and return its rows."""
        return self.rows_of(self._answer(call, None))

    def begin_exactly(self, begin: Callable[..., Exact], check: Callable[[Ask], object]) -> None:
        """Begin by `VersionGate.begin`, unless `check`, which runs first, raises an error."""
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
        assert self._connection
        return self._connection

    def rows_of(self, result: pq.abc.PGresult) -> list[Values]:
        return self.connection.rows(result)

    def ask(
        self, table: BoundTable, build: Callable[[TableBinding], Call], key: Pieces | None = None
    ) -> pq.abc.PGresult:
        """Run a statement now, in one round trip with the deferred writes that it may read.

        Other writes stay deferred, so that their rows are not locked yet.
        """
        return self._answer(None, TableCall(table, build, key))

    def defer(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: RefusalHandler | None = None,
    ) -> None:
        """Defer a write until the next statement that may see it, at the latest until the commit.

        Except in a transaction of one call, the first write takes the snapshot: later writes of other transactions
        conflict. If the server rejects the write and `refusal` has an error for that, the statement that sends it
        raises that error, all writes stay deferred, and the commit fails.
        """
        if not self.begun and not self.has_one_call:
            self.flush()
        self.precede(table, build, key, refusal)

    @property
    def begins(self) -> bool:
        """Whether the only call has sent and deferred nothing yet."""
        return self.has_one_call and not (self.begun or self.writes.works)

    def change(
        self, table: BoundTable, build: Callable[[TableBinding], Call], key: Pieces, refusal: RefusalHandler | None
    ) -> bool:
        """Begin with an UPDATE of one row, and return whether it found the row."""
        self.writes.add(TableCall(table, build, key, refusal))
        result = self._exchange(None, None)
        return result is not None and bool(result.command_tuples)

    def precede(
        self,
        table: BoundTable,
        build: Callable[[TableBinding], Call],
        key: Pieces | None = None,
        refusal: RefusalHandler | None = None,
        *,
        counts: bool = True,
    ) -> None:
        """Run a statement just before the next one."""
        if self.writes.add(TableCall(table, build, key, refusal), counts=counts):
            try:
                self.flush()
            except StructableError as error:
                # The call may have sent other writes of its own. Since no commit is possible, the transaction ends.
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

    def _answer(self, call: Call | None, work: TableCall | None) -> pq.abc.PGresult:
        result = self._exchange(call, work)
        assert result is not None
        return result

    def _exchange(self, call: Call | None, work: TableCall | None, *, ends: bool = False) -> pq.abc.PGresult | None:
        """Return the result of the last statement.

        A transaction that `ends` is committed in the same round trip, if there are receipts; the result is None if
        the answer was lost and the receipt exists.
        """
        if not self.usable:
            self.refuse()
        all_of_it = call is None and (work is None or any(work.meets(one) for one in self.writes.works))
        guarded = all_of_it and self.begun and self.writes.may_not_fit
        for attempt in range(1, _ATTEMPTS + 1):
            calls = self.writes.calls(guarded=guarded) if all_of_it else []
            last = call if work is None else work.call
            try:
                result = self._attempt(calls if last is None else [*calls, last], ends)
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
            self.writes.undo(self.connection)
            self._answered = True
        except PostgreSQLError as error:
            self.fail(translated(error, "the transaction"))

    def _attempt(self, calls: list[Call], ends: bool) -> pq.abc.PGresult | None:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._pool.acquire()
        last = -1
        for call in calls:
            if call.statement.is_planned_freely:
                last -= calls[-1].statement.is_planned_freely
                calls = with_plans(connection, calls)
                break
        if self.begun:
            return connection.pipeline(calls)[last] if len(calls) > 1 else connection.run(calls[0])
        receipt = self._receipts.next(connection) if ends else None
        if receipt is not None:
            return self._commit_at_once(connection, receipt, calls)
        # Without a statement so far, the server checks the bindings now: otherwise the commit would reject a deferred
        # write, too late for another try.
        first = [] if calls else [identified(table.binding, self._identify) for table in self._tables.values()]
        results = connection.pipeline([self._begin, *(first or [self._identify]), *calls])
        self._note_begun(results[1])
        for name, table in self._tables.items():
            if not self._snapshot.sees(table.binding.version.changed_by):
                raise NewerTableError(name)
        return results[last]

    def _commit_at_once(
        self, connection: ServerConnection, receipt: Receipt, calls: list[Call]
    ) -> pq.abc.PGresult | None:
        """Begin, run statements and commit. The bindings, which were looked up before the snapshot, are in it."""
        works = self.writes.works
        of_one_row = len(works) == 1 and works[0].key is not None
        try:
            result = receipt.commit(self._begin, calls, of_one_row=of_one_row, waits=self.waits)
        except BrokenConnectionError as loss:
            self._settle(str(receipt), lambda: receipt.is_there(self._pool), loss)
            return None
        except StatementRefusedError:
            raise  # the table may have changed: the caller tries again
        except BaseException:
            self._end()
            raise
        if result is None:
            self._release()
            return self._attempt(calls, ends=False)
        self._end()
        return result

    def _note_begun(self, identified: pq.abc.PGresult) -> None:
        number, snapshot = identified.get_value(0, 0), identified.get_value(0, 1)
        self._number = None if number is None else int(number)
        self._snapshot = Snapshot((snapshot or b"").decode())
        self.begun = True

    def _restart(self, work: TableCall | None) -> None:
        """Begin again, with the current tables: the transaction has had no effect yet."""
        _log.info("beginning a transaction again: one of the tables %s was changed", ", ".join(self._tables))
        self._release()
        self.begun = False
        try:
            rebind(self._pool, self._catalog, self._tables, [*self.writes.works, *([] if work is None else [work])])
        except StructableError as error:
            self.fail(error)

    def _explained(self, error: Exception, what: str) -> StructableError:
        # The failed transaction may hold the only connection of the pool.
        self._release()
        return explained(self._pool, self._catalog, self._tables, error, what)

    def commit(self) -> None:
        if not self.usable:
            self.refuse_commit()
        if self.writes.works and not self.begun:
            # Without a receipt the commit takes another round trip, as the transaction's number must be known first.
            self._exchange(None, None, ends=True)
        if not self.begun:
            self._end()
            return
        connection = self.connection
        sent = time.monotonic()
        try:
            pending = with_plans(connection, self.writes.calls(guarded=False))
            require_commit(connection.pipeline([*pending, COMMIT])[-1])
        except BrokenConnectionError as loss:
            self._settle(f"transaction {self._number}", lambda: self._is_committed(connection, sent), loss)
        except StatementRefusedError as error:
            self.fail(self.writes.refusal(error) or self._explained(error, "the commit"))
        except BaseException:
            self._end()
            raise
        if self.has_one_call:
            connection.commits = connection.commits or 1  # the next commit has a receipt
        self._end()

    def _is_committed(self, lost: ServerConnection, sent: float) -> bool | None:
        """Look up the transaction; without a number it has written nothing."""
        return self._number is not None and was_committed(self._pool, self._number, lost, sent)

    def _settle(self, what: str, look_up: Callable[[], bool | None], loss: BrokenConnectionError) -> None:
        """End a transaction whose connection broke in the commit; fail unless `look_up` finds it committed."""
        self._release()
        try:
            error = error_of_lost_commit(look_up(), what, loss)
        except BaseException:
            self._end()
            raise
        if error is not None:
            self.fail(error)
        self._end()

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
