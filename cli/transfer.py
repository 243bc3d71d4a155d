"""The commands import, as one atomic job, and export, of one snapshot; both in bounded memory."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from structable.spi import (
    CommitOutcomeUnknownError,
    InvalidFieldError,
    TableSpecification,
    UnsupportedOperationError,
    WriteMode,
)
from structable.spi.rules.keyless import check_mode

from .arguments import Access, Table, Url, open_store
from .confirmation import YesToOverwrite, confirm
from .errors import CommandError, UsageProblem
from .jobs import commit, write_job
from .output import format_of, open_output, open_writer
from .progress import Advance, progress
from .selection import Above, AtLeast, AtMost, Below, Columns, Prefix, Where, named_columns, selected
from .snapshots import snapshot_batches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["export_rows", "import_rows"]

_KEY_BYTES = 64 * 1024 * 1024

_Format = Annotated[
    Literal["csv", "json", "arrow", "parquet"] | None,
    typer.Option("--format", help="The file's format; by default that of its extension.", show_default=False),
]


def import_rows(
    url: Url,
    table: Table,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What to read; - is standard input, with --format.", show_default=False),
    ],
    format_: _Format = None,
    mode: Annotated[
        WriteMode | None,
        typer.Option(
            help="What happens to each row; by default upsert, or insert into a table without a primary key.",
            show_default=False,
        ),
    ] = None,
    expect_rows: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Number of rows in the file; any other number writes nothing.", min=0),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Names the job: once committed, repeating it within 7 days does nothing."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check the whole file as the store would, and write nothing.")
    ] = False,
    yes: YesToOverwrite = False,
) -> None:
    """Write the rows of a CSV, JSON lines, Arrow or Parquet file: all or none.

    Columns are matched to fields by name. Mode upsert merges as the table's merge engine says; changes reads the kind
    of each row, such as +I or delete, from a column _change_type; delete takes a file of key columns; overwrite
    replaces the whole table, and asks first.
    """
    from .file_columns import FileColumns
    from .sources import open_source

    with open_store(url, Access.WRITE) as storage:
        spec = storage.admin.get_specification(table)
        mode = mode or (WriteMode.INSERT if spec.keyless else WriteMode.UPSERT)
        check_mode(spec, mode)
        if mode is WriteMode.OVERWRITE and not dry_run:
            confirm(storage, table, "overwrite", yes=yes)
        # A dry run stages a job, with all of the store's checks, and then aborts it: never under the user's id.
        name = job_id if job_id and not dry_run else f"structable-import-{uuid.uuid4()}"
        with open_source(FileColumns(spec, mode), file, format_) as source:
            keys = _KeyCount(spec)

            def batches(advance: Advance) -> Iterator[pa.RecordBatch]:
                for batch in source.batches():
                    yield batch
                    keys.add(batch)
                    advance(source.fraction, keys.rows)
                if expect_rows is not None and keys.rows != expect_rows:
                    raise UsageProblem(
                        f"{source.name} has {keys.rows:,} rows, --expect-rows says {expect_rows:,}; nothing was written"
                    )

            with write_job(storage, table, mode, name, keep=job_id is not None and not dry_run) as job:
                if job.committed:
                    typer.echo(f"job {name} was already committed; nothing was done", err=True)
                    return
                try:
                    with progress(f"import {table}") as advance:
                        staged = storage.stage(job, 0, 0, batches(advance))
                        done = dry_run or commit(storage, job, [staged])
                except (InvalidFieldError, UnsupportedOperationError) as error:
                    raise source.locate(error) from error
                except CommitOutcomeUnknownError as error:
                    raise CommandError(f"{error}; run the same import with --job-id {name} to be sure") from error
                if dry_run:
                    storage.abort_write(job)
    if dry_run:
        typer.echo(f"{keys} of {source.name} fit table {table}; nothing was written", err=True)
    elif done:
        typer.echo(f"{keys} of {source.name} {_fate(spec, mode)} table {table} (job {name})", err=True)
    else:
        typer.echo(f"job {name} was already committed; nothing was done", err=True)


class _KeyCount:
    """Counts rows, and different keys, of which two rows may share one, as long as they fit in 64 MiB."""

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


def export_rows(
    url: Url,
    table: Table,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What to write; - is standard output, with --format.", show_default=False),
    ],
    format_: _Format = None,
    where: Where = None,
    prefix: Prefix = None,
    at_least: AtLeast = None,
    above: Above = None,
    at_most: AtMost = None,
    below: Below = None,
    columns: Columns = None,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="In the order in which the store yields its rows; faster on some.")
    ] = False,
) -> None:
    """Write the rows of one snapshot, in key order, to a CSV, JSON lines, Arrow or Parquet file.

    Rows of a table without a primary key come in any order.

    The file appears under its name when it is complete.
    """
    form = format_of(file, format_)
    rows = 0
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        names = named_columns(spec, columns) or list(spec.field_names)
        fields = [spec.field(name) for name in names]
        with (
            open_output(file) as stream,
            open_writer(form, stream, file, fields, spec.primary_key) as writer,
            progress(f"export {table}") as advance,
        ):
            found = snapshot_batches(
                storage, table, names, range_=range_, where=filter_, unordered=unordered or spec.keyless
            )
            with contextlib.closing(found):
                for fraction, batch in found:
                    writer.write(batch)
                    rows += batch.num_rows
                    advance(fraction, rows)
                advance(1.0, rows)
    typer.echo(f"{rows:,} rows of table {table} are in {'standard output' if file == '-' else file}", err=True)
