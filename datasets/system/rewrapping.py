"""Sealed values under the current master key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from structable.datasets.records import Record, Records
from structable.datasets.secrets.envelope import Sealed, rewrapped
from structable.spi import col

from .context import Context

__all__ = ["rewrap"]

R = TypeVar("R", bound=Record)


def rewrap(context: Context, records: Records[R], limit: int, sealed: Callable[[R], Sealed]) -> int:
    """Wrap up to `limit` values of other master keys with the current one, and return their number.

    Parameters
    ----------
    sealed : callable
        Returns the sealed value of a record.

    Raises
    ------
    SecretError
        If a value was tampered with, or a master key is missing.
    """
    current = context.current_key()
    others: list[R] = []
    # Two ranges of the index; one inequality would read every row.
    for other in (col("key_id") < current, col("key_id") > current):
        with records.scan(where=other, order_by="key_id", limit=limit - len(others)) as found:
            others += found
    spec = records.table.specification
    for one in others:
        key = tuple(getattr(one, name) for name in spec.primary_key)
        new = rewrapped(context.keys, spec.name, key, sealed(one))
        records.change(key, key_id=new.key_id, wrapped=new.wrapped)
    return len(others)
