"""The statements around those of a table: at the beginning and the end of transactions, and settings of plans."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import pq

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import StatementRefusedError
from structable.backends.postgresql.driver.planning import PLAN_BY_INDEX
from structable.backends.postgresql.driver.sqlstates import TRANSACTION_ROLLBACK
from structable.backends.postgresql.driver.statement import Call, Statement
from structable.spi import Isolation

__all__ = ["BEGIN", "BEGIN_WAITING", "COMMIT", "NUMBER_AND_SNAPSHOT", "SNAPSHOT", "require_commit", "with_plans"]

BEGIN = {
    (isolation, read_only): Call(
        Statement(f"begin isolation level {level} {'read only' if read_only else 'read write'}")
    )
    for isolation, level in ((Isolation.SNAPSHOT, "repeatable read"), (Isolation.SERIALIZABLE, "serializable"))
    for read_only in (False, True)
}
BEGIN_WAITING = Call(Statement("begin isolation level read committed read write"))
SNAPSHOT = Call(Statement("select null, pg_current_snapshot()::text"))
# The outcome is looked up by the transaction's number if the connection breaks during the commit.
NUMBER_AND_SNAPSHOT = Call(Statement("select pg_current_xact_id()::text, pg_current_snapshot()::text"))
COMMIT = Call(Statement("commit"))


def with_plans(connection: ServerConnection, calls: Iterable[Call]) -> list[Call]:
    """Return calls with the settings around those that the server plans freely."""
    found: list[Call] = []
    for call in calls:
        found += (connection.plan_freely, call, PLAN_BY_INDEX) if call.statement.is_planned_freely else (call,)
    return found


def require_commit(result: pq.abc.PGresult) -> None:
    """Raise `StatementRefusedError` for a COMMIT that the server answered with a rollback."""
    if result.command_status != b"COMMIT":
        raise StatementRefusedError(TRANSACTION_ROLLBACK, "the server rolled the transaction back")
