"""Scans as queries: what is asked for, checked, and the statement that answers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.session import Call, Statement
from structable.spi import Filter, Range, Value
from structable.spi.filters import Comparison, IsNull, Operator, bind_filter
from structable.spi.ranges import check_range
from structable.spi.rules.arguments import check_flag, check_many
from structable.spi.rules.scans import check_indexed_field, check_order
from structable.spi.rules.values import check_limit, check_value

from .binding import TableBinding, compiled
from .conditions import Conditions

__all__ = ["ScanRequest", "condition_of", "count_statement", "scan_query", "scan_request", "scan_statement"]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan with checked arguments.

    Parameters
    ----------
    ranges : tuple of Range
        As `check_range` returned them.
    where : Filter or None
        As `bind_filter` returned it.
    columns : tuple of str or None
        Those of the rows, the key among them; None for all.
    order_by : str or None
        The field that comes before the key in the order.
    reverse : bool
        Whether the order is reversed.
    limit : int or None
        The most rows.
    index_test : Filter or None
        The test of `scan_index`.
    """

    ranges: tuple[Range, ...]
    where: Filter | None
    columns: tuple[str, ...] | None
    order_by: str | None
    reverse: bool
    limit: int | None
    index_test: Filter | None = None

    def with_index_value(self, binding: TableBinding, field: object, value: Value) -> ScanRequest:
        """Return the request for the rows of one value of an index; None finds nulls.

        Raises
        ------
        InvalidFieldError
            If the field has no index, or the value does not fit it.
        """
        spec = binding.spec
        name = check_indexed_field(spec, field)
        if value is None:
            return replace(self, index_test=IsNull(name))
        checked = check_value(spec.name, spec.field(name), value)
        return replace(self, index_test=Comparison(name, Operator.EQ, checked))


def scan_request(
    binding: TableBinding,
    ranges: Iterable[Range],
    *,
    where: Filter | None = None,
    columns: Iterable[str] | None = None,
    order_by: str | None = None,
    reverse: bool = False,
    limit: int | None = None,
) -> ScanRequest:
    """Check the arguments of a scan.

    Raises
    ------
    InvalidFieldError
        If one does not fit the table.
    """
    spec = binding.spec
    names = None if columns is None else binding.shape_of(columns).columns
    return ScanRequest(
        tuple(check_range(spec, one) for one in check_many(spec, "ranges", ranges)),
        None if where is None else bind_filter(spec, where),
        names,
        check_order(spec, order_by),
        check_flag(spec, "reverse", reverse),
        check_limit(spec, limit),
    )


def condition_of(binding: TableBinding, request: ScanRequest) -> tuple[Conditions, list[sa.ColumnElement[bool]]]:
    """Return the conditions of a scan's rows, and their parameters."""
    conditions = Conditions(binding)
    found: list[sa.ColumnElement[bool]] = []
    inside = conditions.ranges(request.ranges)
    if inside is not None:
        found.append(inside)
    for test in (request.index_test, request.where):
        if test is not None:
            found.append(conditions.filter(test))
    return conditions, [*found, binding.current]


def scan_query(
    binding: TableBinding, request: ScanRequest, columns: Sequence[sa.ColumnElement[Any]]
) -> tuple[sa.Select[Any], Conditions]:
    """Return the query of a scan in its order, and its parameters."""
    conditions, tests = condition_of(binding, request)
    query = sa.select(*columns).select_from(binding.core).where(*tests)
    if request.limit is not None:
        query = query.limit(sa.literal_column(str(min(request.limit, (1 << 63) - 1)), sa.BigInteger()))
    order = [binding.core.c[name] for name in binding.spec.primary_key]
    first: list[sa.ColumnElement[Any]] = []
    if request.order_by is not None:
        column = binding.core.c[request.order_by]
        if request.order_by in binding.spec.primary_key:
            first = [column.desc() if request.reverse else column]
        else:
            first = [column.desc().nulls_last() if request.reverse else column.asc().nulls_first()]
    return query.order_by(*first, *(column.desc() if request.reverse else column for column in order)), conditions


def scan_statement(binding: TableBinding, request: ScanRequest) -> tuple[Statement, list[bytes | None]]:
    """Return a scan's statement and its parameters in binary."""
    names = request.columns or binding.shape.columns
    query, conditions = scan_query(binding, request, [binding.core.c[name] for name in names])
    statement, order = compiled(query, conditions.types)
    return statement, [conditions.values[name] for name in order]


def count_statement(binding: TableBinding, request: ScanRequest) -> Call:
    """Return the call that counts a scan's rows."""
    conditions, tests = condition_of(binding, request)
    query = sa.select(sa.func.count()).select_from(binding.core).where(*tests)
    statement, order = compiled(query, conditions.types)
    return Call(
        Statement(statement.text.decode(), statement.types, prepare=False), [conditions.values[n] for n in order]
    )
