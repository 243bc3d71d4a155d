"""`RuledOrderedTable`: a table of a transaction whose fields have rules."""

from __future__ import annotations

from collections.abc import Sequence

from structable.spi import Transaction
from structable.spi.row_rules import RowRules
from structable.spi.ruled_table import RuledTable

from .codec.change_records import NewRecord
from .engine import Step, WriteSet
from .schema.binding import TableBinding
from .table import OrderedTable

__all__ = ["RuledOrderedTable"]


class RuledOrderedTable(RuledTable):
    """The members of the table under the rules that a transaction needs to commit its writes."""

    __slots__ = ("_inner",)

    def __init__(self, table: OrderedTable, rules: RowRules, transaction: Transaction) -> None:
        super().__init__(table, rules, transaction)
        self._inner = table

    @property
    def binding(self) -> TableBinding:
        return self._inner.binding

    @property
    def writes(self) -> dict[bytes, bytes | None]:
        return self._inner.writes

    @property
    def increments(self) -> dict[bytes, tuple[Step, ...]]:
        return self._inner.increments

    @property
    def records(self) -> Sequence[NewRecord]:
        return self._inner.records

    def collect(self, changes: WriteSet) -> None:
        self._inner.collect(changes)
