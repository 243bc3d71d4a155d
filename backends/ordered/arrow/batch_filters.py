"""Evaluation of bound filters on Arrow record batches, a column at a time, and the rows that meet a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute

from structable.backends.ordered.engine import BATCH_BYTES, BATCH_ROWS, RawRows
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import Field, FieldType, Filter, TableSpecification, Value
from structable.spi.arrow import arrow_schema, arrow_type
from structable.spi.authors import (
    And,
    Comparison,
    FieldComparison,
    IsIn,
    IsNull,
    Operator,
    Or,
    StartsWith,
    UnboundFilterError,
    is_nan,
)

from .buffers import Array
from .decoder import ArrowDecoder

BatchPredicate: TypeAlias = "Callable[[pa.RecordBatch], pa.BooleanArray]"
_BatchCondition: TypeAlias = Callable[[Array], Array]

_compute: Any = compute
"""The module without its type stubs, which do not distinguish arrays from scalars."""

_is_nan: _BatchCondition = _compute.is_nan
_is_valid: _BatchCondition = _compute.is_valid
_COMPARISONS: dict[Operator, Callable[[Array, Any], Array]] = {
    Operator.EQ: _compute.equal,
    Operator.NE: _compute.not_equal,
    Operator.LT: _compute.less,
    Operator.LE: _compute.less_equal,
    Operator.GT: _compute.greater,
    Operator.GE: _compute.greater_equal,
}


def compile_batch_filter(spec: TableSpecification, where: Filter) -> BatchPredicate:
    """Return a function that evaluates a bound filter on the rows of a batch, with the results of `compile_filter`.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    where : Filter
        As `bind_filter` returned it.

    Returns
    -------
    callable
        Takes a batch of rows of the table, with all columns of the filter in the types of `arrow_schema`, and returns
        one boolean for each row, never null.
    """
    # Negations occur only at the leaves. So null may stand for false until the end: it makes nothing true.
    evaluate = _compiled(spec, where)
    return lambda batch: _compute.fill_null(evaluate(batch), False)


def _compiled(spec: TableSpecification, where: Filter) -> Callable[[pa.RecordBatch], Array]:
    match where:
        case And(parts) | Or(parts):
            join = _compute.and_kleene if isinstance(where, And) else _compute.or_kleene
            conditions = [_compiled(spec, part) for part in parts]
            return lambda batch: reduce(join, (condition(batch) for condition in conditions))
        case IsNull(name, negated):
            return lambda batch: batch.column(name).is_valid() if negated else batch.column(name).is_null()
        case Comparison(name, operator, value):
            compared = _comparison(spec.field(name), operator, value)
            return lambda batch: compared(batch.column(name))
        case FieldComparison(name, operator, other):
            both = _fields_comparison(spec.field(name), operator, spec.field(other))
            return lambda batch: both(batch.column(name), batch.column(other))
        case IsIn(name, values, negated):
            found = _membership(spec.field(name), values, negated)
            return lambda batch: found(batch.column(name))
        case StartsWith(name, prefix, negated):
            starts = partial(_compute.starts_with, pattern=prefix)
            return lambda batch: _compute.invert(starts(batch.column(name))) if negated else starts(batch.column(name))
    raise UnboundFilterError(where)


def _comparison(field: Field, operator: Operator, value: Value) -> _BatchCondition:
    # NaN is greater than every number and equals itself.
    if is_nan(value):
        match operator:
            case Operator.EQ | Operator.GE:
                return _is_nan
            case Operator.NE | Operator.LT:
                return lambda column: _compute.invert(_is_nan(column))
            case Operator.LE:
                return _is_valid
            case Operator.GT:
                return _constant(False)
    compare, constant = _COMPARISONS[operator], pa.scalar(value, arrow_type(field))
    if field.type.floating and operator in (Operator.GT, Operator.GE):
        return lambda column: _compute.or_(compare(column, constant), _is_nan(column))
    return lambda column: compare(column, constant)


def _fields_comparison(one: Field, operator: Operator, other: Field) -> Callable[[Array, Array], Array]:
    compare = _COMPARISONS[operator]
    if one.type is FieldType.DECIMAL and one.scale != other.scale:
        # The type that Arrow would choose for both may have too many digits.
        wide = pa.decimal256(76, max(one.scale or 0, other.scale or 0))
        return lambda left, right: compare(left.cast(wide), right.cast(wide))
    if not one.type.floating:
        return compare
    match operator:
        case Operator.EQ:
            return lambda left, right: _compute.or_(compare(left, right), _compute.and_(_is_nan(left), _is_nan(right)))
        case Operator.NE:
            equal = _fields_comparison(one, Operator.EQ, other)
            return lambda left, right: _compute.invert(equal(left, right))
        case Operator.LT:
            return lambda a, b: _compute.or_(compare(a, b), _compute.and_not(_is_nan(b), _is_nan(a)))
        case Operator.LE:
            return lambda left, right: _compute.or_(compare(left, right), _is_nan(right))
    exchanged = _fields_comparison(other, operator.mirrored, one)
    return lambda left, right: exchanged(right, left)


def _membership(field: Field, values: Sequence[Value], negated: bool) -> _BatchCondition:
    if not values:
        return _constant(negated)
    found = _found(field, values)
    return (lambda column: _compute.and_(_compute.invert(found(column)), column.is_valid())) if negated else found


def _found(field: Field, values: Sequence[Value]) -> _BatchCondition:
    numbers = pa.array([value for value in values if not is_nan(value)], arrow_type(field))
    if not field.type.floating:
        return partial(_compute.is_in, value_set=numbers)
    # Arrow's sets distinguish -0.0 from 0.0; adding 0.0 makes them equal.
    zero = pa.scalar(0.0, numbers.type)
    numbers = _compute.add(numbers, zero)

    def among(column: Array) -> Array:
        found: Array = _compute.is_in(_compute.add(column, zero), value_set=numbers)
        return found

    if any(map(is_nan, values)):
        return lambda column: _compute.or_(among(column), _is_nan(column))
    return among


def _constant(truth: bool) -> _BatchCondition:
    return lambda column: pa.repeat(pa.scalar(truth), len(column))


def matching_batches(
    schema: TableSchema, columns: tuple[str, ...], where: Filter | None, rows: Iterator[RawRows]
) -> Iterator[pa.RecordBatch]:
    """Yield the raw rows for which a bound filter is true, in their order, as batches of columns."""
    if where is None:
        return ArrowDecoder(schema, columns).batches(rows)
    decoded = ArrowDecoder(schema, tuple(dict.fromkeys([*columns, *where.fields()])))
    matches = compile_batch_filter(schema.spec, where)
    chosen = (batch.filter(matches(batch)).select(columns) for batch in decoded.batches(rows))
    return _joined(chosen, arrow_schema(schema.spec, columns))


def _joined(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Join small batches; the first are yielded early, for readers that need only a few rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    wanted = 1
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= wanted or size >= BATCH_BYTES:
            yield _concatenated(held, schema)
            held, rows, size = [], 0, 0
            wanted = min(2 * wanted, BATCH_ROWS)
    if held:
        yield _concatenated(held, schema)


def _concatenated(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(position) for batch in batches]) for position in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
