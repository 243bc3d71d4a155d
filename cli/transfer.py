"""The commands that move tables: import as one atomic job, export of one snapshot, both in bounded memory."""

from __future__ import annotations

import contextlib
import enum
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from structable.spi import (
    CommitOutcomeUnknownError,
    Filter,
    InvalidFieldError,
    Range,
    Storage,
    StructableError,
    UnsupportedOperationError,
    WriteJob,
    WriteMode,
)
from structable.spi.runner import retry

from .arguments import Table, Url, open_store
from .errors import CommandError
from .output import format_of, open_output, open_writer
from .scans import chunks
from .selection import Above, AtLeast, AtMost, Below, Columns, Prefix, Where, named_columns, selected

if TYPE_CHECKING:
    import pyarrow as pa

    from .sources import Source

__all__ = ["FileFormat", "export_rows", "import_rows"]

_SPLITS = 32


class FileFormat(enum.StrEnum):
    """Formats of files."""

    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"


_Format = Annotated[
    FileFormat | None,
    typer.Option("--format", help="The file's format.  [default: by the extension]", show_default=False),
]


def import_rows(
    url: Url,
    table: Table,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What to read; - is standard input, with --format.", show_default=False),
    ],
    format_: _Format = None,
    mode: Annotated[WriteMode, typer.Option(help="What happens to each row.")] = WriteMode.UPSERT,
    job_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Names the job: one that was committed does nothing the second time, for 7 days."
        ),
    ] = None,
) -> None:
    """Write the rows of a CSV, JSON lines, Arrow or Parquet file, all of them or none.

    Columns are matched to fields by name. The delete mode takes a file of key columns, overwrite replaces the whole
    table.
    """
    from .sources import open_source

    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        with open_source(spec, file, format_.value if format_ else None) as source:
            name = job_id or f"structable-import-{uuid.uuid4()}"
            try:
                job = storage.begin_write(table, mode=mode, job_id=name)
            except ValueError as error:
                raise CommandError(str(error)) from error
            try:
                with _progress(f"import {table}") as advance:
                    rows = _write(storage, job, source, advance)
            except CommitOutcomeUnknownError as error:
                raise CommandError(f"{error}; run the same import with --job-id {name} to be sure") from error
            except BaseException:
                # A name of the user's own stays usable: the next attempt goes on under it. Nobody knows ours.
                if job_id is None:
                    with contextlib.suppress(StructableError):  # the first error counts; dead jobs are swept
                        storage.abort_write(job)
                raise
    typer.echo(f"{rows:,} rows of {source.name} are in table {table} (job {name})", err=True)


def _write(storage: Storage, job: WriteJob, source: Source, advance: Callable[[float | None, int], None]) -> int:
    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in source.batches():
            yield batch
            rows += batch.num_rows
            advance(source.fraction, rows)

    try:
        staged = storage.stage(job, 0, 0, batches())
    except InvalidFieldError as error:
        raise source.locate(error) from error
    retry(storage, lambda: storage.commit_write(job, [staged]))
    return staged.rows


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
        bool, typer.Option("--unordered", help="In whatever order the store gives its rows; faster on some.")
    ] = False,
) -> None:
    """Write the rows of one snapshot, in key order, to a CSV, JSON lines, Arrow or Parquet file.

    The file appears under its name when it is complete.
    """
    form = format_of(file, format_.value if format_ else None)
    rows = 0
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        range_, filter_ = selected(
            spec, where, prefix=prefix, at_least=at_least, above=above, at_most=at_most, below=below
        )
        names = named_columns(spec, columns) or list(spec.field_names)
        with (
            open_output(file) as stream,
            open_writer(form, stream, file, spec, names) as writer,
            _progress(f"export {table}") as advance,
        ):
            for fraction, batch in _batches(storage, table, range_, filter_, names, unordered=unordered):
                writer.write(batch)
                rows += batch.num_rows
                advance(fraction, rows)
    typer.echo(f"{rows:,} rows of table {table} are in {'standard output' if file == '-' else file}", err=True)


def _batches(
    storage: Storage, table: str, range_: Range, where: Filter | None, columns: list[str], *, unordered: bool
) -> Iterator[tuple[float | None, pa.RecordBatch]]:
    """Yield the rows of one snapshot, each batch with the part that is done, where that is known."""
    try:
        plan = storage.plan_scan(table, range=range_, where=where, columns=columns, splits=_SPLITS)
    except UnsupportedOperationError:
        plan = None  # a store of one process only; its scan is a snapshot just as well
    if plan is not None:
        with plan:
            if plan.ordered or unordered:
                for number, split in enumerate(plan.splits):
                    for batch in storage.read_split(split):
                        yield number / len(plan.splits), batch
                return
    yield from ((None, batch) for batch in _scanned(storage, table, range_, where, columns))


def _scanned(
    storage: Storage, table: str, range_: Range, where: Filter | None, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    from structable.spi.arrow import rows_to_batches

    view = storage.table(table)
    with view.scan(range_, where=where, columns=columns) as rows:
        for chunk in chunks(rows):
            yield from rows_to_batches(view.specification, chunk, columns)


@contextlib.contextmanager
def _progress(description: str) -> Iterator[Callable[[float | None, int], None]]:
    """A progress bar where standard error is a terminal; what is yielded takes the part that is done, and the rows."""
    if not sys.stderr.isatty():
        yield lambda fraction, rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(description, total=None, rows=0)

        def advance(fraction: float | None, rows: int) -> None:
            if fraction is None:
                progress.update(task, rows=rows)
            else:
                progress.update(task, total=1.0, completed=fraction, rows=rows)

        yield advance
