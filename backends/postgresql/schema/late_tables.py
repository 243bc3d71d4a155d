"""Tables of structable's own that a schema gets with their first use."""

from __future__ import annotations

import logging

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.sql.names import literal

__all__ = ["make_late"]

_log = logging.getLogger("structable.postgresql")


def make_late(connection: ServerConnection, schema: str, statement: str, what: str) -> None:
    """Run a statement that makes a table or a column; several processes may do so at once.

    The connection is in no transaction. Raises `StatementRefusedError` if the server refuses, e.g. for want of rights.
    """
    lock = f"select pg_advisory_xact_lock(hashtextextended({literal('structable ' + schema)}, 0))"
    try:
        connection.pipeline((command("begin"), command(lock), command(statement), command("commit")))
        _log.info("made %s in the schema %r", what, schema)
    finally:
        connection.roll_back()
