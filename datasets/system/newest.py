"""Pages of records by an indexed time, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from structable.datasets.records import Page, Record, Records
from structable.datasets.records.cursors import check_limit, decode_cursor, encode_cursor
from structable.spi import Filter, Range, Value, col

R = TypeVar("R", bound=Record)


def newest_first(
    records: Records[R], prefix: tuple[str, ...], time: str, where: Filter | None, cursor: str | None, limit: int
) -> Page[R]:
    """Return a page of the records within a prefix of the key, the newest first; of one time, the largest key first.

    A record whose time grows between two pages moves to the front, and is not given again.

    Parameters
    ----------
    time : str
        An indexed field that is never null.

    Raises
    ------
    InvalidCursorError
        If the cursor is garbled, or belongs to another listing.
    ValueError
        If the limit is out of its range.
    """
    check_limit(limit)
    spec, within = records.table.specification, Range.prefix(prefix)
    names = (time, *spec.primary_key[len(prefix) :])
    listing = repr((spec.name, "page", within, where, time))
    if cursor is not None:
        behind = _before(names, decode_cursor(cursor, listing, tuple(map(spec.field, names))))
        where = behind if where is None else where & behind
    with records.scan(within, where=where, order_by=time, reverse=True, limit=limit + 1) as found:
        items = list(found)
    if len(items) <= limit:
        return Page(items, None)
    last = items[limit - 1]
    return Page(items[:limit], encode_cursor(listing, tuple(getattr(last, name) for name in names)))


def _before(names: Sequence[str], values: Sequence[Value]) -> Filter:
    """Return the filter of the rows before these values, compared one field after the other."""
    field, value = col(names[0]), values[0]
    if len(names) == 1:
        return field < value
    return (field < value) | ((field == value) & _before(names[1:], values[1:]))
