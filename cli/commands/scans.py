"""The commands that read many rows: scan, count, explain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import typer

from structable.cli.formats.output import TABLE_LIMIT, format_of, open_output, open_writer
from structable.cli.language.arguments import Table, Url, open_store
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
from structable.spi import Row

__all__ = ["chunks", "count", "explain", "scan"]

_CHUNK_ROWS = 1024
_CHUNK_BYTES = 16 * 1024 * 1024

OrderBy = Annotated[str | None, typer.Option(metavar="FIELD", help="A key field or an indexed one; nulls first.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="Exactly the reverse order.")]
Limit = Annotated[int | None, typer.Option(metavar="ROWS", help="At most this many rows.", min=0)]


def scan(
    url: Url,
    table: Table,
    where: Where = None,
    prefix: Prefix = None,
    at_least: AtLeast = None,
    above: Above = None,
    at_most: AtMost = None,
    below: Below = None,
    columns: Columns = None,
    order_by: OrderBy = None,
    reverse: Reverse = False,
    limit: Limit = None,
    format_: Annotated[
        Literal["table", "json", "csv", "arrow"] | None,
        typer.Option(
            "--format", help="How rows are written; by default as the extension of --output says, else as a table."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write, if not to standard output.")
    ] = None,
) -> None:
    """Show the rows of a table, from one snapshot, in key order; without a primary key, in any order.

    Without --limit, the table format ends after 100 rows, with a note; all other formats show all rows.
    """
    form = "table" if format_ is None and output in (None, "-") else format_of(output or "-", format_)
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        names = named_columns(spec, columns)
        cut = form == "table" and limit is None
        found = storage.table(table).scan(
            range_,
            where=filter_,
            columns=names,
            order_by=order_by,
            reverse=reverse,
            limit=TABLE_LIMIT + 1 if cut else limit,
        )
        shown = list(spec.field_names) if names is None else names
        fields = [spec.field(name) for name in shown]
        with (
            found,
            open_output(output) as stream,
            open_writer(form, stream, output, fields, spec.primary_key) as writer,
        ):
            from structable.spi.arrow import rows_to_batches

            for chunk in chunks(itertools.islice(found, TABLE_LIMIT) if cut else found):
                for batch in rows_to_batches(spec, chunk, shown):
                    writer.write(batch)
            more = cut and next(found, None) is not None
    if more:
        typer.echo(f"structable: only the first {TABLE_LIMIT} rows are shown; --limit shows more", err=True)


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists of at most 1,024 rows and about 16 MiB, reading no further than the current list."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += sum([len(value) for value in row.values() if isinstance(value, str | bytes)])
        if len(chunk) == _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def count(
    url: Url,
    table: Table,
    where: Where = None,
    prefix: Prefix = None,
    at_least: AtLeast = None,
    above: Above = None,
    at_most: AtMost = None,
    below: Below = None,
) -> None:
    """Print the number of rows."""
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        number = storage.table(table).count([range_], filter_)
    typer.echo(number)


def explain(
    url: Url,
    table: Table,
    where: Where = None,
    prefix: Prefix = None,
    at_least: AtLeast = None,
    above: Above = None,
    at_most: AtMost = None,
    below: Below = None,
    columns: Columns = None,
    order_by: OrderBy = None,
    reverse: Reverse = False,
    limit: Limit = None,
) -> None:
    """Show the path that a scan with the same options would take, without running it."""
    with open_store(url) as storage:
        spec = storage.admin.get_specification(table)
        range_, filter_ = selected(spec, where, prefix, at_least, above, at_most, below)
        explanation = storage.table(table).explain(
            range_, where=filter_, columns=named_columns(spec, columns), order_by=order_by, reverse=reverse, limit=limit
        )
    typer.echo(str(explanation))
