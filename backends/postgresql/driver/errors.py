"""Errors of the server and of connections to it, and their translation to structable's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import pq

from structable.spi import (
    DataCorruptionError,
    StorageUnavailableError,
    StructableError,
    TransactionConflictError,
    UnsupportedOperationError,
)

from .statement import Call

# The SQLSTATEs that structable distinguishes, by the server's own names.
FEATURE_NOT_SUPPORTED = "0A000"
CARDINALITY_VIOLATION = "21000"
NUMERIC_VALUE_OUT_OF_RANGE = "22003"
DIVISION_BY_ZERO = "22012"
INVALID_PARAMETER_VALUE = "22023"
FOREIGN_KEY_VIOLATION = "23503"
UNIQUE_VIOLATION = "23505"
READ_ONLY_SQL_TRANSACTION = "25006"
INVALID_SQL_STATEMENT_NAME = "26000"
INVALID_SCHEMA_NAME = "3F000"
TRANSACTION_ROLLBACK = "40000"
SERIALIZATION_FAILURE = "40001"
DEADLOCK_DETECTED = "40P01"
INSUFFICIENT_PRIVILEGE = "42501"
UNDEFINED_COLUMN = "42703"
UNDEFINED_OBJECT = "42704"
DUPLICATE_OBJECT = "42710"
UNDEFINED_FUNCTION = "42883"
UNDEFINED_TABLE = "42P01"
DUPLICATE_PREPARED_STATEMENT = "42P05"
DUPLICATE_TABLE = "42P07"
OUT_OF_MEMORY = "53200"
TOO_MANY_COLUMNS = "54011"
OBJECT_NOT_IN_PREREQUISITE_STATE = "55000"
LOCK_NOT_AVAILABLE = "55P03"
QUERY_CANCELED = "57014"
INTERNAL_ERROR = "XX000"

STALE = frozenset({UNDEFINED_TABLE, UNDEFINED_FUNCTION, UNDEFINED_COLUMN, UNDEFINED_OBJECT, INVALID_SCHEMA_NAME})
"""The errors if a table, function, column or schema was dropped, or has changed since the statement was made."""
FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
"""The results of a statement that the server rejected."""
_GONE = ("cache lookup failed for ", "could not open relation with OID ")
"""Unlocalised messages about an object that was dropped between the parsing and the run of a statement."""
_FATAL = frozenset({"FATAL", "PANIC"})
"""The severities with which the server, or a pooler, ends the connection, as at a shutdown or by a time limit."""
_FOREIGN_STATES = frozenset({INVALID_SQL_STATEMENT_NAME, DUPLICATE_PREPARED_STATEMENT})
_FOREIGN_MESSAGES = frozenset(
    {
        "prepared statement did not exist",
        "prepared statement name is already in use",
        "transaction blocks not allowed in statement pooling mode",
    }
)
"""Messages of PgBouncer, whose errors share one SQLSTATE; it ends the connection, and the transaction in the server."""
_UNSUPPORTED = {"RevalidateCachedQuery": UNDEFINED_FUNCTION, "call_bool_check_hook": READ_ONLY_SQL_TRANSACTION}
"""The meaning of "not supported" by the server's function that reports it, since messages are localised: the table of a
prepared statement has other columns now; a standby was asked to begin a transaction that may write."""
_CONFLICTS = frozenset({TRANSACTION_ROLLBACK, SERIALIZATION_FAILURE, DEADLOCK_DETECTED, UNIQUE_VIOLATION})
_TOO_LARGE = "54"
_UNAVAILABLE = ("080", "53", "57", "58", "28", "3D", "55", "25", "XX001", "XX002")


class PostgreSQLError(Exception):
    """The server rejected a statement, or the connection to it broke."""


class StatementRefusedError(PostgreSQLError):
    """The server rejected a statement; `state` is the SQLSTATE, and `detail` may contain values.

    `call` is the statement, if it was one of `ServerConnection.run` or `ServerConnection.pipeline`.
    """

    call: Call | None = None

    def __init__(self, state: str, message: str, detail: str = "") -> None:
        super().__init__(state, message, detail)
        self.state = state
        self.message = message
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.message} (SQLSTATE {self.state})"


class ForeignSessionError(StatementRefusedError):
    """The server's session is another client's, and no sent statement has an effect. The connection is closed."""

    def __init__(self, reason: str) -> None:
        super().__init__(INVALID_SQL_STATEMENT_NAME, reason)


class BrokenConnectionError(PostgreSQLError):
    """The connection broke: the server may or may not have run the statements that were sent."""


def server_error(result: pq.abc.PGresult) -> Exception:
    """Return the error of a failed result."""
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    if sqlstate is None:
        return BrokenConnectionError(result.error_message.decode(errors="replace").strip())
    state = sqlstate.decode()

    def text(field: pq.DiagnosticField) -> str:
        return (result.error_field(field) or b"").decode(errors="replace")

    message = text(pq.DiagnosticField.MESSAGE_PRIMARY)
    if state in _FOREIGN_STATES or message in _FOREIGN_MESSAGES:
        return ForeignSessionError(message)
    # PgBouncer sends only the severity that a server would localise.
    if (text(pq.DiagnosticField.SEVERITY_NONLOCALIZED) or text(pq.DiagnosticField.SEVERITY)) in _FATAL:
        return BrokenConnectionError(message)
    if state == INTERNAL_ERROR and message.startswith(_GONE):
        state = UNDEFINED_FUNCTION
    if state == FEATURE_NOT_SUPPORTED:
        state = _UNSUPPORTED.get(text(pq.DiagnosticField.SOURCE_FUNCTION), state)
    return StatementRefusedError(state, message, text(pq.DiagnosticField.MESSAGE_DETAIL))


def require_commit(result: pq.abc.PGresult) -> None:
    """Raise `StatementRefusedError` for a COMMIT that the server answered with a rollback."""
    if result.command_status != b"COMMIT":
        raise StatementRefusedError(TRANSACTION_ROLLBACK, "the server rolled the transaction back")


def sessions_not_pooled(what: str, reason: str) -> StorageUnavailableError:
    """Return the error for a pooler that gave this program's session to another client; `what` names the activity."""
    found = StorageUnavailableError(
        f"{what}: the pooler does not pool sessions ({reason}); set pool_mode = session in PgBouncer, and leave its "
        "server_reset_query DISCARD ALL; or connect to the server itself"
    )
    found.lasting = True
    return found


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raise structable's error for an error of the server in the block, see `translated`."""
    try:
        yield
    except PostgreSQLError as error:
        raise translated(error, what) from error


def translated(error: Exception, what: str) -> StructableError:
    """Return structable's error, for failures that committed nothing; `what` names the activity."""
    if isinstance(error, StructableError):
        return error
    if not isinstance(error, StatementRefusedError):
        return StorageUnavailableError(f"{what}: the connection to PostgreSQL was lost: {error}")
    if isinstance(error, ForeignSessionError):
        return sessions_not_pooled(what, error.message)
    if error.state in _CONFLICTS:
        return TransactionConflictError(f"{what}: another transaction won: {error}")
    if error.state in STALE:
        return DataCorruptionError(f"{what}: the table was altered outside structable: {error}")
    if error.state.startswith(_TOO_LARGE) or error.state == FEATURE_NOT_SUPPORTED:
        return UnsupportedOperationError(f"{what}: PostgreSQL does not support this: {error}")
    if error.state == READ_ONLY_SQL_TRANSACTION:
        return StorageUnavailableError(
            f"{what}: the server accepts no writes, like a standby; to read, use read-only transactions or "
            f"connect with read_only=True: {error}"
        )
    if error.state == INSUFFICIENT_PRIVILEGE:
        denied = StorageUnavailableError(f"{what}: the role lacks a privilege: {error}")
        denied.lasting = True
        return denied
    if error.state.startswith(_UNAVAILABLE):  # not 08P01: a message that the server cannot read is our fault
        return StorageUnavailableError(f"{what}: {error}")
    return DataCorruptionError(f"{what}: PostgreSQL refused a statement of structable: {error}")
