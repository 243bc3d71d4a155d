"""The commands import, as one atomic job, and export, of one snapshot; both in bounded memory."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from structable.cli.formats.file_options import FileForm, FileFormat, with_file_options
from structable.cli.formats.output import export_batches, format_of
from structable.cli.language.arguments import StoreAccess, Url, complete_table, open_store
from structable.cli.language.errors import UsageProblem
from structable.cli.language.selection import (
    Above,
    AtLeast,
    AtMost,
    Below,
    Columns,
    Prefix,
    Where,
    named_columns,
    selected,
)
from structable.spi import WriteMode

from .creation import Create, PrimaryKey, made_for, re_readable, undone
from .importing import FileImport
from .scans import snapshot_batches
from .tables import YesToOverwrite

_Table = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="The table's name.", show_default=False, autocompletion=complete_table),
]


@with_file_options
def import_rows(
    url: Url,
    table: _Table = None,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="What to read; - is standard input, with --format.", show_default=False),
    ] = None,
    format_: FileFormat = None,
    mode: Annotated[
        WriteMode | None,
        typer.Option(
            help="What happens to each row; by default upsert, or insert with --create and without a primary key.",
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
    create: Create = False,
    primary_key: PrimaryKey = None,
    all_: Annotated[
        str | None,
        typer.Option("--all", metavar="FOLDER", help="Import all tables of a folder that export --all wrote."),
    ] = None,
    *,
    form: FileForm,
) -> None:
    """Write the rows of a CSV, JSON, Arrow or Parquet file: all or none.

    Columns are matched to fields by name. Mode upsert merges as the table's merge engine says; changes reads the kind
    of each row, such as +I or delete, from a column _change_type; delete takes a file of key columns; overwrite
    replaces the whole table, and asks first.
    """
    if primary_key is not None and not create:
        raise UsageProblem("--primary-key is for the table that --create makes; give --create, or leave it out")
    if all_ is not None:
        from .dump import import_all

        _require_alone(table, file)
        for name, given in (("--format", format_), ("--expect-rows", expect_rows), ("--primary-key", primary_key)):
            if given is not None:
                raise UsageProblem(f"{name} is for one file; leave it out with --all")
        with open_store(url, StoreAccess.WRITE if dry_run else StoreAccess.CREATE) as storage:
            import_all(storage, all_, mode, job_id, form, dry_run=dry_run, yes=yes)
        return
    name, location = _required(table, file)
    if create and dry_run:
        raise UsageProblem(
            "--create makes a table, which --dry-run must not; 'structable infer' shows its specification"
        )
    with (
        open_store(url, StoreAccess.CREATE if create else StoreAccess.WRITE) as storage,
        re_readable(location, format_) if create else contextlib.nullcontext(location) as kept,
    ):
        shown = "standard input" if location == "-" else location
        made = made_for(storage, name, kept, shown, format_, form, primary_key) if create else None
        # Insert even into an existing table: the same command, run again with its --job-id, is the same job.
        chosen = mode or (WriteMode.INSERT if create else None)
        with undone(storage, made):
            FileImport(
                storage, name, kept, shown, format_, form, chosen, expect_rows, job_id, dry_run, yes, made is not None
            ).run()


def _required(table: str | None, file: str | None) -> tuple[str, str]:
    if table is None or file is None:
        raise UsageProblem(f"name the {'table and the file' if table is None else 'file'}, or give --all FOLDER")
    return table, file


def _require_alone(table: str | None, file: str | None) -> None:
    if table is not None or file is not None:
        raise UsageProblem("--all imports all tables; leave TABLE and FILE out")


def export_rows(
    url: Url,
    table: _Table = None,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="What to write; - is standard output, with --format.", show_default=False),
    ] = None,
    format_: FileFormat = None,
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
    all_: Annotated[
        str | None,
        typer.Option("--all", metavar="FOLDER", help="Export all tables into a new folder, with their specifications."),
    ] = None,
) -> None:
    """Write the rows of one snapshot, in key order, to a CSV, JSON lines, Arrow or Parquet file.

    Rows of a table without a primary key come in any order.

    The file appears under its name when it is complete.
    """
    if all_ is not None:
        from .dump import export_all

        _require_alone(table, file)
        chosen = [where, prefix, at_least, above, at_most, below, columns]
        if any(one is not None for one in chosen):
            raise UsageProblem("--all exports whole tables; leave the selection of rows and columns out")
        with open_store(url) as storage:
            export_all(storage, all_, format_)
        return
    name, location = _required(table, file)
    form = format_of(location, format_)
    with open_store(url) as storage:
        spec = storage.admin.get_specification(name)
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        names = named_columns(spec, columns) or list(spec.field_names)
        batches = snapshot_batches(
            storage, name, names, range_=range_, where=filter_, unordered=unordered or spec.keyless
        )
        rows = export_batches(batches, location, form, spec, names)
    typer.echo(f"{rows:,} rows of table {name} are in {'standard output' if location == '-' else location}", err=True)
