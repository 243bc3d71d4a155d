"""Tables made for files: the command infer, and import with --create."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from structable.cli.formats.file_options import FileForm, FileFormat, with_file_options
from structable.cli.formats.output import format_of
from structable.cli.formats.specifications import specification_text
from structable.cli.language.errors import UsageProblem, outcome_unknown
from structable.spi import Storage, StructableError, TableAlreadyExistsError, TableSpecification

from .scans import whole_count

Create = Annotated[bool, typer.Option("--create", help="Make the table, if there is none, and show its specification.")]
PrimaryKey = Annotated[
    str | None,
    typer.Option(metavar="FIELDS", help="The key of the new table, fields separated by commas.", show_default=False),
]


def _key(names: str | None) -> list[str]:
    found = [name.strip() for name in (names or "").split(",") if name.strip()]
    if names is not None and not found:
        raise UsageProblem("--primary-key names no field; left out, the table has no key")
    return found


@with_file_options
def infer(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What to read; - is standard input, with --format.", show_default=False),
    ],
    format_: FileFormat = None,
    primary_key: PrimaryKey = None,
    *,
    form: FileForm,
) -> None:
    """Print the specification of a table for a file, as 'create' takes it.

    The types are inferred from all rows, or given by the file's own schema. Without --primary-key the table has no key,
    and rows are only added to it.
    """
    from structable.cli.formats.inference import inferred, table_name

    table, shown = ("rows", "standard input") if file == "-" else (table_name(file), file)
    found = inferred(file, shown, format_, form, table, _key(primary_key))
    typer.echo(specification_text(found.spec, "toml"), nl=False)
    typer.echo(f"types by {found.note}{_keyless(found.spec)}", err=True)


def _keyless(spec: TableSpecification) -> str:
    return "; without --primary-key rows are only added" if spec.keyless else ""


def made_for(
    storage: Storage, table: str, file: str, shown: str, format_: str | None, form: FileForm, primary_key: str | None
) -> TableSpecification | None:
    """Make a table for a file, and show its specification; None if a table of the name exists."""
    from structable.cli.formats.inference import inferred

    if storage.admin.exists(table):
        _check_existing(storage, table, primary_key)
        return None
    found = inferred(file, shown, format_, form, table, _key(primary_key))
    typer.echo(specification_text(found.spec, "toml"), nl=False, err=True)
    typer.echo(f"types by {found.note}{_keyless(found.spec)}", err=True)
    try:
        storage.admin.create(found.spec)
    except TableAlreadyExistsError:
        _check_existing(storage, table, primary_key)
        return None
    return found.spec


def _check_existing(storage: Storage, table: str, primary_key: str | None) -> None:
    spec = storage.admin.get_specification(table)
    if primary_key is not None and _key(primary_key) != list(spec.primary_key):
        there = ", ".join(spec.primary_key) or "none"
        raise UsageProblem(f"table '{table}' exists, and its key is {there}, not {primary_key}; leave --create out")


@contextlib.contextmanager
def re_readable(file: str, format_: str | None) -> Iterator[str]:
    """Return the path of a file that can be read twice: the content of a pipe is stored in a temporary file."""
    if file != "-" and not Path(file).is_fifo():
        yield file
        return
    suffix = f".{format_of(file, format_)}" if file == "-" else Path(file).name
    with tempfile.NamedTemporaryFile(suffix=suffix) as kept:
        with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as stream:
            shutil.copyfileobj(stream, kept)
        kept.flush()
        yield kept.name


@contextlib.contextmanager
def undone(storage: Storage, made: TableSpecification | None) -> Iterator[None]:
    """Drop a table that was made, if the block fails; not if it has rows, or may get them.

    After the commit, an interruption or a closed standard error must not take the rows away.
    """
    try:
        yield
    except BaseException as error:
        if made is not None and not outcome_unknown(error):
            with contextlib.suppress(StructableError):  # the first error counts
                if not whole_count(storage, made):
                    storage.admin.drop(made.name)
        raise
