"""Time zones by Spark's names, and the times at which days begin in them."""

from __future__ import annotations

import bisect
import datetime as dt
import re
import zoneinfo
from typing import Any

import pyarrow as pa

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def time_zone(name: str | None) -> dt.tzinfo:
    """Return the time zone of a name of Spark: of a region, or an offset such as +01:00.

    Raises
    ------
    ValueError
        For a name that Python does not know, such as some of Java's, and for None.
    """
    if name is None:
        raise ValueError("the time zone is not known")
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        try:
            return dt.UTC if name == "Z" else zoneinfo.ZoneInfo(name)
        except zoneinfo.ZoneInfoNotFoundError as error:  # which is a KeyError
            raise ValueError(f"the time zone {name!r} is not known here") from error
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    size = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return dt.timezone(-size if offset[1] == "-" else size)


def midnights(days: pa.Array[Any], zone: dt.tzinfo) -> pa.Array[Any]:
    """Return the instants at which days begin in a time zone, as Spark casts a date to a timestamp.

    If clocks skip midnight, the day begins with its first moment; if they show midnight twice, with the first.

    Raises
    ------
    ValueError
        For a day before the year 1 or after 9999.
    """
    # Arrow knows no daylight saving time after 2037.
    found = days.dictionary_encode()
    numbers = found.dictionary.cast(pa.int32()).to_pylist()
    begins = [_begin(number, zone) for number in numbers if number is not None]  # none is, as Arrow's types do not say
    return pa.array(begins, pa.int64()).take(found.indices).cast(_INSTANT)


_INSTANT = pa.timestamp("us", tz="UTC")
_EPOCH = dt.date(1970, 1, 1).toordinal()
_SECOND = dt.timedelta(seconds=1)


def _begin(number: int, zone: dt.tzinfo) -> int:
    """Return the microseconds of 1970 UTC at which a day of this number begins."""
    try:
        day = dt.date.fromordinal(number + _EPOCH)
    except (ValueError, OverflowError):
        raise ValueError("is before the year 1 or after 9999") from None
    midnight = dt.datetime.combine(day, dt.time(), zone)
    offset, other = midnight.utcoffset(), midnight.replace(fold=1).utcoffset()
    assert offset is not None
    assert other is not None
    begin = number * 86_400 - offset // _SECOND
    if other > offset:  # clocks skip midnight: find the first moment after that
        begin -= bisect.bisect_left(
            range((other - offset) // _SECOND), True, key=lambda back: _offset(begin - back - 1, zone) == offset
        )
    return begin * 1_000_000


def _offset(second: int, zone: dt.tzinfo) -> dt.timedelta | None:
    return dt.datetime.fromtimestamp(second, zone).utcoffset()
