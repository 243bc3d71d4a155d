"""The size limit of a transaction's writes: one limit for all stores, within the limits of each store and protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from structable.spi._errors import UnsupportedOperationError
from structable.spi._values import MAX_ROW_SIZE

MAX_TRANSACTION_SIZE = 2 * 1024**3
"""The maximum size of the keys and values that a transaction writes, as the store encodes them, in bytes."""
# A row takes slightly more than it counts, so that this many writes never exceed the limit together.
_CERTAINLY_SMALL = MAX_TRANSACTION_SIZE // (2 * MAX_ROW_SIZE)

_limit = MAX_TRANSACTION_SIZE
_small = _CERTAINLY_SMALL


def may_be_too_large(writes: int) -> bool:
    """Return whether this number of writes may exceed the limit; if not, their sizes need not be added up."""
    return writes > _small


def check_transaction_size(size: int) -> None:
    """Check the bytes that a transaction writes: including the next write, or all of them at its commit.

    Raises
    ------
    UnsupportedOperationError
        If they are too many. The call that raises it changes nothing, and the transaction is still open.
    """
    if size > _limit:
        raise UnsupportedOperationError(
            f"the transaction writes {size:,} bytes, over the limit of {_limit:,}; split it, or use a write "
            "job (begin_write), which has no limit"
        )


@contextmanager
def lowered_limit(size: int) -> Iterator[None]:
    """Let all transactions of this process write at most `size` bytes, for tests of the limit."""
    global _limit, _small
    _limit, _small = size, 0
    try:
        yield
    finally:
        _limit, _small = MAX_TRANSACTION_SIZE, _CERTAINLY_SMALL
