"""Scans as queries: the statement for a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Call
from structable.spi.rules.scans import ScanRequest

from .binding import TableBinding
from .conditions import Conditions

__all__ = ["condition_of", "count_call", "scan_query", "scan_call"]


def condition_of(binding: TableBinding, request: ScanRequest) -> tuple[Conditions, list[sa.ColumnElement[bool]]]:
    """Return the conditions of a scan's rows, and their parameters."""
    conditions = Conditions(binding)
    return conditions, [*conditions.tests(request), binding.current]


def scan_query(
    binding: TableBinding, request: ScanRequest, columns: Sequence[sa.ColumnElement[Any]]
) -> tuple[sa.Select[Any], Conditions]:
    """Return the query of a scan in its order, and its parameters."""
    conditions = Conditions(binding)
    if request.limit_per_range is None:
        tests = [*conditions.tests(request), binding.current]
    else:
        key = [binding.core.c[name] for name in binding.spec.primary_key]
        firsts = [_in_order(binding, one, conditions.tests(one), key) for one in request.per_range]
        tests = [sa.or_(sa.false(), *(sa.tuple_(*key).in_(first) for first in firsts)), binding.current]
    return _in_order(binding, request, tests, columns), conditions


def _in_order(
    binding: TableBinding,
    request: ScanRequest,
    tests: Sequence[sa.ColumnElement[bool]],
    columns: Sequence[sa.ColumnElement[Any]],
) -> sa.Select[Any]:
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
    return query.order_by(*first, *(column.desc() if request.reverse else column for column in order))


def scan_call(binding: TableBinding, request: ScanRequest, prefix: str) -> Call:
    """Return the call of a scan after a prefix such as EXPLAIN or DECLARE."""
    names = request.columns or binding.shape.columns
    query, conditions = scan_query(binding, request, [binding.core.c[name] for name in names])
    return conditions.call(query, prefix)


def count_call(binding: TableBinding, request: ScanRequest) -> Call:
    """Return the call that counts a scan's rows."""
    conditions, tests = condition_of(binding, request)
    return conditions.call(sa.select(sa.func.count()).select_from(binding.core).where(*tests))
