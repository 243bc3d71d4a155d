"""Checks of write jobs beyond their arguments, the same in every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from structable.spi import (
    CHANGE_TYPE,
    FEED_COLUMNS,
    Field,
    InvalidFieldError,
    RowKind,
    SchemaIncompatibleError,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import Merger, RowRules, StagedData, check_kind, check_staged_columns

from .ruled_batches import completed_batch

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def job_of_another(job_id: str, table: str, mode: str) -> ValueError:
    """Return the error for a job id that another living job uses."""
    return ValueError(f"the job id {job_id!r} belongs to a job of mode {mode} on table {table!r}; choose another one")


def require_undecided(job_id: str, table: str, state: str | None) -> None:
    """Raise TransactionClosedError for a job that cannot be committed: it has no record, or was aborted."""
    if state is None:
        raise TransactionClosedError(
            f"there is no write job {job_id!r} of table {table!r}: it was never begun, or ended more than 7 days ago"
        )
    if state == "aborted":
        raise TransactionClosedError(f"the write job {job_id!r} was aborted and cannot be committed")


def overwritten_feed(table: str) -> UnsupportedOperationError:
    """Return the error for a job of mode overwrite on a table with a change feed."""
    return UnsupportedOperationError(
        f"table {table!r} has a change feed, and no write job of mode overwrite: delete_all and a job of another mode "
        "record what they change"
    )


def require_same_rules(table: str, then: str, now: str) -> None:
    """Raise SchemaIncompatibleError unless the rules at staging, by their digest `then`, equal the rules `now`."""
    if then != now:
        reason = "rows were staged under other rules; stage them again"
        raise SchemaIncompatibleError(table, [reason], "does not take the rows of the write job")


def staged_for_dropped(table: str) -> SchemaIncompatibleError:
    """Return the error for staged rows whose table, or one of whose fields, was dropped."""
    return SchemaIncompatibleError(
        table, ["its rows were staged for a table or a field of this name that no longer exists"]
    )


def conformed_batches(
    job: WriteJob, spec: TableSpecification, batches: StagedData
) -> Iterator[tuple[RecordBatch, list[RowKind] | None]]:
    """Yield the non-empty batches, with the contract's types, and in mode changes the kinds of their rows.

    They have the columns that the rules of the table's fields add, except in mode patch, where each row names its own
    columns.

    Raises
    ------
    InvalidFieldError
        If batches differ in their columns, or one of them has a row without a kind.
    UnsupportedOperationError
        If the table never accepts rows of this kind.
    """
    from structable.spi.arrow import conform_batch, record_batches

    merger = Merger(spec) if job.mode is WriteMode.CHANGES and spec.has_type and not spec.keyless else None
    rules = RowRules.of(spec)
    columns: tuple[str, ...] | None = None
    for batch in record_batches(spec.name, batches):
        kinds, plain = _kinds(spec, batch) if job.mode is WriteMode.CHANGES else (None, batch)
        conformed = conform_batch(spec, plain)
        names = tuple(conformed.schema.names)
        if columns is None:
            columns = names
            check_staged_columns(job, spec.primary_key, names)
        elif columns != names:
            raise InvalidFieldError(
                spec.name, "batches", f"one has the columns {columns}, another {names}; all need the same"
            )
        if kinds is not None and merger is not None:
            retracts = [place for place, kind in enumerate(kinds) if kind.retracts]
            for place, row in zip(retracts, conformed.take(retracts).to_pylist() if retracts else (), strict=True):
                merger.refuse(kinds[place], row)
        if conformed.num_rows:
            if rules is not None and job.mode is not WriteMode.PATCH:
                conformed = completed_batch(rules, job.mode, conformed, kinds)
            yield conformed, kinds


def _kinds(spec: TableSpecification, batch: RecordBatch) -> tuple[list[RowKind], RecordBatch]:
    """Return the kinds of a batch's rows, and the batch without the columns of the kinds."""
    from pyarrow import ArrowInvalid, RecordBatch

    from structable.spi.arrow import conform_column

    if not isinstance(batch, RecordBatch) or batch.schema.names.count(CHANGE_TYPE) != 1:
        raise InvalidFieldError(spec.name, CHANGE_TYPE, "must be one column of each batch, with the kinds of its rows")
    kinds: list[RowKind] = []
    known: dict[object, RowKind] = {}
    column = batch.column(CHANGE_TYPE)
    try:
        column.validate(full=True)
    except ArrowInvalid as error:
        raise InvalidFieldError(spec.name, CHANGE_TYPE, f"the Arrow data are not valid: {error}") from error
    for text in conform_column(spec.name, Field.string(CHANGE_TYPE), column).to_pylist():
        kind = known.get(text)
        if kind is None:
            try:
                kind = RowKind.of(text)
            except ValueError as error:
                raise InvalidFieldError(spec.name, CHANGE_TYPE, str(error)) from None
            check_kind(spec, kind)
            known[text] = kind
        kinds.append(kind)
    # By their places: a name may occur twice, which the check of names rejects later.
    others = [place for place, name in enumerate(batch.schema.names) if name not in FEED_COLUMNS]
    return kinds, batch.select(others)
