"""The command on change feeds: changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, BinaryIO, Literal

import typer

from structable.cli.formats.file_columns import FEED_FIELDS
from structable.cli.formats.output import TABLE_LIMIT, format_of, open_output, open_writer
from structable.cli.language.arguments import StoreAccess, Table, Url, open_store
from structable.cli.language.display import BatchWriter
from structable.cli.language.errors import UsageProblem
from structable.cli.language.selection import Columns, named_columns
from structable.spi import (
    FEED_COLUMNS,
    ChangeFeed,
    ChangelogProducer,
    FeedPosition,
    Field,
    Listener,
    Storage,
    TableSpecification,
)
from structable.spi.authors import feed_channel
from structable.spi.text import LiteralError, parse_value

Since = Annotated[
    str | None,
    typer.Option(
        metavar="POSITION",
        help="After this position: FEED:VERSION, a time with its zone, or 'latest'. Left out, everything that is kept.",
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="POSITION", help="Up to this position. Left out, up to the newest change.")
]


def changes(
    url: Url,
    table: Table,
    since: Since = None,
    until: Until = None,
    net: Annotated[
        bool, typer.Option("--net", help="Per key the row at --since against the row at --until, in any order.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with what is committed next, until Ctrl-C, SIGTERM or --until."),
    ] = False,
    columns: Columns = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="CHANGES", help="End after the last whole commit within this many; at least one.", min=1),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="With --follow, the longest time between two looks; the signal of a commit ends it.",
            min=0.01,
            max=3600.0,
        ),
    ] = 1.0,
    format_: Annotated[
        Literal["table", "json", "csv", "arrow"] | None,
        typer.Option(
            "--format",
            help="How changes are written; by default as the extension of --output says, else json with --follow, and "
            "a table without.",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write, if not to standard output.")
    ] = None,
) -> None:
    """Show what changed in a table with a change feed: whole commits, in their order.

    The last line on standard error names the position reached: --since continues from there. Without --limit, the table
    format ends after about 100 changes.
    """
    plain = output in (None, "-")
    if follow and (net or limit is not None or not plain):
        raise UsageProblem("--follow runs for ever; leave out --net, --limit and --output")
    form = format_ or ("json" if follow else "table") if plain else format_of(output or "-", format_)
    if follow and form == "arrow":
        raise UsageProblem("--follow writes json, csv or a table")
    cut = form == "table" and limit is None and not (net or follow)
    with open_store(url) as looked_at, ExitStack() as stack:
        storage = looked_at
        if _needs_marks(storage.admin.get_specification(table)):
            storage = stack.enter_context(open_store(url, StoreAccess.WRITE))
        feed, spec = storage.changes(table), storage.admin.get_specification(table)
        shown = named_columns(spec, columns) or list(spec.field_names)
        begin = feed.earliest() if since is None else _resolved(feed, _parsed(since, "--since"))
        stop = None if until is None else _parsed(until, "--until")
        end = None if stop is None else _resolved(feed, stop)
        if end is not None:
            _require_one_feed(feed, begin, end)
        if cut or limit is not None:
            # Read first: a commit to another table moves the newest position beyond all changes of this table.
            newest = end or feed.latest()
            part = feed.advance(begin, limit or TABLE_LIMIT)
            _require_one_feed(feed, part, newest)
            more = part < newest
            end = part if more or end is None else end
        else:
            more = False
        # A reader looks first for the kind of the change.
        fields = [*FEED_FIELDS, *(spec.field(name) for name in shown)]
        source = _FeedBatches(storage, feed, [field.name for field in fields], net=net)
        with open_output(output) as stream, open_writer(form, stream, output, fields, spec.primary_key) as writer:
            if follow:
                last = stop if isinstance(stop, dt.datetime) else end
                with storage.listen([feed_channel(table)]) as listener:
                    _follow(source, writer, stream, begin, last, listener, interval)
                return
            reached = source.copy(begin, end, writer)
    if more and cut:
        typer.echo(f"structable: only the first changes are shown, about {TABLE_LIMIT}; --limit shows more", err=True)
    _report(reached)


def _needs_marks(spec: TableSpecification) -> bool:
    """Return whether the newest position advances only when a connection that may write reads it."""
    return spec.table_options.changelog_producer is ChangelogProducer.FULL_COMPACTION


def _report(reached: FeedPosition) -> None:
    typer.echo(f"structable: position {reached}", err=True)


def _parsed(text: str, option: str) -> FeedPosition | dt.datetime | Literal["latest"]:
    if text == "latest":
        return "latest"
    try:
        return FeedPosition.parse(text)
    except ValueError:
        pass  # a time, or neither
    try:
        moment = parse_value(Field.timestamp("time"), text)
    except LiteralError:
        raise UsageProblem(
            f"{option} is '{text}'; it must be FEED:VERSION as an earlier call printed it, a time such as "
            "2026-01-31T12:00:00Z, or latest"
        ) from None
    assert isinstance(moment, dt.datetime)
    return moment


def _resolved(feed: ChangeFeed, given: FeedPosition | dt.datetime | Literal["latest"]) -> FeedPosition:
    if given == "latest":
        return feed.latest()
    return feed.at(given) if isinstance(given, dt.datetime) else given


def _require_one_feed(feed: ChangeFeed, one: FeedPosition, other: FeedPosition) -> None:
    """Raise ChangesLostError for positions of two feeds, which have no order: one of the feeds is gone."""
    if one.feed != other.feed:
        feed.plan(one, other)


class _FeedBatches:
    """The changes of a table as batches."""

    def __init__(self, storage: Storage, feed: ChangeFeed, columns: Sequence[str], *, net: bool) -> None:
        self._storage = storage
        self.feed = feed
        self._columns = columns
        self._net = net

    def copy(self, since: FeedPosition, until: FeedPosition | None, writer: BatchWriter) -> FeedPosition:
        """Write the changes of a range, and return its end."""
        fields = [name for name in self._columns if name not in FEED_COLUMNS]
        plan = self.feed.plan(since, until, columns=fields, net=self._net)
        for split in plan.splits:
            for batch in self._storage.read_split(split):
                writer.write(batch.select(self._columns))
        return max(since, plan.until)


def _follow(
    source: _FeedBatches,
    writer: BatchWriter,
    stream: BinaryIO,
    since: FeedPosition,
    until: FeedPosition | dt.datetime | None,
    listener: Listener,
    interval: float,
) -> None:
    """Write changes as they are committed; report the position after the last one, however the command ends."""
    feed = source.feed
    try:
        while True:
            left = _seconds_until(until) if isinstance(until, dt.datetime) else interval
            end = feed.latest()
            _require_one_feed(feed, since, end)
            if until is not None:
                wanted = _resolved(feed, until)
                _require_one_feed(feed, since, wanted)
                end = min(end, wanted)
            if since < end:
                source.copy(since, end, writer)
                stream.flush()
                since = end
            if left <= 0 or (isinstance(until, FeedPosition) and since >= until):
                return
            listener.wait(min(interval, left))
    finally:
        _report(since)


def _seconds_until(moment: dt.datetime) -> float:
    return (moment - dt.datetime.now(dt.UTC)).total_seconds()
