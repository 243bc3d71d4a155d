"""The server's snapshots: visibility of a transaction in one, and the settings that keep one for long.

Their text form is `xmin:xmax:xip,...`, as returned by `pg_current_snapshot`.
"""

from __future__ import annotations

from structable.spi import DataCorruptionError

from .connection import ServerConnection
from .statement import Call, command

__all__ = ["is_visible", "without_limits"]

_LIMITS = {"idle_in_transaction_session_timeout": 90_600, "transaction_timeout": 170_000}
"""Settings that end a transaction by age, and the server versions that introduced them."""


def without_limits(connection: ServerConnection) -> list[Call]:
    """Return the calls that lift the time limits of role, database and server for the current transaction."""
    return [command(f"set local {name} = 0") for name, version in _LIMITS.items() if connection.version >= version]


def is_visible(transaction: int, snapshot: str) -> bool:
    """Tell whether a transaction, by its 64-bit number, had committed when a snapshot was taken, if it ever did."""
    try:
        low, high, running = snapshot.split(":")
        if transaction < int(low):
            return True
        return transaction < int(high) and str(transaction) not in running.split(",")
    except ValueError as error:
        raise DataCorruptionError(f"{snapshot!r} is not a snapshot of PostgreSQL") from error
