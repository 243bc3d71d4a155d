"""The commands about tables as such: backends, tables, describe, create, drop."""

from __future__ import annotations

import enum
import json
import sys
from typing import Annotated

import typer

from structable.spi import TableNotFoundError, installed_backends

from .arguments import Table, Url, open_store
from .display import print_table
from .errors import CommandError, UsageProblem
from .specifications import read_specification, specification_text

__all__ = ["DescriptionFormat", "ListFormat", "backends", "create", "describe", "drop", "tables"]


class ListFormat(enum.StrEnum):
    """How a list is shown: for people, or one JSON object a line."""

    TABLE = "table"
    JSON = "json"


class DescriptionFormat(enum.StrEnum):
    """How a specification is shown: for people, or as a file that `create` takes."""

    TABLE = "table"
    TOML = "toml"
    JSON = "json"


def backends(
    format_: Annotated[ListFormat, typer.Option("--format", help="How they are shown.")] = ListFormat.TABLE,
) -> None:
    """List the installed backends with their URL schemes and options."""
    found = installed_backends()
    if format_ is ListFormat.JSON:
        for one in found:
            known = one.backend
            document = {
                "scheme": one.scheme,
                "provider": one.provider,
                "description": known.description if known else None,
                "options": {option.name: option.default for option in known.options} if known else None,
                "problem": one.problem or None,
            }
            typer.echo(json.dumps(document))
        return
    lines = []
    for one in found:
        if one.backend is None:
            lines.append((f"{one.scheme}://", one.provider, one.problem, ""))
        else:
            options = ", ".join(f"{option.name}={option.default}" for option in one.backend.options)
            lines.append((f"{one.scheme}://", one.provider, one.backend.description, options))
    print_table(("scheme", "provider", "description", "options"), lines)


def tables(url: Url) -> None:
    """List the names of the tables, one a line."""
    with open_store(url) as storage:
        for name in storage.admin.list():
            typer.echo(name)


def describe(
    url: Url,
    table: Table,
    format_: Annotated[
        DescriptionFormat, typer.Option("--format", help="toml and json are what 'create' takes.")
    ] = DescriptionFormat.TABLE,
) -> None:
    """Show a table's fields, primary key, indexes and options."""
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
    if format_ is not DescriptionFormat.TABLE:
        typer.echo(specification_text(spec, format_.value), nl=False)
        return
    lines = []
    for field in spec.fields:
        in_key = field.name in spec.primary_key
        key = f"{spec.primary_key.index(field.name) + 1} of {len(spec.primary_key)}" if in_key else ""
        lines.append((field.name, field.type_text, key, "yes" if field.name in spec.indexes else ""))
    print_table(("field", "type", "key", "index"), lines, title=f"table {spec.name}")
    for name, value in spec.options.items():
        typer.echo(f"option {name} = {value}")


def create(
    url: Url,
    specification: Annotated[
        str, typer.Argument(metavar="FILE", help="A .toml or .json file, or - for standard input.", show_default=False)
    ],
    update: Annotated[
        bool, typer.Option("--update", help="Change a table that exists: new fields, new indexes, wider types.")
    ] = False,
) -> None:
    """Create a table from a specification file.

    With --update, a table that exists gets new fields and indexes and wider types; anything else is refused with all
    differences.
    """
    spec = read_specification(specification)
    with open_store(url) as storage:
        if update:
            storage.admin.create_or_update(spec)
        else:
            storage.admin.create(spec)
    typer.echo(f"table {spec.name} is {'up to date' if update else 'created'}", err=True)


def drop(
    url: Url,
    table: Table,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
) -> None:
    """Remove a table with all its rows."""
    with open_store(url) as storage:
        # The contract's drop says nothing of an absent table; a person who mistyped the name wants to know.
        if not storage.admin.exists(table):
            raise TableNotFoundError(table)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageProblem(f"dropping table '{table}' needs --yes where there is no terminal to ask on")
            if not _confirmed(f"Drop table {table} with all its rows? [y/N] "):
                raise CommandError(f"table '{table}' is kept")
        storage.admin.drop(table)
    typer.echo(f"table {table} is dropped", err=True)


def _confirmed(question: str) -> bool:
    typer.echo(question, nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    return answer.strip().lower() in ("y", "yes")
