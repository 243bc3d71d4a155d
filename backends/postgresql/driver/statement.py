"""`Statement` and `Call`: SQL with parameters in binary. The types of parameters, and the commands of transactions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from structable.spi import Isolation, UnsupportedOperationError

# The server's own types, whose numbers are the same on every server, for parameters that are not fields.
BYTEA = 17
CHAR = 18
BIGINT = 20
INTEGER = 23
TEXT = 25
TID = 27
BYTEA_ARRAY = 1001
CHAR_ARRAY = 1002
TEXT_ARRAY = 1009
TID_ARRAY = 1010
BIGINT_ARRAY = 1016
TIMESTAMPTZ = 1184
NUMERIC = 1700

_MOST_BYTES = 512 << 20
"""Half of the largest message: an array of short texts takes nearly twice the sent bytes in the server."""
_numbers = itertools.count(1)


class Statement:
    """A statement in SQL, with `$1` for its parameters.

    The server keeps the plan of a prepared statement as long as the table's statistics stay, however much the table
    grows. So a statement is prepared only if one index finds its rows, whatever their number. In a transaction it is
    planned with no other path allowed (`planning`). All others are planned each time, freely.

    Parameters
    ----------
    text : str
        The SQL.
    types : sequence of int
        The types of the parameters.
    prepare : bool
        Whether the server prepares it.
    is_small : bool
        Whether its parameters always fit a message, such as the values of one row.
    """

    __slots__ = ("__weakref__", "formats", "is_planned_freely", "is_small", "name", "text", "types")

    def __init__(self, text: str, types: Sequence[int] = (), *, prepare: bool = True, is_small: bool = True) -> None:
        self.text = text.encode()
        self.types = tuple(types)
        self.formats = (1,) * len(self.types)
        self.name = b"s%d" % next(_numbers) if prepare else b""
        self.is_small = prepare and is_small
        self.is_planned_freely = not prepare

    def after(self, prefix: str) -> Statement:
        """Return this statement with a prefix such as EXPLAIN, to be used once."""
        other = Statement(prefix, self.types, prepare=False)
        other.text += self.text
        other.is_planned_freely = self.is_planned_freely
        return other

    def __repr__(self) -> str:
        return f"Statement({self.text.decode()!r})"


Values = tuple[Any, ...]
"""One row of a result, with the types of the statement's columns."""


class Call(NamedTuple):
    """A statement and its parameters, in binary."""

    statement: Statement
    parameters: Sequence[bytes | None] = ()


Ask = Callable[[Call], list[Values]]
"""Runs a statement and returns its rows."""


def require_sendable(statement: Statement, parameters: Sequence[bytes | None]) -> None:
    """Reject a statement so large that the server would end the connection, before it is sent.

    Raises
    ------
    UnsupportedOperationError
        With its size and the limit.
    """
    if statement.is_small:
        return
    size = len(statement.text) + sum([len(one) for one in parameters if one is not None])
    if size > _MOST_BYTES:
        raise UnsupportedOperationError(
            f"a statement of PostgreSQL has {_MOST_BYTES:,} bytes at most, and the ranges, keys and values given have "
            f"{size:,}; divide them among several calls"
        )


def command(text: str) -> Call:
    """Return a call of a command, which the server neither prepares nor plans."""
    statement = Statement(text, prepare=False)
    statement.is_planned_freely = False
    return Call(statement)


BEGIN_READING = command("begin isolation level repeatable read read only")
BEGIN_WRITING = command("begin isolation level read committed read write")
LOCK_LIMIT = command("set local lock_timeout = 1000")
"""The command that lets the statements of a transaction wait a second for each lock."""

# Prepared once on each connection: transactions of users take them.
BEGIN = {
    (isolation, read_only): Call(
        Statement(f"begin isolation level {level} {'read only' if read_only else 'read write'}")
    )
    for isolation, level in ((Isolation.SNAPSHOT, "repeatable read"), (Isolation.SERIALIZABLE, "serializable"))
    for read_only in (False, True)
}
BEGIN_WAITING = Call(Statement("begin isolation level read committed read write"))
IDENTIFY = {
    True: Call(Statement("select null, pg_current_snapshot()::text")),
    # The outcome is looked up by the transaction's number if the connection breaks during the commit.
    False: Call(Statement("select pg_current_xact_id()::text, pg_current_snapshot()::text")),
}
"""The calls that return number and snapshot of a transaction, by whether it only reads."""
COMMIT = Call(Statement("commit"))
