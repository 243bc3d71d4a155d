"""`FeedSource`: a feed in the newest state of the store, read in pages; nothing is held between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple, TypeAlias

from structable.backends.base.change_feed import require_feed
from structable.backends.ordered.codec.change_records import count_records, first_number
from structable.backends.ordered.engine import EngineSnapshot, FeedEntry, OrderedMap
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.schema.catalog import Catalog
from structable.backends.ordered.table_schema import FeedSchema
from structable.spi import ChangesLostError, FeedPosition

from .floors import read_floor, recorded_floor

_FIRST_ENTRIES = 64
_MOST_ENTRIES = 8_192
_PAGE_BYTES = 4 << 20
_FIRST_BYTES = 16 << 10
_MOST_CHUNKS = 1 << 32
"""A number above the entries of any commit."""


class FeedBound(NamedTuple):
    """A point between two entries of a feed: before the `chunk`th of a version."""

    version: int
    chunk: int = 0


_EntryPage: TypeAlias = tuple[list[FeedEntry], FeedBound | None]
"""Some entries, and the beginning of the remaining ones, if there may be any."""


def bound_feed(binding: TableBinding) -> FeedSchema:
    """Return the feed of a table; raises UnsupportedOperationError if it has none."""
    require_feed(binding.spec)
    assert binding.schema.feed is not None, "a table with a producer has a feed"
    return binding.schema.feed


class FeedSource:
    """The entries of one feed of a table, while the table has this feed and keeps them."""

    def __init__(self, engine: OrderedMap, catalog: Catalog, table: str, feed: FeedSchema) -> None:
        self._engine = engine
        self._catalog = catalog
        self._table = table
        self._feed = feed

    def pages(self, begin: FeedBound, end: FeedBound) -> Iterator[list[FeedEntry]]:
        """Yield the entries between two bounds in their order.

        `end` is at most the bound after a version that was settled.

        Raises
        ------
        ChangesLostError
            If entries not read yet have expired, or their feed is gone.
        TableNotFoundError, UnsupportedOperationError
            If the table, or every feed of it, is gone.
        """
        since, most = begin, _FIRST_ENTRIES
        held: list[FeedEntry] = []
        rest: FeedBound | None = begin
        while rest is not None:
            # Reading a newer state proves the previous page complete: the floor is raised before entries are deleted.
            following, after = self._engine.look(partial(self._next, since, rest, end, most, _PAGE_BYTES))
            if held:
                yield held
            since, held, rest, most = rest, following, after, min(4 * most, _MOST_ENTRIES)
        if not self._engine.traits.keeps_entries:
            self._engine.look(partial(self._require_kept, since))
        if held:
            yield held

    def pages_on_demand(self, begin: FeedBound, end: FeedBound) -> Iterator[list[FeedEntry]]:
        """Yield the entries between two bounds as `pages` does, for a reader that may take only a few changes.

        The first pages are small, and each is read only when it is needed.
        """
        rest: FeedBound | None = begin
        most, size = _FIRST_ENTRIES, _FIRST_BYTES
        while rest is not None:
            entries, following = self._engine.look(partial(self._next, rest, rest, end, most, size))
            if not self._engine.traits.keeps_entries:
                self._engine.look(partial(self._require_kept, rest))
            if entries:
                yield entries
            rest, most, size = following, min(4 * most, _MOST_ENTRIES), min(4 * size, _PAGE_BYTES)

    def bound_of(self, version: int, number: int) -> FeedBound:
        """Return the beginning of the entry that has a numbered change; for feeds of the producer `input`."""
        return self._engine.look(
            lambda snapshot: FeedBound(version, entry_with(number, partial(self._entry, snapshot, version)))
        )

    def _entry(self, snapshot: EngineSnapshot, version: int, chunk: int) -> bytes | None:
        with closing(snapshot.entries(self._feed.space, version - 1, version, chunk)) as entries:
            return next((entry.payload for entry in entries), None)

    def _next(
        self, since: FeedBound, begin: FeedBound, end: FeedBound, most: int, most_bytes: int, snapshot: EngineSnapshot
    ) -> _EntryPage:
        """Return the page that begins at a bound, if the feed is kept since an earlier one."""
        self._require_kept(since, snapshot)
        page: list[FeedEntry] = []
        size = 0
        # Up to the end of the last version; its chunks from `end` on are left out.
        last = end.version if end.chunk else end.version - 1
        entries = snapshot.entries(self._feed.space, begin.version - 1, last, begin.chunk)
        try:
            for entry in entries:
                if entry[:2] >= end:
                    break
                if size >= most_bytes or len(page) == most:
                    return page, FeedBound(entry.version, entry.chunk)
                page.append(entry)
                size += len(entry.payload)
        finally:
            entries.close()
        return page, None

    def _require_kept(self, since: FeedBound, snapshot: EngineSnapshot) -> None:
        """Check that no entry from a bound on has expired in the newest state."""
        binding = self._catalog.table(snapshot, self._table)
        now = binding.schema.feed or bound_feed(binding)
        if now.token == self._feed.token:
            kept = recorded_floor(snapshot, now.space)
            if kept is None or kept.version < since.version:
                return
            reason = "has expired"
        else:
            kept = read_floor(self._engine, snapshot, binding, snapshot.settled_version(now.space))
            reason = "belongs to a feed that is gone"
        lost = FeedPosition(self._feed.token, since.version - 1)
        raise ChangesLostError(self._table, lost, FeedPosition(now.token, kept.version), reason)


def entry_with(number: int, entry_of: Callable[[int], bytes | None]) -> int:
    """Return the number of a commit's entry that holds a numbered change, or else of the commit's last entry.

    Return 0 for entries of older software, which lack the number of their first change.

    Parameters
    ----------
    number : int
        The number of the change.
    entry_of : callable
        Returns the nth entry of the commit, None beyond its last.
    """
    entry = entry_of(0)
    low, first, behind = 0, 0, 0 if entry is None else count_records(entry)
    high, ceiling, step = _MOST_CHUNKS if behind else 1, 0, 0
    while number >= behind and high - low > 1:
        step += 1
        if entry is None or step % 3 == 0:
            guess = (low + high) // 2  # few steps, whatever the sizes of the entries
        elif ceiling:
            guess = low + (number - first) * (high - low) // (ceiling - first)
        else:
            guess = number * (low + 1) // behind
        guess = min(max(guess, low + 1), high - 1)
        entry = entry_of(guess)
        begins = number + 1 if entry is None else first_number(entry)
        if begins is None:
            return 0
        if begins > number:
            high, ceiling = guess, 0 if entry is None else begins
        elif entry is not None:
            low, first, behind = guess, begins, begins + count_records(entry)
    return low
