"""The size of a write set, as counted towards the transaction limit."""

from __future__ import annotations

from structable.spi.rules.transaction_size import check_transaction_size, may_be_too_large

from .engine import WriteSet

__all__ = ["check_write_size"]

_ENTRY_BYTES = 16
"""The maximum overhead of a protocol per entry."""
_AMOUNT_BYTES = 20


def check_write_size(changes: WriteSet) -> None:
    """Reject a transaction whose rows, index entries and increments, with their protocol overhead, are too large."""
    count = len(changes.writes) + len(changes.derived)
    if changes.increments:
        count += sum(map(len, changes.increments.values()))
    if not may_be_too_large(count):
        return
    size = count * _ENTRY_BYTES
    for pairs in (changes.writes, changes.derived):
        size += sum(map(len, pairs)) + sum(map(len, filter(None, pairs.values())))
    for key, steps in changes.increments.items():
        size += sum([len(key) + len(step.schema) + len(step.field) + _AMOUNT_BYTES for step in steps])
    check_transaction_size(size)
