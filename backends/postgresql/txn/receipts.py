"""Receipts record the commit of transactions that begin and commit in a single round trip.

The server's number of such a transaction is unknown until its commit is answered, so a commit whose answer is lost
cannot be looked up by it. The receipt can be: its key is chosen by the client, and the transaction inserts it into the
table `_structable_receipts`. A look-up inserts the same key, marked as refused, so that a transaction that has not
committed by then never will. A connection deletes its older receipts from time to time; receipts of lost connections
are deleted after a week.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary, WeakSet

from psycopg import pq

from structable.backends.postgresql.driver.commit_outcome import ask_until_known
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import (
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    StatementRefusedError,
    require_commit,
    translated,
)
from structable.backends.postgresql.driver.pool import ServerPool
from structable.backends.postgresql.driver.statement import (
    BEGIN_WAITING,
    BIGINT,
    COMMIT,
    INTEGER,
    LOCK_LIMIT,
    TEXT,
    Call,
    Statement,
    command,
)
from structable.backends.postgresql.schema.catalog import make_late
from structable.backends.postgresql.sql.names import RECEIPTS, literal, qualified
from structable.spi import StorageUnavailableError, TransactionConflictError

_log = logging.getLogger("structable.postgresql")

_KEPT = 20
"""The number of a connection's receipts that accumulate before the older ones are deleted."""
_KEPT_FOR = "7 days"
_KNOWN_FOR = 86_400.0
"""Seconds after which a missing receipt may have been deleted."""
_NOT_THERE = frozenset({UNDEFINED_TABLE, UNDEFINED_COLUMN, INSUFFICIENT_PRIVILEGE})
"""The errors if the table of the receipts or a column was dropped, or the privilege to use it was revoked."""
_WITH = "with "
_TERMINATE = Statement(
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where pid = $1 and extract(epoch from backend_start)::text = $2 and state in ('active', 'disabled') "
    "and pid <> pg_backend_pid()",
    (INTEGER, TEXT),
)


class Receipt:
    """The receipt of one commit, on one connection."""

    def __init__(self, receipts: Receipts, connection: ServerConnection, table: int) -> None:
        connection.commits += 1
        self._table = table
        self._receipts = receipts
        self._connection = connection
        self._number = connection.commits
        self._given = (connection.token, self._number.to_bytes(8, "big"))
        self._sent = time.monotonic(), time.time()

    def commit(
        self, begin: Call, calls: Sequence[Call], *, of_one_row: bool, waits: bool, if_changed: bool = False
    ) -> pq.abc.PGresult | None:
        """Begin, run statements and commit, in one round trip; return the result of the first.

        None if that failed because the receipt cannot be written.

        With `if_changed` there is one call, an UPDATE, which has a receipt only if it changes a row.

        A prepared statement `of_one_row` can be a transaction of its own, which spares the server two commands. Its
        level is then READ COMMITTED, where it takes effect on the newest version of the row, as if it had begun after
        other writers. Only a row that another transaction deleted and inserted goes unnoticed: an upsert then fails
        because of the key, as it does in a snapshot; an UPDATE finds no row, and is run again in a snapshot.
        """
        connection = self._connection
        found = self._calls(calls, if_changed)
        try:
            alone = of_one_row and (waits or if_changed or _begins_with(calls[0].statement))
            if alone and len(found) == 1 and connection.has_prepared(found[0].statement):
                result = connection.run(found[0])
                if result.command_tuples or not if_changed:
                    return result
            results = connection.pipeline([begin, *found, COMMIT])
            require_commit(results[-1])
        except StatementRefusedError as error:
            if self._receipts.lack(error):
                return None
            if error.call is found[0] and len(calls) == 1:
                error.call = calls[0]
            raise
        return results[1]

    def _calls(self, calls: Sequence[Call], if_changed: bool) -> list[Call]:
        """Return the calls with the receipt's insertion, which becomes part of a single prepared statement."""
        first, *others = calls
        if others or not first.statement.name:
            found = [Call(self._receipts.insert, self._given), *calls]
        else:
            joined = self._receipts.joined(first.statement, if_changed=if_changed)
            found = [Call(joined, (*first.parameters, *self._given))]
        if self._number % _KEPT == 0:
            found.append(Call(self._receipts.delete, self._given))
        return found

    def is_there(self, pool: ServerPool) -> bool | None:
        """Return whether the transaction was committed; None if that cannot be known.

        After False it can never be committed.
        """
        lost, receipts = self._connection, self._receipts
        terminate = Call(_TERMINATE, (lost.process.to_bytes(4, "big"), lost.started.encode()))
        mark, find = Call(receipts.refuse, self._given), Call(receipts.refused, self._given)
        look = (BEGIN_WAITING, LOCK_LIMIT, mark, find, COMMIT)

        def question(connection: ServerConnection) -> bool | Literal["open"] | None:
            if max(time.monotonic() - self._sent[0], time.time() - self._sent[1]) > _KNOWN_FOR:
                return None
            try:
                # The process may not have noticed that its client is gone. If it has, a pooler may have given its
                # session to the next client.
                connection.run(terminate)
                refused, table = connection.rows(connection.pipeline(look)[3])[0]
                if refused and table != self._table:
                    receipts.renew()  # the table was made again or emptied, and lost its earlier receipts
                    return None
                return not refused
            except StatementRefusedError as error:
                found = translated(error, "looking a receipt up")
                again = isinstance(found, (StorageUnavailableError, TransactionConflictError))
                return "open" if again and not getattr(found, "lasting", False) else None
            finally:
                connection.roll_back()

        return ask_until_known(pool, str(self), question)

    def __str__(self) -> str:
        return f"the transaction with the receipt {self._connection.token.hex()}-{self._number}"


class Receipts:
    """The receipts of one schema. Threads may share it."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._name = name = qualified(schema, RECEIPTS)
        self._table: int | None = None
        key = (BIGINT, BIGINT)
        self.insert = Statement(f"insert into {name} (connection, number) values ($1, $2)", key)
        self.delete = Statement(f"delete from {name} where connection = $1 and number < $2", key)
        self.refuse = Statement(
            f"insert into {name} (connection, number, refused) values ($1, $2, true) on conflict do nothing", key
        )
        self.refused = Statement(
            f"select refused, pg_relation_filenode(tableoid)::bigint from {name} where connection = $1 and number = $2",
            key,
        )
        self._joined: tuple[WeakKeyDictionary[Statement, Statement], ...] = WeakKeyDictionary(), WeakKeyDictionary()
        self._own = WeakSet((self.insert, self.delete))
        """All statements that insert or delete receipts; a set that threads may read while others add to it."""

    def next(self, connection: ServerConnection) -> Receipt | None:
        """Return the receipt of the next commit of a connection, which is in no transaction.

        None if there are no receipts for this role, or for the first commit of a connection: a program that commits
        once needs none.
        """
        if not connection.commits:
            connection.commits = 1
            return None
        table = self._table
        if table is None:
            table = self._table = self._prepare(connection)
        return Receipt(self, connection, table) if table else None

    def renew(self) -> None:
        """Check again at the next commit whether there are receipts, and in which table."""
        self._table = None

    def lack(self, error: StatementRefusedError) -> bool:
        """Return whether a commit may have failed because of its receipt; the next commit checks for receipts again."""
        if error.call is None or error.state not in _NOT_THERE or error.call.statement not in self._own:
            return False
        self.renew()
        return True

    def joined(self, write: Statement, *, if_changed: bool) -> Statement:
        """Return the statement that also inserts a receipt, whose key comes last.

        One statement instead of two saves the server a twentieth of a small transaction.
        """
        found = self._joined[if_changed].get(write)
        if found is None:
            text, place = write.text.decode(), len(write.types) + 1
            insert, key = f"insert into {self._name} (connection, number)", f"${place}, ${place + 1}"
            if if_changed:
                joined = f"with _changed as ({text} returning 1) {insert} select {key} from _changed"
            else:
                receipt = f"{_WITH}_receipt as ({insert} values ({key}))"
                joined = f"{receipt}, {text[len(_WITH) :]}" if _begins_with(write) else f"{receipt} {text}"
            found = Statement(joined, (*write.types, BIGINT, BIGINT), is_small=write.is_small)
            self._own.add(found)
            self._joined[if_changed][write] = found
        return found

    def _prepare(self, connection: ServerConnection) -> int | None:
        """Make the table if necessary, and return the number of its file, which TRUNCATE changes.

        0 if the role may not use it, None if that failed.
        """
        name = literal(self._name)
        look = command(
            f"select pg_relation_filenode(to_regclass({name}))::bigint, "
            f"coalesce(bool_and(has_table_privilege(to_regclass({name}), one)), true) "
            "from unnest(array['SELECT', 'INSERT', 'DELETE']) as one"
        )
        number, permitted = connection.ask(look)[0]
        try:
            if number is None:
                make_late(
                    connection,
                    self._schema,
                    "the receipts of commits",
                    f"create table if not exists {self._name} (connection bigint not null, number bigint not null, "
                    "refused boolean not null default false, at timestamptz not null default now(), "
                    "primary key (connection, number))",
                )
                number, permitted = connection.ask(look)[0]
            if permitted:
                connection.run(command(f"delete from {self._name} where at < now() - interval '{_KEPT_FOR}'"))
        except StatementRefusedError as error:
            _log.info("commits of single calls take a second round trip: %s", error)
            return 0 if error.state == INSUFFICIENT_PRIVILEGE else None
        return int(number or 0) if permitted else 0


def _begins_with(write: Statement) -> bool:
    """Return whether a statement begins with WITH, as the UPDATE and INSERT of an upsert do."""
    return write.text[: len(_WITH)].lower() == _WITH.encode()
