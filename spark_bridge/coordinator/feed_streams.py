"""Streams of change feeds: the end of each micro-batch, and its plan. Runs in the coordinator, without Spark."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from structable.spark_bridge.base.options import ReadOptions
from structable.spi import (
    ChangeFeed,
    ChangelogProducer,
    ChangesLostError,
    FeedPosition,
    Field,
    ScanSplit,
    SchemaIncompatibleError,
    Storage,
    TableSpecification,
    UnsupportedOperationError,
)

from .held_plans import PlannedSplits
from .stream_offsets import StreamOffset, StreamStart

_LONGEST = 1e9  # seconds: no time would be before the first that Python has


class StreamSchemaError(SchemaIncompatibleError):
    """The fields of a table are no longer of the types that the columns of a running query have."""

    def __init__(self, table: str, differences: Iterable[str]) -> None:
        super().__init__(table, differences)
        Exception.__init__(self, f"table {table!r}: {'; '.join(self.differences)}; restart the query, for new types")


@dataclass(frozen=True, slots=True)
class FeedStream:
    """The fields that a running query reads, with the names and types that its columns had when it started."""

    options: ReadOptions
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    zone: str | None  # of a starting time without an offset
    log: bool = False  # whether the table keeps no rows: without a start the stream begins with its earliest change

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def snapshot_columns(self, position: FeedPosition | None) -> tuple[str, ...]:
        """Return the columns of the first snapshot, or of its repeat."""
        return self.columns if position is None else (*self.columns, *(k for k in self.key if k not in self.columns))

    def check_fields(self, spec: TableSpecification) -> None:
        """Raise SchemaIncompatibleError if a column has another type now; added fields are no problem."""
        differences = [
            f"field {was.name!r} is {now.type_text}, and was {was.type_text} when the query started"
            for was, now in ((field, spec.field(field.name)) for field in self.fields)
            if was != now
        ]
        if differences:
            raise StreamSchemaError(spec.name, differences)


@dataclass(frozen=True, slots=True)
class Advance:
    """A request for the end of a micro-batch after `start`: of at most `rows` changes, and not beyond `until`.

    `age` says for how many seconds the query has had that start, if that is known.
    """

    start: StreamStart | StreamOffset
    rows: int | None
    until: FeedPosition | None
    age: float | None


@dataclass(frozen=True, slots=True)
class FirstSnapshot:
    """The rows of a table at a position, which the coordinator holds under an id.

    The `splits` of a rebuilt one are of a later state, and have the key too. `changes` are the changes since, which are
    net if the table has a key, and `keys` the keys that were changed.
    """

    plan_id: str
    position: FeedPosition
    time: dt.datetime  # when it was planned
    splits: tuple[ScanSplit, ...]
    changes: tuple[ScanSplit, ...] = ()
    keys: tuple[ScanSplit, ...] = ()
    primary_key: tuple[str, ...] = ()


def check_streamed(spec: TableSpecification, *, changes: bool) -> None:
    """Raise UnsupportedOperationError unless a table can be streamed: its changes, or its rows alone."""
    options = spec.table_options
    if not changes and not options.append_only:
        raise UnsupportedOperationError(
            f"table {spec.name!r} is not append-only, so that its rows are changed and deleted: a stream of it gives "
            "its changes, with the option readChangeFeed=true"
        )
    if options.changelog_producer is ChangelogProducer.NONE:
        raise UnsupportedOperationError(
            f"table {spec.name!r} has no change feed, which a stream needs; its option changelog-producer (input, "
            "lookup, full-compaction) begins one"
        )


@contextlib.contextmanager
def naming_the_cure() -> Iterator[None]:
    """Add a remedy for the query to a ChangesLostError of the block or of a decorated function."""
    try:
        yield
    except ChangesLostError as lost:
        lost.add_note(
            "Start the query with a new checkpoint: without a start among its options, it begins with the rows of the "
            "table, or with all that a log keeps."
        )
        raise


def _begin(stream: FeedStream, feed: ChangeFeed, start: StreamStart | StreamOffset) -> FeedPosition:
    """Return the position after which a micro-batch begins."""
    if isinstance(start, StreamOffset):
        return start.position
    if start.is_snapshot:
        return feed.earliest()  # of a log
    assert stream.options.feed is not None
    since, _ = stream.options.feed.range_of(feed, stream.zone)
    assert since is not None
    return since


@naming_the_cure()
def advance(stream: FeedStream, storage: Storage, request: Advance) -> FeedPosition | None:
    """Return the end of the next micro-batch; None if there is nothing after a start that is a position.

    A position moves on without changes once it is older than a tenth of the time for which they are kept.

    Raises
    ------
    ChangesLostError
        If the changes after the start are no longer kept.
    """
    feed = storage.changes(stream.options.table)
    since = _begin(stream, feed, request.start)
    end = feed.latest()
    if end.feed != since.feed or (request.rows is not None and end > since):
        end = feed.advance(since, request.rows or 1)  # raises for a position of another feed
    if request.until is not None and request.until.feed == end.feed:
        end = min(end, request.until)
    end = max(since, end)  # that of a snapshot may be beyond the newest mark of full-compaction
    if end == since or not _changed(stream, feed, since, end):
        if isinstance(request.start, StreamStart):
            return end
        if end == since or not _old(stream, storage, feed, since, request.age):
            return None
    return end


def _changed(stream: FeedStream, feed: ChangeFeed, since: FeedPosition, until: FeedPosition) -> bool:
    with feed.read(since, until, columns=stream.columns[:1]) as changes:
        return next(changes, None) is not None


def _old(stream: FeedStream, storage: Storage, feed: ChangeFeed, since: FeedPosition, age: float | None) -> bool:
    options = storage.admin.get_specification(stream.options.table).table_options
    tenth = min(options.time_retained / 10, _LONGEST)
    if age is not None:
        return age > tenth
    return feed.at(dt.datetime.now(dt.UTC) - dt.timedelta(seconds=tenth)) > since


@naming_the_cure()
def plan_changes(
    stream: FeedStream, storage: Storage, start: StreamStart | StreamOffset, end: FeedPosition, splits: int
) -> tuple[ScanSplit, ...]:
    """Divide the changes after a start up to a position.

    Raises
    ------
    ChangesLostError
        If they are no longer kept.
    SchemaIncompatibleError
        If a field was widened since the query started.
    """
    table = stream.options.table
    feed = storage.changes(table)
    plan = feed.plan(_begin(stream, feed, start), end, columns=stream.columns, splits=splits)
    stream.check_fields(storage.admin.get_specification(table))  # types only grow: the plan has those of the start
    return plan.splits


@naming_the_cure()
def first_snapshot(
    stream: FeedStream, storage: Storage, now: PlannedSplits, position: FeedPosition | None, splits: int
) -> FirstSnapshot:
    """Return the first snapshot of a stream: the current one, or with a position the snapshot taken there, rebuilt.

    Raises
    ------
    ChangesLostError
        If changes since the position are no longer kept.
    SchemaIncompatibleError
        If a field was widened since the query started.
    UnsupportedOperationError
        If the rows at the position cannot be computed from the changes.
    """
    planned = dt.datetime.now(dt.UTC)
    table = stream.options.table
    spec = storage.admin.get_specification(table)
    stream.check_fields(spec)
    check_streamed(spec, changes=stream.options.feed is not None)
    assert now.position is not None
    if position is None:
        return FirstSnapshot(now.plan_id, now.position, planned, now.splits)
    options = spec.table_options
    if options.changelog_producer is ChangelogProducer.INPUT and not options.append_only:
        raise _unrepeatable(table, position, "holds what was given (changelog-producer input)")
    feed = storage.changes(table)
    if spec.keyless:
        changes = feed.plan(position, now.position, columns=stream.columns, splits=splits)
        return FirstSnapshot(now.plan_id, position, planned, now.splits, changes.splits)
    changes = feed.plan_net(position, now.position, columns=stream.columns, splits=splits)
    keys = feed.plan_net(position, now.position, columns=spec.primary_key, splits=splits)
    if changes.until != now.position:
        raise _unrepeatable(table, position, "shows changes at its next mark only (full-compaction)")
    return FirstSnapshot(now.plan_id, position, planned, now.splits, changes.splits, keys.splits, spec.primary_key)


def _unrepeatable(table: str, position: FeedPosition, reason: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"table {table!r}: the batch of this query's first snapshot, at {position}, has not ended according to its "
        f"checkpoint, and cannot be rebuilt from a change feed that {reason}; start the query with a new checkpoint"
    )
