"""The server's snapshots in their text form, `xmin:xmax:xip,...`, as `pg_current_snapshot` gives them."""

from __future__ import annotations

from structable.spi import DataCorruptionError

__all__ = ["is_visible"]


def is_visible(transaction: int, snapshot: str) -> bool:
    """Tell whether a transaction, by its 64-bit number, had committed when a snapshot was taken, if it did at all."""
    try:
        low, high, running = snapshot.split(":")
        if transaction < int(low):
            return True
        return transaction < int(high) and str(transaction) not in running.split(",")
    except ValueError as error:
        raise DataCorruptionError(f"{snapshot!r} is not a snapshot of PostgreSQL") from error
