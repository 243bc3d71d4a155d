"""`Session`: all datasets in one transaction."""

from __future__ import annotations

from functools import cached_property

from structable.spi import Transaction

from .system.context import Context
from .system.namespaces import Namespaces

__all__ = ["Session"]


class Session:
    """The system datasets and the user's tables in one transaction; it ends with the transaction.

    Attributes
    ----------
    tx : Transaction
        The transaction.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.tx: Transaction = context.tx

    @cached_property
    def namespaces(self) -> Namespaces:
        """Namespaces."""
        return Namespaces(self._context)
