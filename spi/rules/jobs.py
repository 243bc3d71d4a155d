"""Which modes, ids, columns and attempts a write job accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from structable.spi.bulk import StagedWrite, WriteJob, WriteMode
from structable.spi.errors import InvalidFieldError, TableNotFoundError

__all__ = ["JOB_RETENTION_SECONDS", "check_job", "check_staged_columns", "last_attempts", "table_dropped"]

JOB_RETENTION_SECONDS = 7 * 24 * 3600
"""Seconds for which the id of an ended job, and staging that belongs to no living job, are kept."""
_LONGEST_ID = 200


def check_job(mode: object, job_id: object) -> WriteMode:
    """Check the mode and the id of a job, and return the mode.

    Raises
    ------
    ValueError
        If the mode is unknown, or the id is not a string of 1 to 200 characters that UTF-8 and every store can hold.
    """
    try:
        checked = WriteMode(mode)  # type: ignore[arg-type]  # refused below
    except ValueError:
        raise ValueError(f"mode is {mode!r}; allowed are {', '.join(WriteMode)}") from None
    if not isinstance(job_id, str) or not 1 <= len(job_id) <= _LONGEST_ID:
        raise ValueError(f"job_id is {job_id!r}; it must be a string of 1 to {_LONGEST_ID} characters")
    if "\0" in job_id or any("\ud800" <= one <= "\udfff" for one in job_id):
        raise ValueError(f"job_id is {job_id!r}; it must not hold NUL characters or lone surrogates")
    return checked


def check_staged_columns(job: WriteJob, key: Sequence[str], names: Sequence[str]) -> None:
    """Check which columns the batches of a job have.

    Raises
    ------
    InvalidFieldError
        If a field of the key is missing, or a job of mode delete has other fields.
    """
    for name in key:
        if name not in names:
            raise InvalidFieldError(job.table, name, "is part of the primary key and missing in the batches")
    others = ", ".join(name for name in names if name not in key)
    if job.mode is WriteMode.DELETE and others:
        raise InvalidFieldError(job.table, others, f"a job of mode delete takes only the key columns: {', '.join(key)}")


def last_attempts(job: WriteJob, staged: Iterable[StagedWrite]) -> list[StagedWrite]:
    """Return the attempts that count, the last one given of each partition, in the order of partitions.

    Raises
    ------
    ValueError
        If an attempt belongs to another job.
    """
    attempts: dict[int, StagedWrite] = {}
    for one in staged:
        if one.job_id != job.job_id:
            raise ValueError(f"partition {one.partition} was staged for the job {one.job_id!r}, not {job.job_id!r}")
        attempts[one.partition] = one
    return [attempts[partition] for partition in sorted(attempts)]


def table_dropped(table: str, job_id: str) -> TableNotFoundError:
    """Return the error of a job whose table was dropped since it began, even if another table has the name now."""
    error = TableNotFoundError(table)
    error.add_note(f"The write job {job_id!r} was begun for a table of this name that was dropped since.")
    return error
