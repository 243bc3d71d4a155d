"""The question before a command destroys rows: it names the store, the table and the number of rows."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from structable.spi import Storage, StructableError

from .errors import CommandError, UsageProblem
from .snapshots import whole_count

__all__ = ["DryRun", "Yes", "YesToOverwrite", "confirm", "table_in_words"]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal to ask on.")]
YesToOverwrite = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before --mode overwrite. Needed where there is no terminal.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


def table_in_words(storage: Storage, table: str) -> str:
    """Describe a table by its number of rows and its store, whose URL is masked."""
    try:
        number = whole_count(storage, storage.admin.get_specification(table))
        rows = "1 row" if number == 1 else f"{number:,} rows"
    except StructableError:  # an unreadable table may need to be dropped for that very reason
        rows = "rows that cannot be read"
    return f"table {table} with {rows} in {storage.url}"


def confirm(storage: Storage, table: str, action: str, *, yes: bool) -> None:
    """Ask before rows are lost, unless `--yes` was given. The action is a verb: "drop"."""
    if yes:
        return
    named = table_in_words(storage, table)
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageProblem(f"{action} {named}? There is no terminal to ask on: give --yes")
    typer.echo(f"{action.capitalize()} {named}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError(f"{table_in_words(storage, table)} is kept")
