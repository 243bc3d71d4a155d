"""The commands on whole stores and tables: backends, tables, describe, create, drop, compact."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from structable.cli.formats.specifications import read_specification, specification_text
from structable.cli.language.arguments import StoreAccess, Table, Url, open_store
from structable.cli.language.display import print_table, progress, visible
from structable.cli.language.errors import CommandError, UsageProblem
from structable.cli.language.table_types import rule_in_words, type_in_words
from structable.spi import (
    BackendNotFoundError,
    Option,
    Storage,
    StoreNotFoundError,
    StructableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    installed_backends,
)
from structable.spi.authors import SchemaChange, plan_schema_change

from .scans import whole_count

_MEBIBYTE = 1 << 20

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal to ask on.")]
YesToOverwrite = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before --mode overwrite. Needed where there is no terminal.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


def backends(
    scheme: Annotated[
        str | None, typer.Argument(metavar="SCHEME", help="Show this backend's options.", show_default=False)
    ] = None,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", help="How they are shown.")] = "table",
) -> None:
    """List the installed backends with their URL schemes, or the options of one with their meaning.

    Options are parameters of the URL: scheme://place?option=value.
    """
    if scheme is not None:
        scheme = scheme.partition("://")[0].lower()
    found = installed_backends(scheme)
    if scheme is not None and not found:
        raise BackendNotFoundError(f"no backend for {scheme}:// is installed; 'structable backends' lists them")
    if format_ == "json":
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
    lines = [
        (f"{one.scheme}://", one.provider, one.backend.description if one.backend else one.problem) for one in found
    ]
    print_table(("scheme", "provider", "description"), lines)
    if scheme is None:
        typer.echo("\n'structable backends SCHEME' shows the options of a backend.", err=True)
        return
    for one in found:
        if one.backend is not None:
            typer.echo()
            print_table(
                ("option", "default", "meaning"),
                [(option.name, _default(option), option.description) for option in one.backend.options],
            )


def _default(option: Option) -> str:
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return str(option.default) or "-"


def tables(url: Url) -> None:
    """List the names of the tables, one a line."""
    with open_store(url) as storage:
        for name in storage.admin.list():
            typer.echo(name)


def describe(
    url: Url,
    table: Table,
    format_: Annotated[
        Literal["table", "toml", "json"], typer.Option("--format", help="toml and json are what 'create' takes.")
    ] = "table",
) -> None:
    """Show a table's fields, primary key, indexes, type, rules and options."""
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
    if format_ != "table":
        typer.echo(specification_text(spec, format_), nl=False)
        return
    lines = []
    for field in spec.fields:
        in_key = field.name in spec.primary_key
        key = f"{spec.primary_key.index(field.name) + 1} of {len(spec.primary_key)}" if in_key else ""
        lines.append((field.name, field.type_text, key, "yes" if field.name in spec.indexes else ""))
    print_table(("field", "type", "key", "index"), lines, title=f"table {spec.name}")
    for subject, text in type_in_words(spec):
        typer.echo(f"{subject}: {visible(text)}")
    for rule in spec.rules:
        typer.echo(visible(f"rule: {rule_in_words(rule)}"))
    for name, value in spec.options.items():
        typer.echo(visible(f"option {name} = {value}"))


def create(
    url: Url,
    specification: Annotated[
        str, typer.Argument(metavar="FILE", help="A .toml or .json file, or - for standard input.", show_default=False)
    ],
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Change a table that exists: new fields, new indexes, wider types, some options."
        ),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Create a table from a specification file.

    With --update, a table that exists gets new fields and indexes, wider types, and the options that may change. It
    keeps what it has beyond the file, which is listed; anything else is rejected with a list of all differences.
    """
    spec = read_specification(specification)
    with _store_for(url, dry_run) as storage:
        existing = _existing(storage, spec.name) if storage is not None else None
        if existing is None:
            if storage is not None and not dry_run:
                storage.admin.create(spec)
            typer.echo(f"table {spec.name} {'would be' if dry_run else 'is'} created", err=True)
            return
        if not update:
            raise TableAlreadyExistsError(spec.name)
        change = plan_schema_change(existing, spec)
        if storage is not None and not dry_run:
            storage.admin.create_or_update(spec)
    changes = _changes(change)
    if not changes:
        typer.echo(f"table {spec.name}: nothing to change", err=True)
    for text in changes:
        typer.echo(f"table {spec.name}{' would change' if dry_run else ''}: {visible(text)}", err=True)
    for text in _kept(change, spec):
        typer.echo(f"table {spec.name}: {visible(text)}", err=True)


@contextlib.contextmanager
def _store_for(url: str, dry_run: bool) -> Iterator[Storage | None]:
    """Open the store to create tables in; None if it is missing and must not be created."""
    try:
        storage = open_store(url, StoreAccess.READ if dry_run else StoreAccess.CREATE)
    except StoreNotFoundError:
        if not dry_run:
            raise
        yield None
        return
    with storage:
        yield storage


def _existing(storage: Storage, table: str) -> TableSpecification | None:
    try:
        return storage.admin.get_specification(table)
    except TableNotFoundError:
        return None


def _changes(change: SchemaChange) -> list[str]:
    before = change.before
    return [
        *(f"field {field.name} is added, {field.type_text}" for field in change.added_fields),
        *(
            f"field {field.name} is widened from {before.field(field.name).type_text} to {field.type_text}"
            for field in change.widened_fields
        ),
        *(f"index on {name} is added" for name in change.added_indexes),
        *(
            f"option {name} becomes {change.after.options.get(name, 'its default')}"
            for name in {**before.options, **change.after.options}
            if before.options.get(name) != change.after.options.get(name)
        ),
    ]


def _kept(change: SchemaChange, spec: TableSpecification) -> list[str]:
    """Return the parts of the table that the specification lacks."""
    return [
        *(
            f"field {field.name} stays {field.type_text}, wider than {spec.field(field.name).type_text}"
            if field.name in spec
            else f"field {field.name} is kept, {field.type_text}"
            for field in change.kept_fields
        ),
        *(f"index on {name} is kept" for name in change.kept_indexes),
        *(f"rule is kept: {rule_in_words(rule)}" for rule in change.before.rules if not spec.rules),
        *(
            f"option {name} = {value} is kept"
            for name, value in change.before.options.items()
            if name not in spec.options and name in change.after.options
        ),
    ]


def drop(url: Url, table: Table, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Remove a table with all its rows; asks first, unless --yes is given."""
    with open_store(url, StoreAccess.READ if dry_run else StoreAccess.WRITE) as storage:
        # The contract's drop ignores an absent table; here it means a mistyped name.
        if not storage.admin.exists(table):
            raise TableNotFoundError(table)
        if dry_run:
            typer.echo(f"{table_in_words(storage, table)} would be dropped", err=True)
            return
        confirm(storage, table, "drop", yes=yes)
        storage.admin.drop(table)
    typer.echo(f"table {table} is dropped", err=True)


def compact(url: Url) -> None:
    """Rewrite a store so that it takes no more space than it must, while other processes may use it.

    With the option compression in the URL of a LevelDB store, its files are written with it from now on. An interrupted
    command loses nothing; the next one begins again. Stores that reclaim space by themselves refuse.
    """
    with open_store(url, StoreAccess.WRITE) as storage:
        sizes: list[int] = []
        with progress(f"compact {storage.url}", "MiB") as advance:
            for done in storage.compact():
                sizes.append(done.bytes)
                advance(done.fraction, done.bytes // _MEBIBYTE)
        typer.echo(f"{storage.url} is compacted: {sizes[-1]:,} bytes in place of {sizes[0]:,}")


def table_in_words(storage: Storage, table: str) -> str:
    """Describe a table by its number of rows and its store, whose URL is masked."""
    try:
        number = whole_count(storage, storage.admin.get_specification(table))
        rows = "1 row" if number == 1 else f"{number:,} rows"
    except StructableError:  # unreadable: perhaps the very reason for the drop
        rows = "rows that cannot be read"
    return f"table {table} with {rows} in {storage.url}"


def confirm(storage: Storage, table: str, action: str, *, yes: bool) -> None:
    """Ask before rows are lost, unless `--yes` was given. The action is a verb: "drop"."""
    if yes:
        return
    named = table_in_words(storage, table)
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageProblem(f"{action} {named}? There is no terminal to ask on; give --yes")
    typer.echo(f"{action.capitalize()} {named}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError(f"{table_in_words(storage, table)} is kept")
