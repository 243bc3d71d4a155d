"""How far the fill of a field is, as the packages say that fill fields, by entry points of group `structable.fills`."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from .errors import StructableError

if TYPE_CHECKING:
    from .transactions import Transaction

__all__ = ["FILLS_GROUP", "fill_progress"]

FILLS_GROUP = "structable.fills"
"""Functions of a transaction, a table and a field; they return the share of rows that is filled, None if unknown."""


def fill_progress(transaction: Transaction, table: str, field: str) -> str:
    """Return the progress for an error, such as ", 42 %"; empty if it is unknown."""
    for entry in entry_points(group=FILLS_GROUP):
        with suppress(ImportError, StructableError):  # the error that this is for matters more
            share = entry.load()(transaction, table, field)
            if share is not None:
                return f", {int(share * 100)} %"
    return ""
