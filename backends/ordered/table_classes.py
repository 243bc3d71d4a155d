"""The class of a table in transactions, by its options and by what its engine can do."""

from __future__ import annotations

from .input_tables import (
    OrderedBlindInputTable,
    OrderedInputTable,
    OrderedKeylessInputTable,
    OrderedMergingInputTable,
)
from .schema.binding import TableBinding
from .table import OrderedTable
from .table_types import OrderedBlindTable, OrderedKeylessTable, OrderedMergingTable

__all__ = ["table_class"]


def table_class(binding: TableBinding, *, takes_operands: bool) -> type[OrderedTable]:
    """Return the class of a table in transactions, of an engine that takes operands or not."""
    plain: type[OrderedTable]
    recording: type[OrderedTable]
    if binding.keyless:
        plain, recording = OrderedKeylessTable, OrderedKeylessInputTable
    elif not binding.spec.table_options.merges:
        plain, recording = OrderedTable, OrderedInputTable
    elif binding.operands is None or not takes_operands:
        plain, recording = OrderedMergingTable, OrderedMergingInputTable
    else:
        plain, recording = OrderedBlindTable, OrderedBlindInputTable
    return recording if binding.feeds_input else plain
