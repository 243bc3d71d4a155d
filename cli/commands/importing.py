"""One file as one atomic write job, in bounded memory; write jobs of a command, aborted if it fails."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from structable.cli.formats.file_options import FileForm
from structable.cli.language.display import Advance, progress
from structable.cli.language.errors import CommandError, UsageProblem, outcome_unknown
from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    RecordExistsError,
    StagedWrite,
    Storage,
    StructableError,
    TableSpecification,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.authors import check_mode, retry

from .tables import confirm

if TYPE_CHECKING:
    import pyarrow as pa

    from structable.cli.formats.source import FileSource

_KEY_BYTES = 8 * 1024 * 1024
_SHOWN = 5


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


@dataclass(frozen=True, slots=True)
class FileImport:
    """The import of a file into a table."""

    storage: Storage
    table: str
    location: str
    name: str
    """The file, in messages."""
    format_: str | None
    form: FileForm
    mode: WriteMode | None
    expect_rows: int | None
    job_id: str | None
    dry_run: bool
    yes: bool
    is_new: bool = False
    """Whether the table was made for the file."""

    def run(self) -> None:
        """Write the rows, and print their number."""
        spec = self.storage.admin.get_specification(self.table)
        mode = self.mode or (WriteMode.INSERT if spec.keyless else WriteMode.UPSERT)
        check_mode(spec, mode)
        if mode is WriteMode.OVERWRITE and not self.dry_run:
            confirm(self.storage, self.table, "overwrite", yes=self.yes)
        # A dry run stages a job, with all of the store's checks, and then aborts it: never under the user's id.
        name = self.job_id if self.job_id is not None and not self.dry_run else f"structable-import-{uuid.uuid4()}"
        keeps = self.job_id is not None and not self.dry_run
        with self._open(spec, mode) as source, write_job(self.storage, self.table, mode, name, keep=keeps) as job:
            if job.committed:
                typer.echo(f"job {name} was already committed; nothing was done", err=True)
                return
            keys = _RowsAndKeys(spec)
            try:
                done = self._written(source, job, keys)
            except (InvalidFieldError, UnsupportedOperationError) as error:
                raise source.locate(error) from error
            except CommitOutcomeUnknownError as error:
                raise CommandError(f"{error}; run the same import with --job-id {name} to be sure") from error
            except RecordExistsError as error:
                if twice := self._twice(spec, error):
                    raise twice from error
                raise
        if self.dry_run:
            typer.echo(f"{keys} of {source.name} fit table {self.table}; nothing was written", err=True)
        elif done:
            fate = _fate(spec, mode) if keys.rows != 1 else _fate(spec, mode).replace("are", "is", 1)
            typer.echo(f"{keys} of {source.name} {fate} table {self.table} (job {name})", err=True)
        else:
            typer.echo(f"job {name} was already committed; nothing was done", err=True)

    def _open(self, spec: TableSpecification, mode: WriteMode) -> FileSource:
        from structable.cli.formats.file_columns import FileColumns

        source = self.form.open(FileColumns(spec, mode, self.form.columns), self.location, self.format_)
        source.name = self.name
        return source

    def _written(self, source: FileSource, job: WriteJob, keys: _RowsAndKeys) -> bool:
        """Return whether this call made the rows visible, or a dry run found them valid."""
        with progress(f"import {self.table}") as advance:
            staged: list[StagedWrite] = []
            # The batches of one call of `stage` have the same columns.
            for number, (_, batches) in enumerate(
                groupby(self._counted(source, keys, advance), lambda batch: batch.schema.names)
            ):
                staged.append(self.storage.stage(job, number, 0, batches))
            if self.dry_run:
                self.storage.abort_write(job)
                return True
            return commit(self.storage, job, staged)

    def _counted(self, source: FileSource, keys: _RowsAndKeys, advance: Advance) -> Iterator[pa.RecordBatch]:
        for batch in source.batches():
            yield batch
            keys.add(batch)
            advance(source.fraction, keys.rows)
        if self.expect_rows is not None and keys.rows != self.expect_rows:
            raise UsageProblem(
                f"{source.name} has {keys.rows:,} rows, --expect-rows says {self.expect_rows:,}; nothing was written"
            )

    def _twice(self, spec: TableSpecification, error: RecordExistsError) -> UsageProblem | None:
        """Return the error for a key that several rows of the file have, which names them; None for another key."""
        if not Path(self.location).is_file():  # the content of a pipe is gone
            return None
        with self._open(spec, WriteMode.INSERT) as source:
            rows = source.rows_of_key(spec.primary_key, error.key)
        if len(rows) < 2:
            return None
        shown = ", ".join(rows[:_SHOWN]) + (", ..." if len(rows) > _SHOWN else "")
        remedy = "name further fields by --primary-key, or give" if self.is_new else "give"
        return UsageProblem(
            f"{self.name}: rows share the key {error.key!r}, which must be unique: {shown}; {remedy} a --mode: with "
            "replace the last of them counts, with upsert they are merged"
        )


class _RowsAndKeys:
    """Counts rows, and distinct keys as long as the keys fit in 8 MiB.

    The grouping takes several times as much memory.
    """

    def __init__(self, spec: TableSpecification) -> None:
        self._key = list(spec.primary_key)
        self._batches: list[pa.RecordBatch] | None = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self._key and self._batches is not None:
            keys = batch.select(self._key)
            self._bytes += keys.nbytes
            self._batches.append(keys)
            if self._bytes > _KEY_BYTES:
                self._batches = None

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        if not self._batches:
            return rows
        import pyarrow as pa

        different = pa.Table.from_batches(self._batches).group_by(self._key).aggregate([]).num_rows
        keys = "1 key" if different == 1 else f"{different:,} different keys"
        return rows if different == self.rows else f"{rows} ({keys})"


def _fate(spec: TableSpecification, mode: WriteMode) -> str:
    if mode is WriteMode.UPSERT and spec.table_options.merges:
        return "are merged into"
    return _FATES.get(mode, "are in")


_FATES = {
    WriteMode.DELETE: "are no longer in",
    WriteMode.OVERWRITE: "are all that is in",
    WriteMode.CHANGES: "are applied to",
}
