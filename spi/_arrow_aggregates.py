"""Partial aggregates of Arrow batches, for stores that compute them where the rows are read. Imports pyarrow.

Numbers become decimals, which Arrow multiplies and adds exactly, of as few digits as the numbers of the batch need.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ._aggregates import AggregateExpression, Aggregation
from ._arrow import arrow_type
from ._errors import InvalidFieldError
from ._expressions import Arithmetic, Constant, Expression, FieldValue
from ._rules.aggregates import MOST_DIGITS, digits_of, result_fields
from ._specification import TableSpecification
from ._table_options import AggregateFunction
from ._values import EXACT

_CHUNK_ROWS = 1 << 16
_CHUNK_BYTES = 16 << 20
_BATCH_ROWS = 10_000
_MOST_GROUPS = 1 << 17
"""Groups that are kept before groups of equal values are combined."""
_MOST_BYTES = 32 << 20
_LEAST_SHARE = 2
"""The average number of rows in a group below which grouping stops: it then costs more than sending the rows."""
_PYTHON = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}
_ARROW: dict[str, Any] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_COUNT, _SUM = AggregateFunction.COUNT, AggregateFunction.SUM

Array = Any
"""A pyarrow.Array; decimal128 where it holds numbers."""


def aggregate_schema(spec: TableSpecification, aggregation: Aggregation) -> pa.Schema:
    """Return the Arrow schema of the batches of an aggregation, as `plan_scan` of a table takes it."""
    counts = {str(one) for one in aggregation.functions if one.function is _COUNT}
    return pa.schema(
        [
            pa.field(field.name, arrow_type(field), nullable=field.name not in (*spec.primary_key, *counts))
            for field in result_fields(spec, aggregation)
        ]
    )


def partial_aggregates(
    spec: TableSpecification, aggregation: Aggregation, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the partial aggregates of batches, which must have the fields of the aggregation.

    At most about 100,000 groups are in memory: further ones are yielded, and a group may come again. If there are
    almost as many groups as rows, each row is a group. Without `group_by` there is at least one row.

    Raises
    ------
    InvalidFieldError
        If an expression has a value of more than 38 digits.
    """
    groups = _GroupTotals(spec, aggregation)
    chunk: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        chunk.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield from groups.add(pa.Table.from_batches(chunk))
            chunk, rows, size = [], 0, 0
    if chunk:
        yield from groups.add(pa.Table.from_batches(chunk))
    yield from groups.rest()


class _GroupTotals:
    """The groups so far, in tables of the columns `g0`, ... of the group and `f0`, ... of the functions."""

    def __init__(self, spec: TableSpecification, aggregation: Aggregation) -> None:
        self._spec = spec
        self._aggregation = aggregation
        self._schema = aggregate_schema(spec, aggregation)
        self._keys = [f"g{place}" for place in range(len(aggregation.group_by))]
        self._functions = [(f"f{place}", one) for place, one in enumerate(aggregation.functions)]
        self._kept: list[pa.Table] = []
        self._rows = 0  # the number of rows in the kept groups
        self._row_by_row = False

    def add(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Add rows, and yield the groups that are too many to be kept."""
        if self._row_by_row:
            yield from self._finished(self._each_row(rows))
            return
        self._kept.append(self._grouped(rows))
        self._rows += rows.num_rows
        if self._gains_nothing(self._kept[-1].num_rows, rows.num_rows):
            yield from self._given_up()
        elif sum(one.num_rows for one in self._kept) > _MOST_GROUPS or self._bytes() > _MOST_BYTES:
            self._kept = [self._merged()]
            groups = self._kept[0].num_rows
            if self._gains_nothing(groups, self._rows):
                yield from self._given_up()
            elif 2 * groups > _MOST_GROUPS or 2 * self._bytes() > _MOST_BYTES:
                yield from self._taken()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the groups that are kept."""
        if not self._kept and not self._keys and not self._row_by_row:
            none = [pa.array([], arrow_type(self._spec.field(name))) for name in self._aggregation.fields]
            self._kept = [self._grouped(pa.table(none, names=list(self._aggregation.fields)))]
        if self._kept:
            yield from self._taken()

    def _gains_nothing(self, groups: int, rows: int) -> bool:
        return bool(self._keys) and rows >= _CHUNK_ROWS // 8 and groups * _LEAST_SHARE > rows

    def _given_up(self) -> Iterator[pa.RecordBatch]:
        self._row_by_row = True
        yield from self._taken()

    def _taken(self) -> Iterator[pa.RecordBatch]:
        merged = self._merged()
        self._kept, self._rows = [], 0
        yield from self._finished(merged)

    def _bytes(self) -> int:
        return sum(one.nbytes for one in self._kept)

    def _grouped(self, rows: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {
            key: rows[name] for key, name in zip(self._keys, self._aggregation.group_by, strict=True)
        }
        wanted: list[tuple[str, str]] = []
        numbers = _ExpressionValues(self._spec, rows)
        for name, one in self._functions:
            if one.argument is None:
                columns[name] = pa.nulls(rows.num_rows)
                wanted.append((name, "all"))
                continue
            columns[name] = self._values(numbers, one)
            wanted.append((name, str(one.function)))
        return self._aggregated(pa.table(columns), wanted)

    def _merged(self) -> pa.Table:
        if len(self._kept) == 1:
            return self._kept[0]
        joined = pa.concat_tables(self._kept)
        added = (_COUNT, _SUM)
        wanted = [(name, "sum" if one.function in added else str(one.function)) for name, one in self._functions]
        return self._aggregated(joined, wanted)

    def _aggregated(self, table: pa.Table, wanted: list[tuple[str, str]]) -> pa.Table:
        """Return the groups of a table, with sums as decimals too wide to overflow."""
        options = pc.CountOptions(mode="all")
        given: list[Any] = [
            (name, "count", options) if function == "all" else (name, function) for name, function in wanted
        ]
        found = pa.TableGroupBy(table, self._keys, use_threads=False).aggregate(given)
        columns: dict[str, Any] = {key: found[key] for key in self._keys}
        for (name, function), (_, one) in zip(wanted, self._functions, strict=True):
            column = found[f"{name}_{'count' if function == 'all' else function}"]
            if one.function is _SUM:
                column = column.cast(pa.decimal256(76, column.type.scale))
            columns[name] = column
        return pa.table(columns)

    def _each_row(self, rows: pa.Table) -> pa.Table:
        """Return each row as a group of its own."""
        columns: dict[str, Any] = {
            key: rows[name] for key, name in zip(self._keys, self._aggregation.group_by, strict=True)
        }
        numbers = _ExpressionValues(self._spec, rows)
        for name, one in self._functions:
            if one.argument is None:
                columns[name] = pa.repeat(1, rows.num_rows)
                continue
            values = self._values(numbers, one)
            columns[name] = pc.is_valid(values).cast(pa.int64()) if one.function is _COUNT else values
        return pa.table(columns)

    def _values(self, rows: _ExpressionValues, one: AggregateExpression) -> Array:
        """Return the values of a function, numbers in a type whose sums cannot overflow."""
        argument = one.argument
        assert argument is not None
        if one.function is not _SUM:
            return rows.table[argument.field] if isinstance(argument, FieldValue) else rows.of(argument)
        numbers = rows.of(argument)
        kind = numbers.type
        if kind.precision + len(str(len(numbers))) > MOST_DIGITS:
            return numbers.cast(pa.decimal256(MOST_DIGITS, kind.scale))
        return _of_digits(numbers, MOST_DIGITS)

    def _finished(self, groups: pa.Table) -> Iterator[pa.RecordBatch]:
        renamed = groups.rename_columns(list(self._schema.names))
        yield from fitting_batches(self._aggregation, renamed, self._schema)


class _ExpressionValues:
    """The values of expressions on some rows, each computed once."""

    def __init__(self, spec: TableSpecification, table: pa.Table) -> None:
        self.table = table
        self._spec = spec
        self._known: dict[Expression, Array] = {}

    def of(self, expression: Expression) -> Array:
        """Return an array of the values of an expression, with the precision that their digits need."""
        found = self._evaluated(expression)
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, self.table.num_rows)  # type: ignore[call-overload]  # any scalar is repeated
        return found

    def _evaluated(self, expression: Expression) -> Array:
        if expression not in self._known:
            self._known[expression] = self._computed(expression)
        return self._known[expression]

    def _computed(self, expression: Expression) -> Array:
        """Return the values of an expression; a scalar if it has no field."""
        match expression:
            case Constant(value):
                return pa.scalar(decimal.Decimal(value), _kind(self._spec, expression))
            case FieldValue(name):
                values: Array = pa.concat_arrays(self.table[name].chunks or [pa.array([], self.table[name].type)])
                if not pa.types.is_decimal(values.type):
                    values = values.cast(_kind(self._spec, expression))
                return _narrowed(values)
            case Arithmetic(sign, left, right):
                one, other = self._evaluated(left), self._evaluated(right)
                if _precision(sign, one.type, other.type) <= MOST_DIGITS:
                    found = _ARROW[sign](one, other)
                    return found if isinstance(found, pa.Scalar) else _narrowed(found)
                return _in_python(self._spec, expression, one, other, self.table.num_rows)
        raise TypeError(f"{expression!r} is not one of structable's expressions")


def _kind(spec: TableSpecification, expression: Expression) -> pa.DataType:
    digits = digits_of(spec, expression)
    return pa.decimal128(digits.precision, digits.scale)


def _precision(sign: str, one: Any, other: Any) -> int:  # noqa: ANN401 - decimal types
    if sign == "*":
        return int(one.precision + other.precision + 1)
    before = max(one.precision - one.scale, other.precision - other.scale)
    return int(max(one.scale, other.scale) + before + 1)


def _narrowed(values: Array) -> Array:
    """Return decimals with the precision that the largest of them needs."""
    bounds = pc.min_max(values)
    scale = values.type.scale
    largest = max((abs(_unscaled(bounds[name].as_py(), scale)) for name in ("min", "max")), default=0)
    return _of_digits(values, max(len(str(largest)), 1))


def _unscaled(value: decimal.Decimal | None, scale: int) -> int:
    return 0 if value is None else int(EXACT.scaleb(value, scale))


def _of_digits(values: Array, precision: int) -> Array:
    """Return 128-bit decimals with another precision, which must hold them."""
    kind = pa.decimal128(precision, values.type.scale)
    return pa.Array.from_buffers(kind, len(values), values.buffers(), values.null_count, values.offset)


def _in_python(spec: TableSpecification, expression: Arithmetic, one: Array, other: Array, rows: int) -> Array:
    """Return the values of an expression that may need more digits than Arrow's decimals of 128 bits have."""
    scale = digits_of(spec, expression).scale
    sides = [side.to_pylist() if isinstance(side, pa.Array) else [side.as_py()] * rows for side in (one, other)]
    compute = _PYTHON[expression.operator]
    found = [None if None in pair else compute(*pair) for pair in zip(*sides, strict=True)]
    for value in found:
        if value is not None and abs(_unscaled(value, scale)) >= 10**MOST_DIGITS:
            reason = f"has the value {value}, of more than {MOST_DIGITS} digits with {scale} of them after the point"
            raise InvalidFieldError(spec.name, str(expression), reason)
    return _narrowed(pa.array(found, pa.decimal128(MOST_DIGITS, scale)))


def fitting_batches(aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield partial aggregates, with the columns of an aggregation, as batches of exactly the given schema.

    A sum becomes a number of the schema's type: an integer of 64 bits, or a decimal of the same scale or a larger one.
    A sum that exceeds its type is divided among several rows. Each of them is a partial result: the caller adds them as
    it adds the results of splits, and meets an overflow of its own type in its own way.
    """
    try:
        columns: list[Any] = [column.cast(field.type) for column, field in zip(groups.columns, schema, strict=True)]
        fitting = pa.Table.from_arrays(columns, schema=schema)
    except pa.ArrowInvalid:
        rows = _split_rows(aggregation, groups, schema)
        while part := list(islice(rows, _BATCH_ROWS)):
            parts = zip(zip(*part, strict=True), groups.schema, schema, strict=True)
            arrays = [pa.array(values, was.type).cast(now.type) for values, was, now in parts]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        return
    for batch in fitting.combine_chunks().to_batches():
        if batch.num_rows:
            yield batch


def _split_rows(aggregation: Aggregation, groups: pa.Table, schema: pa.Schema) -> Iterator[tuple[object, ...]]:
    """Yield each group, then rows with the rest of the sums that exceed their types."""
    keys = len(aggregation.group_by)
    sums = [keys + place for place, one in enumerate(aggregation.functions) if one.function is _SUM]
    counts = [keys + place for place, one in enumerate(aggregation.functions) if one.function is _COUNT]
    largest = {place: _largest(schema.field(place).type, groups.field(place).type) for place in sums}
    for group in zip(*(column.to_pylist() for column in groups.columns), strict=True):
        row: list[Any] = list(group)
        left = {place: row[place] for place in sums}
        while True:
            for place, value in left.items():
                if value is not None:
                    row[place] = max(EXACT.minus(largest[place]), min(value, largest[place]))
                    left[place] = EXACT.subtract(value, row[place])
            yield tuple(row)
            left = {place: value for place, value in left.items() if value}
            if not left:
                break
            row = [*row[:keys], *[None] * len(aggregation.functions)]
            for place in counts:
                row[place] = 0


def _largest(kind: Any, own: Any) -> decimal.Decimal:  # noqa: ANN401 - types of numbers
    """Return the largest number of a type, integers or decimals, that has no more digits after the point than `own`."""
    if pa.types.is_int64(kind):
        return decimal.Decimal(2**63 - 1)
    unscaled = (10**kind.precision - 1) // 10 ** max(kind.scale - own.scale, 0)
    return decimal.Decimal(unscaled).scaleb(-min(kind.scale, own.scale), EXACT)
