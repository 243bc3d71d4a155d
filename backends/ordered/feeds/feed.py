"""`OrderedFeed`: the change feed of a table, over the snapshots of an engine."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from structable.backends.base.change_feed import FeedView, RecordedFeed
from structable.backends.base.feed_marks import FeedRequest, Mark, Segment
from structable.backends.ordered.codec.change_records import count_records
from structable.backends.ordered.engine import Engine, FeedEntry, renewed
from structable.backends.ordered.schema.catalog import Catalog
from structable.spi import Change, FeedPosition, TransactionConflictError

from .floors import marks_after, microseconds, read_floor
from .parts import changes_of, count_net_records
from .retention import raise_floor, restart_feed, set_mark
from .source import FeedSource, bound_feed
from .splits import divide_changes

Result = TypeVar("Result")


class OrderedFeed(RecordedFeed):
    """The feed of a table.

    Parameters
    ----------
    engine : Engine
        The map.
    catalog : Catalog
        The tables.
    table : str
        The table.
    read_only : bool
        As for `RecordedFeed`.
    used : callable
        Called with the table's name after the feed was read.
    stopped : callable
        Called between steps of an expiry; True ends it.
    ended : callable
        Called when a feed has ended, and its entries can be deleted.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        table: str,
        *,
        read_only: bool,
        used: Callable[[str], None] = lambda table: None,
        stopped: Callable[[], bool] = lambda: False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(table, read_only=read_only)
        self._engine = engine
        self._catalog = catalog
        self._used = used
        self._stopped = stopped
        self._ended = ended

    def _ask(self, body: Callable[[FeedView], Result]) -> Result:
        def asked() -> Result:
            view = _SnapshotView(self._engine, self._catalog, self._table, self._stopped)
            try:
                view.look()
                return body(view)
            finally:
                view.close()

        answer = renewed(asked)
        self._used(self._table)
        return answer

    def restart(self) -> FeedPosition:
        earliest = super().restart()
        self._ended()
        return earliest

    def _changes(self, request: FeedRequest) -> Iterator[Change]:
        binding = self._catalog.bind(request.state)
        source = FeedSource(self._engine, self._catalog, self._table, binding.schema.feed or bound_feed(binding))
        return changes_of(source, binding, request)


class _SnapshotView(FeedView):
    """A feed in a snapshot of an engine."""

    newest = 0

    def __init__(self, engine: Engine, catalog: Catalog, table: str, stopped: Callable[[], bool]) -> None:
        self._engine = engine
        self._catalog = catalog
        self._table = table
        self._stopped = stopped
        self._snapshot = engine.begin(True)

    def look(self) -> None:
        """Read the feed's state from the snapshot."""
        binding = self._binding = self._catalog.table(self._snapshot, self._table)
        feed = binding.schema.feed or bound_feed(binding)
        self._space = feed.space
        self.feed, self.spec, self.state = feed.token, binding.spec, binding.raw_schema
        self.newest = self._snapshot.settled_version(self._space)
        self._floor = read_floor(self._engine, self._snapshot, binding, self.newest)
        self.floor = self._floor.version
        self._marks: list[Mark] | None = None

    def close(self) -> None:
        self._snapshot.close()

    def _entries(self, since: int, until: int) -> Generator[FeedEntry]:
        return self._snapshot.entries(self._space, since, until)

    def counts(self, since: int) -> Iterator[tuple[int, int]]:
        return ((version, count) for version, _, count in self._commits(since))

    def _commits(self, since: int) -> Iterator[tuple[int, int, int]]:
        """Yield version, time and number of changes of each commit after a version that has any."""
        version = time = count = 0
        with closing(self._entries(since, self.newest)) as entries:
            for entry in entries:
                if entry.version != version:
                    if count:
                        yield version, time, count
                    version, time, count = entry.version, entry.time, 0
                count += count_records(entry.payload)
        if count:
            yield version, time, count

    def first_not_before(self, moment: dt.datetime) -> int | None:
        wanted = microseconds(moment)
        since = self._last_before(wanted) if self._engine.traits.times_ascend else self.floor
        return next((version for version, time, _ in self._commits(since) if time >= wanted), None)

    def _last_before(self, time: int) -> int:
        """Return the version of the last entry that is older than a time, or the floor."""
        least, most = self.floor, self.newest
        while least < most:
            middle = (least + most) // 2
            with closing(self._entries(middle, self.newest)) as entries:
                entry = next(entries, None)
            if entry is None or entry.time >= time:
                most = middle
            else:
                least = entry.version
        return least

    def count_net(self, segment: Segment) -> int:
        entries = self._entries(segment.since, segment.until)
        return count_net_records(self._binding, entries)

    def marks(self) -> Sequence[Mark]:
        if self._marks is None:
            self._marks = list(marks_after(self._snapshot, self._space, self._floor))
        return self._marks

    def add_mark(self, last: Mark) -> Mark:
        binding = self._binding
        now = dt.datetime.now(dt.UTC)
        set_mark(self._engine, binding, last, Mark(self.newest, max(now, last.time)))
        # Another process may have set the newest mark, after this state.
        self._snapshot.close()
        self._snapshot = self._engine.begin(True)
        self.look()
        if binding is not self._binding:
            raise TransactionConflictError(f"table {self._table!r} was changed at the same time")
        return self.marks()[-1]

    def raise_floor(self, version: int) -> int:
        self._snapshot.close()  # it would keep the deleted entries readable
        return raise_floor(self._engine, self._binding, version, self.floor, self._stopped)

    def restart(self) -> None:
        self._snapshot.close()
        restart_feed(self._engine, self._binding)

    def states(self, request: FeedRequest, splits: int) -> list[bytes]:
        process = os.getpid() if self._engine.traits.process_local else None
        return divide_changes(self._snapshot, self._binding, request, splits, process)
