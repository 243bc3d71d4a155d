"""How much one transaction may write: what every store, and every protocol beneath one, can take at once."""

from __future__ import annotations

from .errors import UnsupportedOperationError
from .values import MAX_ROW_SIZE

__all__ = ["CERTAINLY_SMALL_ENOUGH", "check_transaction_size"]

MAX_TRANSACTION_SIZE = 2 * 1024**3
"""Bytes of all rows that a transaction writes, about: keys and values as the store encodes them."""
CERTAINLY_SMALL_ENOUGH = MAX_TRANSACTION_SIZE // MAX_ROW_SIZE
"""Rows that never exceed the limit together, so that their sizes need not be added up."""


def check_transaction_size(size: int) -> None:
    """Check the bytes that a transaction writes, at its commit.

    Raises
    ------
    UnsupportedOperationError
        If they are too many. Nothing was written, and the transaction is still open.
    """
    if size > MAX_TRANSACTION_SIZE:
        raise UnsupportedOperationError(
            f"the transaction writes {size:,} bytes, over the limit of {MAX_TRANSACTION_SIZE:,}; write it in parts, or "
            "as a write job (begin_write), which has no limit"
        )
