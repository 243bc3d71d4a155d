"""The commands that read many rows: scan, count, explain."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

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
from structable.spi import Filter, Range, Row, SharedSnapshot, Storage, TableSpecification, UnsupportedOperationError

if TYPE_CHECKING:
    import pyarrow as pa

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


_SPLITS = 32
_ALL = Range.all()


def snapshot_batches(
    storage: Storage,
    table: str,
    columns: Sequence[str],
    *,
    range_: Range = _ALL,
    where: Filter | None = None,
    unordered: bool = False,
    snapshot: SharedSnapshot | None = None,
) -> Generator[tuple[float | None, pa.RecordBatch], None, None]:
    """Yield the batches of one snapshot, each with the fraction read before it, if known; in key order, or in any.

    The generator holds the snapshot: close it.
    """
    try:
        plan = (snapshot or storage).plan_scan(table, range=range_, where=where, columns=columns, splits=_SPLITS)
    except UnsupportedOperationError:
        plan = None  # a single-process store, whose scan is also a snapshot
    if plan is not None:
        with plan:
            if plan.ordered or unordered:
                for number, split in enumerate(plan.splits):
                    for batch in storage.read_split(split):
                        yield number / len(plan.splits), batch
                return
    from structable.spi.arrow import rows_to_batches

    view = storage.table(table)
    with view.scan(range_, where=where, columns=columns) as rows:
        for chunk in chunks(rows):
            for batch in rows_to_batches(view.specification, chunk, columns):
                yield None, batch


def whole_batches(
    storage: Storage, spec: TableSpecification, snapshot: SharedSnapshot | None = None
) -> Generator[tuple[float | None, pa.RecordBatch], None, None]:
    """Yield all rows of a table like `snapshot_batches`, in any order; for a log, the rows in its feed, in order."""
    columns = spec.field_names
    if not spec.table_options.log:
        yield from snapshot_batches(storage, spec.name, columns, unordered=True, snapshot=snapshot)
        return
    plan = storage.changes(spec.name).plan(columns=columns, splits=_SPLITS)
    for number, split in enumerate(plan.splits):
        for batch in storage.read_split(split):
            yield number / len(plan.splits), batch.select(columns)


def whole_count(storage: Storage, spec: TableSpecification) -> int:
    """Return the number of rows of a table; for a log, the number of rows in its feed."""
    if not spec.table_options.log:
        return storage.table(spec.name).count()
    with storage.changes(spec.name).read(columns=spec.field_names[:1]) as changes:
        return sum(1 for _ in changes)
