"""`ScanRequest`: the arguments of a scan, checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from structable.spi._error_texts import shown
from structable.spi._errors import InvalidFieldError
from structable.spi._filters import And, Comparison, Filter, IsNull, Operator
from structable.spi._operations import Scan
from structable.spi._ranges import Range
from structable.spi._specification import TableSpecification
from structable.spi._value_checks import check_value
from structable.spi._values import Value

from .arguments import check_columns, check_flag, check_indexed_field, check_many
from .filters import bind_filter
from .keyless import check_rows_kept
from .ranges import check_range

_MOST_SPLITS = 10_000

_MOST_ROWS = sys.maxsize // 2
"""A limit above the rows of any table, small enough that the transaction's own writes can be added to it."""


@dataclass(slots=True)  # a frozen one takes three times as long to make, and each scan makes one
class ScanRequest:
    """The checked arguments of a scan; never changed afterwards.

    Parameters
    ----------
    ranges : tuple of Range
        As `check_range` returned them; the scan reads their union.
    where : Filter or None
        As `bind_filter` returned it.
    columns : tuple of str or None
        The columns of the rows, key fields first; None for all.
    order_by : str or None
        The field that precedes the key in the order; None for key order.
    reverse : bool
        Whether the order is reversed.
    limit : int or None
        The maximum number of rows.
    limit_per_range : int or None
        The maximum number of rows of each range, before `limit`.
    """

    ranges: tuple[Range, ...]
    where: Filter | None
    columns: tuple[str, ...] | None
    order_by: str | None
    reverse: bool
    limit: int | None
    limit_per_range: int | None = None

    @classmethod
    def checked(cls, spec: TableSpecification, scan: Scan, ranges: Sequence[object] | None = None) -> Self:
        """Return the request for a user's arguments, with `ranges`, if they are given, in place of the scan's.

        Raises
        ------
        InvalidFieldError
            If one does not fit the table.
        UnsupportedOperationError
            If the table is a log, which keeps no rows.
        """
        check_rows_kept(spec)
        given = check_many(spec, "ranges", scan.ranges) if ranges is None else ranges
        request = cls(
            tuple([check_range(spec, one) for one in given]),
            bind_filter(spec, scan.where),
            row_columns(spec, scan.columns),
            check_order(spec, scan.order_by),
            check_flag(spec, "reverse", scan.reverse),
            check_limit(spec, scan.limit),
            check_limit(spec, scan.limit_per_range, "limit_per_range"),
        )
        return request if scan.indexed is None else request._with_index_value(spec, *scan.indexed)

    @property
    def per_range(self) -> tuple[Self, ...]:
        """The scans of the single ranges, each up to `limit_per_range`, whose union up to `limit` is the result."""
        limits = [one for one in (self.limit, self.limit_per_range) if one is not None]
        limit = min(limits, default=None)
        return tuple([replace(self, ranges=(range_,), limit=limit, limit_per_range=None) for range_ in self.ranges])

    def whole_keys(self, spec: TableSpecification) -> tuple[tuple[Value, ...], ...] | None:
        """Return the distinct keys of the ranges, if each range is one whole primary key; None otherwise."""
        width = len(spec.primary_key)
        keys: dict[tuple[Value, ...], None] = {}
        for range_ in self.ranges:
            begin = range_.begin
            if begin is None or len(begin) != width or begin != range_.end:
                return None
            if not (range_.begin_inclusive and range_.end_inclusive):
                return None
            keys[tuple(begin)] = None
        return tuple(keys)

    @property
    def conjuncts(self) -> tuple[Filter, ...]:
        """Conditions that must all be true."""
        if isinstance(self.where, And):
            return self.where.parts
        return () if self.where is None else (self.where,)

    def _with_index_value(self, spec: TableSpecification, name: object, value: Value) -> Self:
        """Return the request for only the rows whose indexed field equals a value; None finds nulls.

        Raises
        ------
        InvalidFieldError
            If the field has no index, or the value does not fit it.
        """
        field = check_indexed_field(spec, name)
        if value is None:
            condition: Filter = IsNull(field.name)
        else:
            condition = Comparison(field.name, Operator.EQ, check_value(spec.name, field, value))
        return replace(self, where=And((condition, *self.conjuncts)) if self.where is not None else condition)


def row_columns(spec: TableSpecification, columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the columns of a read's rows, key fields first; None for all.

    Raises
    ------
    InvalidFieldError
        As `check_columns` does.
    """
    if columns is None:
        return None
    names, key = check_columns(spec, columns) or (), spec.primary_key
    return key + tuple([name for name in names if name not in key])


def check_order(spec: TableSpecification, order_by: object) -> str | None:
    """Return the field that precedes the key in the order of a scan; None for key order.

    Raises
    ------
    InvalidFieldError
        If it is neither of the key nor indexed.
    """
    if order_by is None or order_by in spec.primary_key[:1]:
        return None
    if isinstance(order_by, str) and order_by in spec.primary_key:
        return order_by
    return check_indexed_field(spec, order_by).name


def check_limit(spec: TableSpecification, limit: object, argument: str = "limit") -> int | None:
    """Return a scan's limit, a number of rows; None is without limit. `argument` is its name, for the message.

    Raises
    ------
    InvalidFieldError
        If it is negative or not an int.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidFieldError(spec.name, argument, f"{shown(limit)} is not a number of rows, 0 or more")
    return min(int(limit), _MOST_ROWS)


def check_splits(splits: object) -> int:
    """Return the number of splits of a plan, at most 10,000: no store makes more.

    Raises
    ------
    ValueError
        If it is not an int of at least 1.
    """
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splits is {shown(splits)}; it must be a whole number of at least 1")
    return min(int(splits), _MOST_SPLITS)
