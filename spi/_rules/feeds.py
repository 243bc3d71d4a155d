"""Checks of the arguments of change feeds."""

from __future__ import annotations

import datetime as dt

from structable.spi._error_texts import shown
from structable.spi._errors import UnsupportedOperationError
from structable.spi._plain_values import is_aware, plain_datetime
from structable.spi._specification import TableSpecification
from structable.spi._table_options import ChangelogProducer


def check_moment(timestamp: object) -> dt.datetime:
    """Return a time with a time zone, of Python's own class; ValueError for anything else."""
    if not is_aware(timestamp):
        raise ValueError(f"timestamp is {shown(timestamp)}; it must be a datetime with a time zone")
    return plain_datetime(timestamp)


def check_rows(rows: object) -> int:
    """Return a number of changes, at least 1; ValueError for anything else."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise ValueError(f"rows is {shown(rows)}; it must be a whole number of at least 1")
    return rows


def check_after(spec: TableSpecification, since: object, after: object) -> int | None:
    """Return the number of the last change that was read of a commit; None for a commit that was read to its end.

    Raises
    ------
    ValueError
        If it is not the number of a change, or comes without the position of the commit.
    UnsupportedOperationError
        If the changes of the table's feed have no numbers.
    """
    if after is None:
        return None
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < 1 << 63:
        raise ValueError(f"after is {shown(after)}; it must be the number of a change, from 0")
    if since is None:
        raise ValueError(f"after={after} counts the changes of the commit at a position; give since as well")
    if spec.table_options.changelog_producer is not ChangelogProducer.INPUT:
        raise UnsupportedOperationError(
            f"table {spec.name!r} has a change feed whose changes have no numbers: after needs the producer input"
        )
    return after


def require_net(spec: TableSpecification) -> None:
    """Raise UnsupportedOperationError unless the changes of a table's feed can be netted."""
    if spec.keyless or spec.table_options.changelog_producer is ChangelogProducer.INPUT:
        kind = "has no key" if spec.keyless else "has the producer input"
        raise UnsupportedOperationError(
            f"table {spec.name!r} {kind}: net changes need a key, and the producer lookup or full-compaction"
        )
