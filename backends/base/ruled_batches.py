"""Arrow batches under the rules of a table's fields: completes staged rows, and computes fields of read rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from structable.spi import Aggregation, Filter, RowKind, TableSpecification, WriteMode
from structable.spi.authors import PlanScan, RowRules, bind_filter, check_aggregation, check_columns

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

_WHOLE = (WriteMode.INSERT, WriteMode.REPLACE, WriteMode.OVERWRITE)


def completed_batch(
    rules: RowRules, mode: WriteMode, batch: RecordBatch, kinds: Sequence[RowKind] | None
) -> RecordBatch:
    """Return a conformed batch of a job with the columns that the rules add; retracts stay unchanged.

    Raises
    ------
    InvalidFieldError
        If a value differs from the one that the rules give the field.
    """
    if mode is WriteMode.DELETE:
        return batch
    involved = [name for name in batch.schema.names if name in rules.named]
    if mode not in _WHOLE:
        rules.require_sources(involved)
    completed: list[dict[str, Any]] = []
    for place, given in enumerate(rows_of(batch, involved)):
        retracts = kinds is not None and kinds[place].retracts
        completed.append(given if retracts else rules.completed(given, whole=mode in _WHOLE))
    return with_columns(rules.spec, batch, completed, rules.added(involved))


def rows_of(batch: RecordBatch, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield some columns of each row of a batch; nothing, if there are none."""
    lists = [batch.column(name).to_pylist() for name in columns]
    return (dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True))


def with_columns(
    spec: TableSpecification, batch: RecordBatch, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> RecordBatch:
    """Return a batch with some columns of rows, which replace columns of the same names or follow the others."""
    if not columns:
        return batch
    import pyarrow as pa

    from structable.spi.arrow import arrow_type

    arrays: dict[str, Array[Any]] = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays |= {name: pa.array([row.get(name) for row in rows], arrow_type(spec.field(name))) for name in columns}
    return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


@dataclass(frozen=True, slots=True)
class ComputedScan:
    """Computes the batches of a plan from batches of stored rows; picklable.

    Parameters
    ----------
    spec : TableSpecification
        The table.
    columns : tuple of str
        The columns to compute from the stored ones.
    where : Filter or None
        The part of the filter that stored rows cannot answer; bound.
    aggregation : Aggregation or None
        The aggregation, if the batches have aggregates instead of rows.
    """

    spec: TableSpecification
    columns: tuple[str, ...]
    where: Filter | None
    aggregation: Aggregation | None

    def batches(self, stored: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches of the plan."""
        from structable.spi.arrow import partial_aggregates

        rules = RowRules(self.spec)
        computed = (self._computed(rules, batch) for batch in stored)
        return computed if self.aggregation is None else partial_aggregates(self.spec, self.aggregation, computed)

    def _computed(self, rules: RowRules, batch: RecordBatch) -> RecordBatch:
        import pyarrow as pa

        from structable.spi.arrow import arrow_schema

        names = batch.schema.names
        if self.where is not None:
            holds = rules.predicate(self.where, names)
            batch = batch.filter(pa.array([holds(row) for row in _values(batch)], pa.bool_()))
        computed = [name for name in self.columns if name in rules.computed]
        schema = arrow_schema(self.spec, self.columns)
        values_of = rules.projector(names, computed)
        rows = map(values_of, _values(batch)) if computed else ()
        values = dict(zip(computed, zip(*rows, strict=True), strict=False))
        arrays = [
            pa.array(values.get(name, ()), schema.field(name).type)
            if name in rules.computed
            else batch.column(rules.aliases.get(name, name))
            for name in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(batch: RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


class PlannedColumns(NamedTuple):
    """The columns of a plan of a table."""

    names: tuple[str, ...]
    """The columns of the batches."""
    read: tuple[str, ...]
    """The fields of rows to read for them, at least one."""
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


def stored_scan(spec: TableSpecification, request: PlanScan) -> tuple[PlanScan, ComputedScan | None]:
    """Return the plan of stored rows for a plan of a table, and the scan that computes its batches, or None.

    Raises
    ------
    InvalidFieldError
        If a column or the filter does not fit the table.
    """
    rules = RowRules.of(spec)
    if rules is None or not rules.answer_reads:
        return request, None
    columns = planned_columns(spec, request)
    stored, computed = rules.divided(bind_filter(spec, request.where))
    needed = rules.stored(columns.read if computed is None else (*columns.read, *computed.fields()))
    if computed is None and [*columns.read] == needed:
        return request._replace(where=stored), None
    inner = request._replace(where=stored, columns=needed, aggregate=None)
    return inner, ComputedScan(spec, columns.read, computed, columns.aggregation)
