"""`RuledPostgreSQLTable`: a table of a transaction whose fields have rules."""

from __future__ import annotations

from structable.spi import Range, TableStatistics, Transaction
from structable.spi.row_rules import RowRules
from structable.spi.ruled_table import RuledTable

from .sql.binding import TableBinding
from .table import PostgreSQLTable

__all__ = ["RuledPostgreSQLTable"]


class RuledPostgreSQLTable(RuledTable):
    """What a transaction and a storage need of the table under the rules, which keeps its rules when it is renewed."""

    __slots__ = ("_inner",)

    def __init__(self, table: PostgreSQLTable, rules: RowRules, transaction: Transaction) -> None:
        super().__init__(table, rules, transaction)
        self._inner = table

    @property
    def binding(self) -> TableBinding:
        return self._inner.binding

    @property
    def written(self) -> bool:
        return self._inner.written

    def statistics(self, range: Range) -> TableStatistics:
        return self._inner.statistics(range)
