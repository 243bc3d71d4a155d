"""`ServerConnection`: one connection to the server: prepared statements in binary, many in one round trip."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Iterable, Iterator, Sequence

import psycopg
from psycopg import generators, pq
from psycopg.abc import Buffer
from psycopg.adapt import Transformer

from structable.backends.base.pool import PooledConnection
from structable.spi import DataCorruptionError

from .copying import Copying
from .errors import (
    FAILED,
    UNDEFINED_OBJECT,
    BrokenConnectionError,
    ForeignSessionError,
    PostgreSQLError,
    StatementRefusedError,
    server_error,
)
from .session_claim import SessionClaim
from .statement import Call, Statement, Values, command, require_sendable
from .tally import ServerTally

_log = logging.getLogger("structable.postgresql")

_MOST_PREPARED = 500

_ROLLBACK = command("rollback")
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_IDLE = pq.TransactionStatus.IDLE


class ServerConnection(PooledConnection):
    """One connection to the server, in autocommit mode. Used by one thread at a time; `close` may come from another.

    A process forked from the creator can neither use nor close it.

    A failure of the connection, or an interruption of a call, closes it: a pending answer could be taken for another
    statement's. Calls raise `BrokenConnectionError` for a failed connection, and `StatementRefusedError` for a
    statement that the server rejects.

    Statements sent while no transaction is open run in a session of the server that is this connection's: behind a
    pooler `claim` checks that, and raises `ForeignSessionError`. `send`, `copy_in` and `copy_out` are for use in a
    transaction.

    `server` identifies one run of a server, from its start, or its recovery from a crash, to its end; `plan_freely`
    gives a transaction the session's settings for plans; `process` is the server's process for this connection, and
    `started` its start, in the server's seconds. `token` is unique to the connection for all time.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        claim: SessionClaim,
        server: frozenset[int],
        plan_freely: Call,
        process: int,
        started: str,
    ) -> None:
        self.server = server
        self.plan_freely = plan_freely
        self.process = process
        self.started = started
        self.token = claim.token
        self.commits = 0
        """The number of commits sent whose outcome can be looked up."""
        self.is_altered = False
        """Whether the session has locks or settings that must not reach another user: the pool closes it then."""
        self.tally: ServerTally = ServerTally()
        self._psycopg = connection
        self._pg = connection.pgconn
        self._client = os.getpid()
        self._wait = connection.wait
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._lock = threading.Lock()
        self._prepared = dict(claim.prepared)
        """The names in the server of the statements that it has prepared."""
        self._claim = claim
        # The server reports the number of its process, and a pooler reports another one.
        self.is_pooled = self._pg.backend_pid != process
        self._transformer = Transformer(connection)

    @property
    def version(self) -> int:
        """The server's version, e.g. 150004."""
        return self._pg.server_version

    @property
    def usable(self) -> bool:
        """Whether it can serve another user: alive, not altered, in no transaction, not full of statements."""
        pg = self._pg
        idle = pg.status == pq.ConnStatus.OK and pg.transaction_status == _IDLE
        return idle and not self.is_altered and len(self._prepared) <= _MOST_PREPARED

    @property
    def closed(self) -> bool:
        return self._pg.status != pq.ConnStatus.OK or os.getpid() != self._client

    @property
    def readable(self) -> bool:
        """Whether the server has sent bytes that are still unread."""
        return bool(self._poll.poll(0))

    def run(self, call: Call) -> pq.abc.PGresult:
        """Run one statement, outside a transaction or in the open one."""
        statement, parameters = call
        name = self._prepared.get(statement.name)
        if name is None or (self.is_pooled and self._pg.transaction_status == _IDLE):
            return self.pipeline((call,))[-1]
        self._require_own()
        with self._lock:
            try:
                self.tally.round_trips += 1
                self._pg.send_query_prepared(name, parameters, statement.formats, 1)
                results = self._wait(generators.execute(self._pg))
            except psycopg.Error as error:
                raise self._lost(str(error)) from error
            except BaseException:
                self._discard()
                raise
        try:
            return self._checked(results[-1])
        except StatementRefusedError as error:
            if len(results) == 1:  # otherwise the statement succeeded, and its transaction could not be committed
                error.call = call
            raise

    def has_prepared(self, statement: Statement) -> bool:
        """Return whether the server has prepared a statement."""
        return statement.name in self._prepared

    def send(self, call: Call) -> None:
        """Send a statement that is used once; the next call must be `receive`."""
        statement, parameters = call
        formats = statement.formats or None
        self._require_own()
        with self._lock:
            try:
                self._pg.send_query_params(statement.text, parameters or None, statement.types or None, formats, 1)
                self._wait(generators.send(self._pg))
            except psycopg.Error as error:
                raise self._lost(str(error)) from error
            except BaseException:
                self._discard()
                raise

    def receive(self) -> pq.abc.PGresult:
        self._require_own()
        with self._lock:
            try:
                self.tally.round_trips += 1
                results = self._wait(generators.fetch_many(self._pg))
            except psycopg.Error as error:
                raise self._lost(str(error)) from error
            except BaseException:
                self._discard()
                raise
        return self._checked(results[-1])

    def _checked(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status in FAILED:
            raise self._failure(result)
        return result

    def pipeline(self, calls: Iterable[Call]) -> list[pq.abc.PGresult]:
        """Run statements in one round trip; return one result for each. None runs after a rejected one."""
        self._require_own()
        with self._lock:
            try:
                self.tally.round_trips += 1
                return self._pipelined(list(calls))
            except psycopg.Error as error:
                raise self._lost(str(error)) from error
            except StatementRefusedError:
                if self._pg.pipeline_status != pq.PipelineStatus.OFF:
                    self._discard()
                raise
            except BaseException:
                # Also at the very end: which statements are prepared may not have been recorded.
                self._discard()
                raise

    def _pipelined(self, calls: Sequence[Call]) -> list[pq.abc.PGresult]:
        pg, prepared, suffix = self._pg, self._prepared, self._claim.suffix
        guard = self._claim.guard if self.is_pooled and pg.transaction_status == _IDLE else ()
        new: dict[bytes, int] = {}  # names under preparation, and the position of their results among all results
        count = 0
        pg.enter_pipeline_mode()
        for statement, parameters in (*guard, *calls) if guard else calls:
            name = statement.name
            if not name:
                require_sendable(statement, parameters)
                pg.send_query_params(
                    statement.text, parameters or None, statement.types or None, statement.formats or None, 1
                )
            else:
                known = prepared.get(name)
                if known is None:
                    known = name + suffix
                    if name not in new:
                        pg.send_prepare(known, statement.text, statement.types)
                        new[name] = count
                        count += 1
                pg.send_query_prepared(known, parameters, statement.formats, 1)
            count += 1
        pg.pipeline_sync()
        wait = self._wait
        wait(generators.send(pg))
        results: list[pq.abc.PGresult] = []
        failure: Exception | None = None
        while True:
            result = pg.get_result() if not pg.is_busy() else wait(generators.fetch(pg))
            if result is None:
                if pg.status != pq.ConnStatus.OK:
                    raise self._lost("the server closed the connection")
                continue
            if result.status == _SYNC:
                break
            if result.status in FAILED and failure is None:
                failure = self._failure(result)
                if isinstance(failure, BrokenConnectionError | ForeignSessionError):
                    raise failure
            results.append(result)
        pg.exit_pipeline_mode()
        if failure is not None:
            failed = next(place for place, result in enumerate(results) if result.status in FAILED)
            prepared.update({name: name + suffix for name, place in new.items() if place < failed})
            place = failed - sum(place < failed for place in new.values()) - len(guard)
            if isinstance(failure, StatementRefusedError):
                if place < 0 and failure.state == UNDEFINED_OBJECT:
                    raise self._foreign("its session is another client's")
                # After the last statement the server commits the statements outside a transaction.
                failure.call = calls[place] if 0 <= place < len(calls) else None
            raise failure
        if new:
            prepared.update({name: name + suffix for name in new})
            preparations = set(new.values())
            results = [result for place, result in enumerate(results) if place not in preparations]
        return results[len(guard) :] if guard else results

    def copy_in(self, text: str, copies: Sequence[Iterable[bytes]]) -> int:
        """Run a COPY FROM STDIN in binary format, once for each of `copies`, and return the number of rows.

        The first rows of a run are produced while the server still executes the previous run: it inserts no row before
        it has a thousand, or all of a run. An exception of an iterable is raised, and its run copies nothing.
        """
        self._require_own()
        with self._lock:
            try:
                return self._copying().take_in(text, copies)
            except psycopg.Error as error:
                raise self._lost(str(error)) from error
            except BaseException:
                # A failed COPY leaves the connection unchanged; an interrupted one does not.
                if self._pg.transaction_status == pq.TransactionStatus.ACTIVE:
                    self._discard()
                raise

    def copy_out(self, text: str, size: int, most: int) -> Iterator[list[Buffer]]:
        """Run a COPY TO STDOUT in binary format and yield its rows, each in that format, some at a time.

        A chunk has at most `most` rows, and `size` bytes, exceeded by at most its last row. A generator: closing it
        early closes the connection, on which the server is still sending.
        """
        self._require_own()
        is_sending = True
        try:
            copying = self._copying()
            with self._lock:
                is_sending = copying.begin_out(text)
            while is_sending:
                self._require_own()
                with self._lock:
                    rows, is_sending = copying.next_rows(size, most)
                if rows:
                    yield rows
        except StatementRefusedError:
            is_sending = False
            raise
        except psycopg.Error as error:
            raise self._lost(str(error)) from error
        finally:
            if is_sending:
                self._discard()

    def _copying(self) -> Copying:
        return Copying(self._pg, self._wait, self._failure, self.tally)

    def _failure(self, result: pq.abc.PGresult) -> Exception:
        failure = server_error(result)
        if isinstance(failure, ForeignSessionError):
            return self._foreign(failure.message)
        return self._lost(str(failure)) if isinstance(failure, BrokenConnectionError) else failure

    def _foreign(self, reason: str) -> ForeignSessionError:
        """Close the connection, which has lost its session to another client, and return the error for it."""
        self._discard()
        return ForeignSessionError(reason)

    def _lost(self, reason: str) -> BrokenConnectionError:
        """Close the broken connection, and return the error for it."""
        reason = " ".join(reason.split())
        self._discard()
        _log.warning("lost the connection to server process %d: %s", self.process, reason)
        return BrokenConnectionError(reason)

    def ask(self, call: Call) -> list[Values]:
        """Run one statement and return its rows; see `run` and `rows`."""
        return self.rows(self.run(call))

    def roll_back(self) -> None:
        """End an open transaction; a connection on which that fails is closed."""
        if not self.closed and self._pg.transaction_status != _IDLE:
            try:
                self.pipeline((_ROLLBACK,))
            except PostgreSQLError:
                self.close()

    def rows(self, result: pq.abc.PGresult) -> list[Values]:
        """Return the rows of a result as tuples; rejects values that Python cannot hold, such as a time `infinity`."""
        transformer = self._transformer
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        except (psycopg.DataError, ValueError, OverflowError) as error:
            raise DataCorruptionError(
                f"a row holds a value outside the contract, not written by structable: {error}"
            ) from error

    def _require_own(self) -> None:
        """Reject use in a forked process: it shares the socket, and would use its parent's transaction."""
        if os.getpid() != self._client:
            raise BrokenConnectionError("it belongs to the process that forked this one; connect again")

    def count_bytes(self) -> None:
        """Bring the tally up to date; from any thread."""
        if os.getpid() == self._client:
            self.tally.count_bytes(self._socket)

    def _socket(self) -> int | None:
        try:
            return self._pg.socket
        except psycopg.Error:
            return None  # it is closed

    def _discard(self) -> None:
        # A fork inherits the connection, for example through a generator, and must not end it.
        if os.getpid() == self._client:
            self._end()

    def _end(self) -> None:
        try:
            self.count_bytes()
        finally:
            self._psycopg.close()

    def close(self, seconds: float = 1.0) -> None:
        """End the connection; a thread that is using it finds it closed."""
        if os.getpid() != self._client:
            return  # closing it here would end it for the process that owns it
        acquired: list[bool] = []
        try:
            # All in C: no signal handler can run between taking the lock and recording that.
            acquired.extend(map(self._lock.acquire, (True,), (seconds,)))
            self._end()
        finally:
            if acquired and acquired[0]:
                self._lock.release()

    def __del__(self) -> None:
        # An interruption may have lost the record, in the middle of an exchange.
        if hasattr(self, "_client"):
            self._discard()
