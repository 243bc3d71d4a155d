"""`KeyedRequest`: the checked arguments of a scan, with the raw keys of its ranges where each is one whole key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import Range, TableSpecification
from structable.spi.authors import Scan, ScanRequest, check_many, check_range


@dataclass(slots=True)
class KeyedRequest(ScanRequest):
    """The checked arguments of a scan of an ordered table.

    Parameters
    ----------
    raw_keys : tuple of bytes or None
        The raw keys of the ranges, if each range is one whole key; None otherwise.
    """

    raw_keys: tuple[bytes, ...] | None = None

    @classmethod
    def of(cls, binding: TableBinding, scan: Scan) -> KeyedRequest:
        """Return the request for a user's arguments.

        Raises
        ------
        InvalidFieldError
            As `ScanRequest.checked` does.
        """
        spec = binding.spec
        given = check_many(spec, "ranges", scan.ranges)
        if binding.keyless:
            given = _distinct(spec, given)
        raw_keys = _plain_keys(binding, given)
        request = cls.checked(spec, scan, () if raw_keys else given)
        if raw_keys:
            request.ranges, request.raw_keys = tuple(given), tuple(raw_keys)
        elif (keys := request.whole_keys(spec)) is not None:
            request.raw_keys = tuple([binding.keys.encode_checked(key) for key in keys])
        return request


def _distinct(spec: TableSpecification, ranges: list[Any]) -> list[Range]:
    """Check ranges of a keyless table, each of all rows or none, and leave out repeated ones."""
    checked = [check_range(spec, one) for one in ranges]
    return list(dict.fromkeys([Range() if one.begin is one.end is None else one for one in checked]))


def _plain_keys(binding: TableBinding, ranges: list[Any]) -> list[bytes] | None:
    """Return the raw keys of ranges of one row each; None if a range may be of another kind.

    `check_range` would neither change nor reject these ranges; after None it must decide.
    """
    encode = binding.encode_tuple
    raw_keys = [
        encode(one.begin)
        for one in ranges
        if one.__class__ is Range and one.begin is one.end and one.begin_inclusive is one.end_inclusive is True
    ]
    present = [raw_key for raw_key in raw_keys if raw_key is not None]
    return present if len(present) == len(ranges) else None
