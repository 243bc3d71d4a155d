"""`RecordedFeed`: the rules of change feeds, over the feed that a store records."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

from structable.spi import (
    FEED_COLUMNS,
    Change,
    ChangeFeed,
    ChangeIterator,
    ChangelogProducer,
    ChangePlan,
    ChangesLostError,
    FeedPosition,
    TableSpecification,
    TransactionClosedError,
    UnsupportedOperationError,
)
from structable.spi.authors import (
    check_after,
    check_columns,
    check_flag,
    check_moment,
    check_rows,
    check_splits,
    consumed,
    require_net,
    row_columns,
)

from .feed_marks import FeedRequest, Mark, Segment, between_marks, mark_at, mark_before

Result = TypeVar("Result")


def require_feed(spec: TableSpecification) -> None:
    """Raise UnsupportedOperationError unless a table has a change feed."""
    if spec.table_options.changelog_producer is ChangelogProducer.NONE:
        raise UnsupportedOperationError(
            f"table {spec.name!r} has no change feed; its option changelog-producer (input, lookup, full-compaction) "
            "begins one"
        )


class FeedView(ABC):
    """The feed of a table in one state of the store, read by a snapshot, a connection, or whatever the store needs."""

    spec: TableSpecification
    feed: str
    """The token of the feed, as in its positions."""
    floor: int
    """Every change after this version is kept."""
    state: bytes = b""
    """Further state that the store needs to read a request of this view, in any process."""

    @property
    @abstractmethod
    def newest(self) -> int:
        """The newest stable version of the store."""

    def reached(self, version: int) -> bool:
        """Return whether a version is not beyond the newest. A store may wait here until it knows.

        Raises
        ------
        StorageUnavailableError
            If it cannot be known now.
        """
        return version <= self.newest

    @abstractmethod
    def counts(self, since: int) -> Iterator[tuple[int, int]]:
        """Yield versions after one, up to `newest`, in order, and the number of changes of each that has any."""

    def now(self) -> dt.datetime:
        """Return the time by the store's clock, or by this process's clock if the store has none."""
        return dt.datetime.now(dt.UTC)

    @abstractmethod
    def first_not_before(self, moment: dt.datetime) -> int | None:
        """Return the first version with changes, after the floor and up to `newest`, that is not older than a time."""

    @abstractmethod
    def count_net(self, segment: Segment) -> int:
        """Return the number of changes of a segment with a mark, a pair of images counted as two."""

    @abstractmethod
    def marks(self) -> Sequence[Mark]:
        """Return the kept marks of a feed with full-compaction, in order; the first is the floor's."""

    @abstractmethod
    def add_mark(self, last: Mark) -> Mark:
        """Set a mark at `newest`, unless another was set after `last`, and return the newest of all; durable."""

    @abstractmethod
    def raise_floor(self, version: int) -> int:
        """Drop all changes and marks up to a version from the feed, unless that is below the floor; return the floor.

        Remains of an earlier, interrupted call are dropped too. The view must not be used afterwards.
        """

    @abstractmethod
    def restart(self) -> None:
        """End the feed, and begin another one for the table. The view must not be used afterwards."""

    @abstractmethod
    def states(self, request: FeedRequest, splits: int) -> list[bytes]:
        """Return the states of about `splits` splits of a request, at least one."""


class _GeneratedChanges(ChangeIterator):
    """The changes that a generator yields. An error that ends it early is raised again by every later call."""

    __slots__ = ("_changes", "_closed", "_failure")

    def __init__(self, changes: Iterator[Change]) -> None:
        self._changes = changes
        self._closed = False
        self._failure: BaseException | None = None

    def __next__(self) -> Change:
        if self._closed:
            raise TransactionClosedError("the iterator over changes was closed; read them again")
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._changes)
        except StopIteration:
            raise
        except BaseException as failure:
            self._failure = failure
            raise

    def close(self) -> None:
        self._closed = True
        self._changes.close()  # type: ignore[attr-defined] # a generator


class RecordedFeed(ChangeFeed):
    """The feed of a table that a store records.

    Parameters
    ----------
    table : str
        The table.
    read_only : bool
        Whether to set no marks and drop no changes.
    """

    def __init__(self, table: str, *, read_only: bool) -> None:
        self._table = table
        self._read_only = read_only

    @abstractmethod
    def _ask(self, body: Callable[[FeedView], Result]) -> Result:
        """Return the result of a function of the feed's present view; a store may call it again, with another view.

        Raises as every method of `ChangeFeed` does.
        """

    @abstractmethod
    def _changes(self, request: FeedRequest) -> Iterator[Change]:
        """Yield the changes of a request, as a generator; closing it frees its resources.

        Raises ChangesLostError, never yielding a change after the first that has expired.
        """

    def earliest(self) -> FeedPosition:
        return self._ask(lambda view: FeedPosition(view.feed, view.floor))

    def latest(self) -> FeedPosition:
        return self._ask(lambda view: FeedPosition(view.feed, self._latest(view)))

    def _latest(self, view: FeedView) -> int:
        if not _compacts(view):
            return view.newest
        last = view.marks()[-1]
        options = view.spec.table_options
        age = (dt.datetime.now(dt.UTC) - last.time).total_seconds()
        if not self._read_only and age >= options.compaction_interval and next(view.counts(last.version), None):
            last = view.add_mark(last)
        return last.version

    def at(self, timestamp: dt.datetime) -> FeedPosition:
        moment = check_moment(timestamp)
        return self._ask(lambda view: FeedPosition(view.feed, self._at(view, moment)))

    def _at(self, view: FeedView, moment: dt.datetime) -> int:
        latest = self._latest(view)
        if not _compacts(view):
            version = view.first_not_before(moment)
            return latest if version is None else version - 1
        return mark_at(view.marks(), moment)

    def _last_before(self, view: FeedView, moment: dt.datetime) -> int:
        """Return the last version whose changes are all older than a time, or the floor.

        It is the version of a commit, so that a younger position is never lost.
        """
        if _compacts(view):
            if view.marks()[-1].time < moment:
                self._latest(view)  # sets a mark: even a feed that is never read must be divided
            return mark_at(view.marks(), moment)
        first = view.first_not_before(moment)
        versions = (version for version, _ in view.counts(view.floor))
        older = versions if first is None else takewhile(lambda version: version < first, versions)
        return max(older, default=view.floor)

    def position(self, version: int) -> FeedPosition:
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValueError(f"version is {version!r}; it must be an int")

        def body(view: FeedView) -> FeedPosition:
            latest = self._latest(view)
            # A number without a position is also expired, or beyond the newest.
            position = FeedPosition(view.feed, min(max(version, 0), (1 << 63) - 1))
            if version < view.floor:
                reason = "is not kept: changes this old have expired, or were made before the feed existed"
                raise self._lost(view, position, reason)
            if version > latest and (_compacts(view) or not view.reached(version)):
                raise self._lost(view, position, f"is beyond the newest, {latest}")
            return position

        return self._ask(body)

    def advance(self, since: FeedPosition, rows: int) -> FeedPosition:
        check_rows(rows)

        def body(view: FeedView) -> FeedPosition:
            latest = self._latest(view)
            begin = self._require_kept(view, since)
            return FeedPosition(view.feed, max(begin, _advanced(view, begin, latest, rows)))

        return self._ask(body)

    def read(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        net: bool = False,
        after: int | None = None,
    ) -> ChangeIterator:
        names = consumed(columns)

        def body(view: FeedView) -> FeedRequest:
            wanted = row_columns(view.spec, names) or view.spec.field_names
            return self._request(view, since, until, wanted, net, after=check_after(view.spec, since, after))[0]

        return _GeneratedChanges(self._changes(self._ask(body)))

    def plan(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        splits: int = 1,
        net: bool = False,
    ) -> ChangePlan:
        return self._planned(since, until, columns, splits, net)

    def plan_net(
        self, since: FeedPosition, until: FeedPosition, *, columns: Iterable[str] | None = None, splits: int = 1
    ) -> ChangePlan:
        return self._planned(since, until, columns, splits, True, to_mark=False)

    def _planned(
        self,
        since: FeedPosition | None,
        until: FeedPosition | None,
        columns: Iterable[str] | None,
        splits: int,
        net: bool,
        *,
        to_mark: bool = True,
    ) -> ChangePlan:
        most = check_splits(splits)
        names = consumed(columns)

        def body(view: FeedView) -> ChangePlan:
            wanted = check_columns(view.spec, names) or view.spec.field_names
            request, begin, end = self._request(view, since, until, wanted, net, to_mark=to_mark)
            first, last = FeedPosition(view.feed, begin), FeedPosition(view.feed, end)
            return ChangePlan(view.spec, (*wanted, *FEED_COLUMNS), view.states(request, most), first, last)

        return self._ask(body)

    def expire(self, until: FeedPosition | None = None) -> FeedPosition:
        if self._read_only:
            raise UnsupportedOperationError("expire drops changes, and the store was connected with read_only=True")

        def body(view: FeedView) -> FeedPosition:
            if until is None:
                cut = self._last_before(view, _earlier(view.now(), view.spec.table_options.time_retained))
            else:
                cut = self._require_kept(view, until)
                if _compacts(view):
                    cut = mark_before(view.marks(), cut)
            return FeedPosition(view.feed, view.raise_floor(max(view.floor, cut)))

        return self._ask(body)

    def restart(self) -> FeedPosition:
        if self._read_only:
            raise UnsupportedOperationError("restart ends the feed, and the store was connected with read_only=True")
        self._ask(lambda view: view.restart())
        return self.earliest()

    def _request(
        self,
        view: FeedView,
        since: FeedPosition | None,
        until: FeedPosition | None,
        columns: tuple[str, ...],
        net: bool,
        *,
        to_mark: bool = True,
        after: int | None = None,
    ) -> tuple[FeedRequest, int, int]:
        """Check the arguments of a read or a plan; return the request, and the versions of its range."""
        if check_flag(view.spec, "net", net):
            require_net(view.spec)
        latest = self._latest(view)
        begin = view.floor if since is None else self._require_kept(view, since, after)
        end = latest if until is None else self._require_kept(view, until)
        marks: Sequence[Mark] = ()
        if to_mark and _compacts(view):
            marks = view.marks()
            end = mark_before(marks, end)
        segments: list[Segment] = []
        stamps: tuple[Mark, ...] = ()
        if begin < end:
            if net:
                segments = [Segment(begin, end)]
                stamps = tuple(mark for mark in marks if begin < mark.version <= end)
            elif marks:
                segments = between_marks(marks, begin, end)
            else:
                segments = [Segment(begin, end)]
        request = FeedRequest(view.spec, view.feed, tuple(segments), net, columns, stamps, view.state, after)
        return request, begin, end

    def _require_kept(self, view: FeedView, position: FeedPosition, after: int | None = None) -> int:
        """Return the version behind which a position is, or raise ChangesLostError.

        With `after`, the position is inside the commit of its version, which must be kept as well.
        """
        if not isinstance(position, FeedPosition):
            raise ValueError(f"{position!r} is not a FeedPosition")
        if position.feed != view.feed:
            raise self._lost(view, position, "belongs to a feed that is gone")
        within = after is not None
        if position.version < view.floor + within:
            rest = ", and with it the rest of its commit" if within else ""
            raise self._lost(view, position, f"has expired{rest}")
        if not view.reached(position.version):
            raise self._lost(view, position, f"is beyond the newest, {view.newest}: was the store restored?")
        return position.version - within

    def _lost(self, view: FeedView, position: FeedPosition, reason: str) -> ChangesLostError:
        return ChangesLostError(self._table, position, FeedPosition(view.feed, view.floor), reason)


def _compacts(view: FeedView) -> bool:
    return view.spec.table_options.changelog_producer is ChangelogProducer.FULL_COMPACTION


def _advanced(view: FeedView, since: int, latest: int, rows: int) -> int:
    if _compacts(view):
        segments = between_marks(view.marks(), since, latest)
        counts: Iterator[tuple[int, int]] = ((segment.until, view.count_net(segment)) for segment in segments)
    else:
        counts = view.counts(since)
    last: int | None = None
    for version, number in counts:
        rows -= number
        if rows < 0:
            return version if last is None else last
        last = version
    return latest


def _earlier(now: dt.datetime, retained: float) -> dt.datetime:
    """Return the time before which changes are too old; the earliest possible time if the retention is longer."""
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    return now - dt.timedelta(seconds=retained) if retained < (now - first).total_seconds() else first
