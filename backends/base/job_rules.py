"""Checks of write jobs beyond their arguments, the same in every store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from structable.spi import (
    InvalidFieldError,
    SchemaIncompatibleError,
    TableSpecification,
    TransactionClosedError,
    WriteJob,
)
from structable.spi.rules.jobs import check_staged_columns

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["conformed_batches", "job_of_another", "require_undecided", "staged_for_dropped"]


def job_of_another(job_id: str, table: str, mode: str) -> ValueError:
    """Return the error for a job id that another living job uses."""
    return ValueError(f"the job id {job_id!r} belongs to a job of mode {mode} on table {table!r}; take another")


def require_undecided(job_id: str, table: str, state: str | None) -> None:
    """Raise TransactionClosedError for a job that cannot be committed: it has no record, or was aborted."""
    if state is None:
        raise TransactionClosedError(
            f"there is no write job {job_id!r} of table {table!r}: it was never begun, or ended more than 7 days ago"
        )
    if state == "aborted":
        raise TransactionClosedError(f"the write job {job_id!r} was aborted and cannot be committed")


def staged_for_dropped(table: str) -> SchemaIncompatibleError:
    """Return the error for staged rows whose table was dropped and recreated."""
    return SchemaIncompatibleError(table, ["its rows were staged for a table of this name that is there no longer"])


def conformed_batches(job: WriteJob, spec: TableSpecification, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the non-empty batches, with the contract's types; rejects batches that differ in their columns."""
    from structable.spi.arrow import conform_batch

    columns: tuple[str, ...] | None = None
    for batch in batches:
        conformed = conform_batch(spec, batch)
        names = tuple(conformed.schema.names)
        if columns is None:
            columns = names
            check_staged_columns(job, spec.primary_key, names)
        elif columns != names:
            raise InvalidFieldError(
                spec.name, "batches", f"one has the columns {columns}, another {names}; all need the same"
            )
        if conformed.num_rows:
            yield conformed
