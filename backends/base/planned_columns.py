"""`PlannedColumns`: the columns that a plan of a table means."""

from __future__ import annotations

from typing import NamedTuple

from structable.spi import Aggregation, TableSpecification, check_aggregation, check_columns
from structable.spi.operations import PlanScan

__all__ = ["PlannedColumns", "planned_columns"]


class PlannedColumns(NamedTuple):
    """The columns of a plan of a table."""

    names: tuple[str, ...]
    """Those of the batches."""
    read: tuple[str, ...]
    """Those of the rows that are read for them, at least one."""
    aggregation: Aggregation | None


def planned_columns(spec: TableSpecification, request: PlanScan) -> PlannedColumns:
    """Return the columns of a plan of a table.

    Raises
    ------
    InvalidFieldError
        As `check_columns` and `check_aggregation` do.
    """
    aggregation = check_aggregation(spec, request.aggregate, request.columns)
    if aggregation is not None:
        return PlannedColumns(aggregation.columns, aggregation.fields or spec.field_names[:1], aggregation)
    names = check_columns(spec, request.columns) or spec.field_names
    return PlannedColumns(names, names, None)
