"""Write jobs of a command: begun, committed with retries, and aborted if the command fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from structable.spi import StagedWrite, Storage, StructableError, WriteJob, WriteMode, retry

from .errors import CommandError, outcome_unknown

__all__ = ["commit", "write_job"]


@contextlib.contextmanager
def write_job(storage: Storage, table: str, mode: WriteMode, job_id: str, *, keep: bool) -> Iterator[WriteJob]:
    """Begin a write job, and abort it if the block raises.

    With `keep`, for an id from the user, the job is not aborted: the next attempt continues it.
    """
    try:
        job = storage.begin_write(table, mode=mode, job_id=job_id)
    except ValueError as error:
        if isinstance(error, StructableError):
            raise
        raise CommandError(str(error)) from error
    try:
        yield job
    except BaseException as error:
        if not keep and not outcome_unknown(error):
            with contextlib.suppress(StructableError):  # the first error counts; the store removes abandoned jobs
                storage.abort_write(job)
        raise


def commit(storage: Storage, job: WriteJob, staged: Sequence[StagedWrite]) -> bool:
    """Commit a job, retrying after conflicts; return whether this made its rows visible."""
    return bool(retry(storage, lambda: storage.commit_write(job, staged)))
