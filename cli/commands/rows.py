"""The commands for single rows: get, put, delete."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from structable.cli.formats.json_rows import decoded, row_from_json, row_to_json
from structable.cli.language.arguments import StoreAccess, Table, Url, open_store
from structable.cli.language.display import print_table
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
    parse_key,
    selected,
)
from structable.spi import Range, RecordNotFoundError, Row, TableSpecification, Value
from structable.spi.authors import keyless_refusal, not_a_field
from structable.spi.text import LiteralError, format_value, parse_value

from .tables import DryRun, Yes, confirm


def get(
    url: Url,
    table: Table,
    key: Annotated[list[str], typer.Argument(metavar="KEY...", help="The key's values, in key order.")],
    columns: Columns = None,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", help="How the row is shown.")] = "table",
) -> None:
    """Show the row of a key. If there is none, the exit code is 3."""
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        values = parse_key(spec, key)
        names = named_columns(spec, columns)
        row = storage.table(table).read(values, names)
    if row is None:
        raise RecordNotFoundError(table, values)
    shown = list(spec.field_names) if names is None else names
    if format_ == "json":
        typer.echo(row_to_json(spec, row, shown))
    else:
        print_table(("field", "value"), [(name, _text(spec, row, name)) for name in shown])


def _text(spec: TableSpecification, row: Row, name: str) -> str:
    return "null" if row[name] is None else format_value(spec.field(name), row[name])


def put(
    url: Url,
    table: Table,
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="The key and the fields to write.")
    ] = None,
    null: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Write null. May be repeated.")] = None,
    row: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="OBJECT", help="The row as a JSON object instead; - reads it from standard input."
        ),
    ] = None,
    mode: Annotated[
        Literal["upsert", "insert", "replace", "update"] | None,
        typer.Option(
            help="upsert, the default, merges as the table's merge engine says: without one it keeps the fields that "
            "are not named. replace sets them to null, insert requires a new key, update an existing one. A table "
            "without a primary key takes insert only, its default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one row."""
    with open_store(url, StoreAccess.WRITE) as storage:
        spec = storage.admin.get_specification(table)
        values = _row(spec, assignments or (), null or ()) if row is None else _json_row(spec, row, assignments, null)
        getattr(storage.table(table), mode or ("insert" if spec.keyless else "upsert"))(values)


def _json_row(
    spec: TableSpecification, text: str, assignments: Sequence[str] | None, null: Sequence[str] | None
) -> dict[str, Value]:
    if assignments or null:
        raise UsageProblem("--json gives the whole row; leave out FIELD=VALUE and --null")
    try:
        if text == "-":
            text = decoded("standard input", sys.stdin.buffer.read())
        return row_from_json(spec, text)
    except json.JSONDecodeError as error:
        raise UsageProblem(f"--json, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise UsageProblem(f"--json: {error}") from error


def _row(spec: TableSpecification, assignments: Sequence[str], null: Sequence[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator:
            raise UsageProblem(f"'{assignment}' is not FIELD=VALUE")
        _check_name(spec, name, values)
        try:
            values[name] = parse_value(spec.field(name), text)
        except LiteralError as error:
            hint = f"; '--null {name}' writes null" if not text else ""
            raise UsageProblem(f"field '{name}': {error}{hint}") from None
    for name in null:
        _check_name(spec, name, values)
        values[name] = None
    return values


def _check_name(spec: TableSpecification, name: str, values: dict[str, Value]) -> None:
    if name not in spec:
        raise UsageProblem(f"'{name}' {not_a_field(spec.field_names, spec.name)}")
    if name in values:
        raise UsageProblem(f"the field '{name}' is given twice")


def delete(
    url: Url,
    table: Table,
    key: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="The key's values, in key order.")] = None,
    where: Where = None,
    prefix: Prefix = None,
    at_least: AtLeast = None,
    above: Above = None,
    at_most: AtMost = None,
    below: Below = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="All rows of the table; asks first, unless --yes is given.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete the row of a key, or all rows that the options select, in one transaction.

    Deleting an absent row is not an error. If options select the rows, their number is printed.
    """
    options = any((where is not None, prefix, at_least, above, at_most, below))
    if bool(key) + options + all_rows != 1:
        raise UsageProblem("delete needs a key, or options that select rows, or --all, and one of these only")
    with open_store(url, StoreAccess.READ if dry_run else StoreAccess.WRITE) as storage:
        spec = storage.admin.get_specification(table)
        view = storage.table(table)
        if key:
            values = parse_key(spec, key)
            if dry_run:
                typer.echo(f"{view.count([Range.prefix(values)])} would be deleted", err=True)
            else:
                view.delete(values)
            return
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        if spec.table_options.append_only:
            raise keyless_refusal(spec, "delete")
        if dry_run:
            typer.echo(f"{view.count([range_], filter_):,} rows would be deleted", err=True)
            return
        if all_rows:
            confirm(storage, table, "empty", yes=yes)
        typer.echo(view.delete_all(range_, filter_))
