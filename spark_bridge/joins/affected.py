"""Finds the left rows that a step must join again, from the changes of both tables since the last step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import and_

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

__all__ = ["SideChanges", "changed_rows", "changed_sides", "left_rows_of", "oldest_change", "rows_to_join"]

_KEYS_AT_ONCE = 1_000
"""The maximum number of values of `isin` that become intervals of an index; more are compared row by row."""


@dataclass(slots=True)
class SideChanges:
    """The changed rows of one table that may matter.

    Attributes
    ----------
    rows : dict of tuple to Row or None
        By key, the row at the end of the range; None if it is gone.
    before : dict of tuple to Row or None
        By key, the row before the first of these changes; None if there was none.
    oldest : datetime.datetime, optional
        When the first change of the range was committed; None if there was no change.
    complete : bool
        Whether the whole range was read: false if there were more rows than wanted.
    """

    rows: dict[Values, Row | None] = field(default_factory=dict)
    before: dict[Values, Row | None] = field(default_factory=dict)
    oldest: dt.datetime | None = None
    complete: bool = True


def changed_rows(
    storage: Storage,
    kernel: Kernel,
    side: str,
    since: FeedPosition,
    until: FeedPosition,
    most: int,
    *,
    keys_only: bool = False,
) -> SideChanges:
    """Return the rows of one table with a change in (since, until] that may change the result; at most `most`.

    An update that leaves equal all fields that the join reads is left out. Each change is judged by itself, never the
    net change: after an interrupted step the result may be at a position between. With `keys_only` every row is None,
    and `before` stays empty.

    Raises
    ------
    ChangesLostError
        If the changes are no longer kept.
    """
    spec, columns = (
        (kernel.bound.left, kernel.bound.left_columns)
        if side == "left"
        else (kernel.bound.right, kernel.bound.right_columns)
    )
    found = SideChanges()
    before: Row | None = None
    with storage.changes(spec.name).read(since, until, columns=columns) as changes:
        for change in changes:
            if found.oldest is None:
                found.oldest = change.timestamp
            row = _row(change)
            if change.kind is RowKind.UPDATE_BEFORE:
                before = row
                continue
            was = row if change.kind is RowKind.DELETE else None
            if change.kind is RowKind.UPDATE_AFTER and before is not None and before.key == row.key:
                was = before
                if not kernel.matters(side, before, row):
                    continue
            if not keys_only:
                found.before.setdefault(row.key, was)
            found.rows[row.key] = None if keys_only or change.kind is RowKind.DELETE else row
            if len(found.rows) > most:
                found.complete = False
                break
    return found


def changed_sides(
    stores: JoinStores, kernel: Kernel, since: Positions, now: Positions, most: int
) -> tuple[SideChanges, SideChanges]:
    """Return `changed_rows` of the left and of the right table; the right one is not read if the left has too many."""
    left = changed_rows(stores.left, kernel, "left", since.left, now.left, most)
    if not left.complete:
        return left, SideChanges(complete=False)
    return left, changed_rows(stores.right, kernel, "right", since.right, now.right, most)


def rows_to_join(
    kernel: Kernel, table: StructuredTable, left: SideChanges, right: SideChanges, most: int
) -> tuple[dict[Values, Row | None], Mapping[Values, Row | None]] | None:
    """Return the affected rows of the left table, and the known ones of the right table, by their keys.

    None if more than `most` left rows are affected. `table` is the left table at the end of the changes, which are
    complete.
    """
    rows, rights = dict(left.rows), right.rows
    if kernel.bound.unfilled:  # feeds lack computed fields
        read = table.multi_read(list(rows), kernel.bound.left_columns)
        rows, rights = dict.fromkeys(rows) | {row.key: row for row in read}, {}
    for row in left_rows_of(kernel, table, right.rows):
        rows.setdefault(row.key, row)
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
