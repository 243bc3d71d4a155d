"""The floor of a feed, after which every change is kept, and its marks: ordinary keys of the feed's space.

    space 00            floor version, time, swept version, 8 bytes each; none until something expires
    space 02 version    time: a mark

Entries up to the swept version are gone. Entries between it and the floor may exist, and are no longer read.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from structable.backends.base.feed_marks import Mark
from structable.backends.ordered.engine import EngineSnapshot, OrderedMap, successor
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import DataCorruptionError, TransactionConflictError
from structable.spi.authors import own_class

_FLOOR = b"\x00"
_MARK = b"\x02"
_RECORD = struct.Struct(">QQQ")
_NUMBER = struct.Struct(">Q")
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = own_class(dt.datetime)(1970, 1, 1, tzinfo=dt.UTC)


def moment(time: int) -> dt.datetime:
    """Return microseconds since 1970 as a time."""
    return _EPOCH + dt.timedelta(microseconds=time)


def microseconds(moment: dt.datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class Floor:
    """The version after which a feed is whole; under full-compaction the version of a mark, with the mark's `time`."""

    version: int
    time: int
    swept: int = 0

    def encode(self) -> bytes:
        return _RECORD.pack(self.version, self.time, self.swept)


def floor_key(space: bytes) -> bytes:
    """Return the key of the floor of the feed in a space."""
    return space + _FLOOR


def recorded_floor(snapshot: EngineSnapshot, space: bytes) -> Floor | None:
    """Return the recorded floor of the feed in a space; None if nothing has expired yet."""
    raw = snapshot.get(space + _FLOOR)
    if raw is None:
        return None
    try:
        return Floor(*_RECORD.unpack(raw))
    except struct.error as error:
        raise DataCorruptionError(f"the floor of a change feed cannot be decoded: {raw.hex()}") from error


def read_floor(engine: OrderedMap, snapshot: EngineSnapshot, binding: TableBinding, newest: int) -> Floor:
    """Return the floor of a feed, which is its first entry until changes expire. `newest` is a settled version.

    Raises
    ------
    TransactionConflictError
        If the first changes have expired since the snapshot was taken: a newer snapshot has the floor.
    """
    assert binding.schema.feed is not None
    space = binding.schema.feed.space
    floor = recorded_floor(snapshot, space)
    if floor is not None:
        return floor
    if binding.feed_beginning is None:
        with closing(snapshot.entries(space, 0, newest)) as entries:
            first = next(entries, None)
        if first is None:
            # A snapshot need not keep entries.
            if engine.look(lambda newer: newer.get(floor_key(space))) is not None:
                raise TransactionConflictError("the first changes have expired since the snapshot was taken")
            raise DataCorruptionError(f"the change feed in space {space.hex()} has no beginning")
        binding.feed_beginning = first.version, first.time
    return Floor(*binding.feed_beginning)


def mark_key(space: bytes, version: int) -> bytes:
    """Return the key of a mark."""
    return space + _MARK + _NUMBER.pack(version)


def mark_interval(space: bytes) -> tuple[bytes, bytes]:
    """Return the interval of the keys of all marks."""
    return space + _MARK, successor(space + _MARK)


def marks_after(snapshot: EngineSnapshot, space: bytes, floor: Floor) -> Iterator[Mark]:
    """Yield the marks of a feed, beginning with the floor's."""
    yield Mark(floor.version, moment(floor.time))
    for key, value in snapshot.scan(mark_key(space, floor.version + 1), mark_interval(space)[1]):
        yield Mark(mark_version(key), moment(int.from_bytes(value)))


def mark_version(key: bytes) -> int:
    """Return the version of the mark under a key."""
    return int.from_bytes(key[-_NUMBER.size :])


def mark_value(mark: Mark) -> bytes:
    """Return the stored value of a mark."""
    return _NUMBER.pack(microseconds(mark.time))
