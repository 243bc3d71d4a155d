"""Rows that a call gives to a statement, as one array for each of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from structable.spi import Field

from .names import column_name
from .types import stored_type

__all__ = ["column_of", "given_rows"]


def given_rows(fields: Sequence[Field], arrays: Sequence[sa.ColumnElement[Any]]) -> sa.TableValuedAlias:
    """Return the table of rows with these fields, of which each parameter has one column."""
    columns = [sa.column(quoted_name(column_name(one.name), True), stored_type(one).core) for one in fields]
    return sa.func.unnest(*arrays).table_valued(*columns, name="given").render_derived()


def column_of(given: sa.FromClause, name: str) -> sa.ColumnElement[Any]:
    """Return the column of a field."""
    return given.c[column_name(name)]
