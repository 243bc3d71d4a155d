"""The server's snapshots: the transactions that a snapshot sees, and the settings that keep it for long.

Their text form is `xmin:xmax:xip,...`, as returned by `pg_current_snapshot`.
"""

from __future__ import annotations

from structable.spi import DataCorruptionError

from .connection import ServerConnection
from .statement import Call, command

_LIMITS = {"idle_in_transaction_session_timeout": 90_600, "transaction_timeout": 170_000}
"""Settings that end a transaction by age, and the server versions that introduced them."""


def without_limits(connection: ServerConnection) -> list[Call]:
    """Return the calls that lift the time limits of role, database and server for the current transaction."""
    return [command(f"set local {name} = 0") for name, version in _LIMITS.items() if connection.version >= version]


class Snapshot:
    """The view of a transaction.

    Parameters
    ----------
    text : str
        The server's text.

    Raises
    ------
    DataCorruptionError
        If the text is not a snapshot.
    """

    __slots__ = ("_high", "_low", "_running")

    def __init__(self, text: str) -> None:
        try:
            low, high, self._running = text.split(":")
            self._low, self._high = int(low), int(high)
        except ValueError as error:
            raise DataCorruptionError(f"{text!r} is not a snapshot of PostgreSQL") from error

    def sees(self, transaction: int) -> bool:
        """Return whether a transaction, by its 64-bit number, had ended before the snapshot, if it ever committed."""
        if transaction < self._low:
            return True
        return transaction < self._high and str(transaction) not in self._running.split(",")
