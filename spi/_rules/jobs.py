"""The modes, ids, columns and attempts that a write job accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from structable.spi._bulk import StagedWrite, WriteJob, WriteMode
from structable.spi._errors import InvalidFieldError, TableNotFoundError
from structable.spi._values import is_storable

JOB_RETENTION_SECONDS = 7 * 24 * 3600
"""Seconds for which the id of an ended job, and staging that belongs to no living job, are kept."""
_LONGEST_NAME = 200
_LARGEST_BATCH = (1 << 63) - 1
_OF_BATCH = re.compile(r"batch \d+ of stream ")


def requested_job(
    table: str,
    mode: object,
    job_id: object = None,
    stream: object = None,
    batch: object = None,
    on_missing: object = "fail",
) -> WriteJob:
    """Check the arguments of `begin_write` and return the job that they name, without state and not committed.

    The id of a stream's batch is made from the stream and the batch.

    Raises
    ------
    ValueError
        If the mode is unknown, or id, stream or batch are not as `Storage.begin_write` says.
    """
    try:
        checked = WriteMode(mode)  # type: ignore[arg-type]  # refused below
    except ValueError:
        raise ValueError(f"mode is {mode!r}; allowed are {', '.join(WriteMode)}") from None
    if on_missing not in ("fail", "skip") or (on_missing == "skip" and checked is not WriteMode.PATCH):
        raise ValueError(f"on_missing is {on_missing!r}; it is 'fail', or in mode patch 'fail' or 'skip'")
    skips: Literal["fail", "skip"] = "skip" if on_missing == "skip" else "fail"
    if stream is None and batch is None:
        name = _name("job_id", job_id)
        if _OF_BATCH.match(name):
            raise ValueError(f"job_id is {name!r}, a name reserved for batches of streams; choose another one")
        return WriteJob(table, checked, name, on_missing=skips)
    if stream is None or batch is None or job_id is not None:
        raise ValueError("a write job has either a job_id or a stream and a batch; give one of the two")
    if not isinstance(batch, int) or isinstance(batch, bool) or not 0 <= batch <= _LARGEST_BATCH:
        raise ValueError(f"batch is {batch!r}; it must be an int from 0 to {_LARGEST_BATCH}")
    name = _name("stream", stream)
    return WriteJob(table, checked, f"batch {batch} of stream {name}", stream=name, batch=int(batch), on_missing=skips)


def _name(argument: str, given: object) -> str:
    """Check that a name is a string of 1 to 200 characters that UTF-8 and every store can hold."""
    if not isinstance(given, str) or not 1 <= len(given) <= _LONGEST_NAME:
        raise ValueError(f"{argument} is {given!r}; it must be a string of 1 to {_LONGEST_NAME} characters")
    if not is_storable(given):
        raise ValueError(f"{argument} is {given!r}; it must not hold NUL characters or lone surrogates")
    return str(given)


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
    """Return the attempts that count, in the order of partitions: the last one given for each partition.

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
    error.add_note(f"the write job {job_id!r} was begun for a table of this name that has been dropped since")
    return error
