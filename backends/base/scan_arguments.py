"""`ScanArguments`: the arguments of `plan_scan`, to be used more than once, and the columns that they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from structable.spi import Aggregation, Filter, Range, TableSpecification, check_aggregation, check_columns
from structable.spi.operations import consumed

__all__ = ["PlannedColumns", "ScanArguments"]


class PlannedColumns(NamedTuple):
    """The columns of a plan of a table."""

    names: tuple[str, ...]
    """Those of the batches."""
    read: tuple[str, ...]
    """Those of the rows that are read for them, at least one."""
    aggregation: Aggregation | None


class ScanArguments:
    """The arguments of `plan_scan`, unchecked."""

    __slots__ = ("aggregate", "columns", "range", "splits", "table", "where")

    def __init__(
        self,
        table: str,
        range_: Range,
        where: Filter | None,
        columns: Iterable[str] | None,
        splits: int,
        aggregate: Aggregation | None,
    ) -> None:
        self.table = table
        self.range = range_
        self.where = where
        self.columns = consumed(columns)
        self.splits = splits
        self.aggregate = aggregate

    def planned_columns(self, spec: TableSpecification) -> PlannedColumns:
        """Return the columns for a table.

        Raises
        ------
        InvalidFieldError
            As `check_columns` and `check_aggregation` do.
        """
        aggregation = check_aggregation(spec, self.aggregate, self.columns)
        if aggregation is not None:
            return PlannedColumns(aggregation.columns, aggregation.fields or spec.field_names[:1], aggregation)
        names = check_columns(spec, self.columns) or spec.field_names
        return PlannedColumns(names, names, None)
