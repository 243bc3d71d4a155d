"""Finds the left rows that a step must join again, from the changes of both tables since the last step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import and_
from typing import Self

from structable.spi import (
    Change,
    ChangeFeed,
    FeedPosition,
    Filter,
    Range,
    Row,
    RowIterator,
    RowKind,
    Storage,
    StructuredTable,
    col,
)

from .binding import BoundJoin
from .kernel import Kernel, Values
from .progress import Positions
from .stores import JoinStores

_KEYS_AT_ONCE = 1_000
"""The maximum number of values of `isin` that become intervals of an index; more are compared row by row."""


@dataclass(slots=True)
class SideChanges:
    """The changed rows of one table that may change the result, in the range of its feed that was read.

    An update that leaves equal all fields that the join reads is left out. Each change is judged by itself, never the
    net change: after an interrupted step the result may be at a position between.

    Attributes
    ----------
    position : FeedPosition
        The end of the range; some changes of the next commit may have been read too.
    rows : dict of tuple to Row or None
        By key, the row after the last of these changes; None if it is gone.
    before : dict of tuple to Row or None
        By key, the row before the first of these changes; None if there was none.
    oldest : datetime.datetime, optional
        When the first change of the range was committed; None if there was no change.
    """

    position: FeedPosition
    rows: dict[Values, Row | None] = field(default_factory=dict)
    before: dict[Values, Row | None] = field(default_factory=dict)
    oldest: dt.datetime | None = None

    def read(
        self, storage: Storage, kernel: Kernel, side: str, until: FeedPosition, most: int, *, keys_only: bool = False
    ) -> bool:
        """Read the feed on, and return whether there are at most `most` rows; more end the reading.

        With `keys_only` every further row is None, and has no row before.

        Raises
        ------
        ChangesLostError
            If the changes are no longer kept.
        """
        if len(self.rows) > most:
            return False
        spec, columns = (
            (kernel.bound.left, kernel.bound.left_columns)
            if side == "left"
            else (kernel.bound.right, kernel.bound.right_columns)
        )
        before: Row | None = None
        with storage.changes(spec.name).read(self.position, until, columns=columns) as changes:
            for change in changes:
                if self.oldest is None:
                    self.oldest = change.timestamp
                row = _row(change)
                if change.kind is RowKind.UPDATE_BEFORE:
                    before = row
                    continue
                key = row.key
                was = row if change.kind is RowKind.DELETE else None
                if change.kind is RowKind.UPDATE_AFTER and before is not None and before.key == key:
                    was = before
                    if not kernel.matters(side, before, row):
                        continue
                if not keys_only:
                    self.before.setdefault(key, was)
                self.rows[key] = None if keys_only or change.kind is RowKind.DELETE else row
                if len(self.rows) > most:
                    assert change.version is not None
                    # The rest of the commit is read with all of it: that changes nothing in the rows read so far.
                    self.position = FeedPosition(until.feed, change.version - 1)
                    return False
        self.position = until
        return True


@dataclass(slots=True)
class Changes:
    """The changes of both tables that a step has read: a small step that proves too large hands them to the large one.

    Attributes
    ----------
    since : Positions
        The recorded positions.
    seen : Positions
        The state up to which the changes were read, as far as they were: no earlier state fits them.
    left, right : SideChanges
        The changes.
    """

    since: Positions
    seen: Positions
    left: SideChanges
    right: SideChanges

    @classmethod
    def after(cls, since: Positions) -> Self:
        """Return the changes after these positions, none of them read."""
        return cls(since, since, SideChanges(since.left), SideChanges(since.right))

    def read(self, stores: JoinStores, kernel: Kernel, now: Positions, most: int, *, keys_only: bool = False) -> bool:
        """Read on in both feeds, as `SideChanges.read` does; skip the right one if the left has too many changes."""
        self.seen, left, right = now, self.left, self.right
        return left.read(stores.left, kernel, "left", now.left, most, keys_only=keys_only) and right.read(
            stores.right, kernel, "right", now.right, most, keys_only=keys_only
        )


def rows_to_join(
    kernel: Kernel, table: StructuredTable, changes: Changes, most: int, or_most: Callable[[], int] = int
) -> tuple[dict[Values, Row | None], Mapping[Values, Row | None]] | None:
    """Return the affected rows of the left table, and the known ones of the right table, by their keys.

    None if more than `most` left rows are affected, and more than `or_most` returns, by default 0. `table` is the left
    table at the end of the changes, which were read to their end.
    """
    rows, rights = dict(changes.left.rows), changes.right.rows
    if kernel.bound.unfilled:  # feeds lack computed fields
        read = table.multi_read(list(rows), kernel.bound.left_columns)
        rows, rights = dict.fromkeys(rows) | {row.key: row for row in read}, {}
    for row in left_rows_of(kernel, table, changes.right.rows):
        rows.setdefault(row.key, row)
        if len(rows) > most:
            most = or_most()
            if len(rows) > most:
                return None
    return rows, rights


def oldest_change(feed: ChangeFeed, since: FeedPosition) -> dt.datetime | None:
    """Return when the first change after a position was committed; None if there is none.

    Raises
    ------
    ChangesLostError
        If the change is no longer kept.
    """
    with feed.read(since) as changes:
        first = next(changes, None)
    return None if first is None else first.timestamp


def left_rows_of(kernel: Kernel, left: StructuredTable, right_keys: Iterable[Values]) -> Iterator[Row]:
    """Yield the rows of the left table that refer to one of these rows of the right table, each once."""
    remaining = iter(set(right_keys))
    while keys := set(islice(remaining, _KEYS_AT_ONCE)):
        with _scan(kernel.bound, left, keys) as rows:
            for row in rows:
                # A part of the key may find a wrong row; a softly deleted row refers to nothing and has no result row.
                if kernel.foreign_key(row) in keys:
                    yield row


def _scan(bound: BoundJoin, left: StructuredTable, keys: Collection[Values]) -> RowIterator:
    foreign_key, columns = bound.foreign_key, bound.left_columns
    values = {name: list(dict.fromkeys(one[place] for one in keys)) for place, name in enumerate(foreign_key)}
    leading = bound.left.primary_key[: bound.prefix] or (bound.index,)
    others: list[Filter] = [col(name).isin(values[name]) for name in foreign_key if name not in leading]
    where = reduce(and_, others) if others else None
    if bound.prefix:
        places = [foreign_key.index(name) for name in bound.left.primary_key[: bound.prefix]]
        prefixes = dict.fromkeys(tuple(one[place] for place in places) for one in keys)
        return left.multi_scan([Range.prefix(prefix) for prefix in prefixes], where=where, columns=columns)
    assert bound.index is not None
    found = values[bound.index]
    if len(found) == 1:
        return left.scan_index(bound.index, found[0], where=where, columns=columns)
    wanted = col(bound.index).isin(found)
    # In the order of the index, so that the store need not sort the rows.
    return left.scan(where=wanted if where is None else wanted & where, order_by=bound.index, columns=columns)


def _row(change: Change) -> Row:
    row = change.row
    assert isinstance(row, Row)
    return row
