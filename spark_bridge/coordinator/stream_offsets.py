"""Offsets of streams: the places in a change feed that Spark keeps in its checkpoint as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from structable.spark_bridge.base.feed_options import FeedOptions
from structable.spi import FeedPosition

Offset = dict[str, str | int]
"""An offset as Spark has it."""

_SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The offset before the first batch; made of the options alone, as Spark asks again when that batch is repeated."""

    text: str

    @classmethod
    def of(cls, feed: FeedOptions | None) -> StreamStart:
        """Return the start of a stream with these options."""
        if feed is None or not feed.has_start:
            return cls(_SNAPSHOT)
        if feed.starting_version is not None:
            return cls(f"version {feed.starting_version}")
        return cls(f"timestamp {feed.starting_timestamp}")

    @property
    def is_snapshot(self) -> bool:
        """Whether the first batch has the table's rows."""
        return self.text == _SNAPSHOT

    def to_json(self) -> Offset:
        return {"start": self.text}


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position; if the batch before it has the rows of the first snapshot, or of a log, also the snapshot's time."""

    position: FeedPosition
    time: dt.datetime | None = None

    def to_json(self) -> Offset:
        found: Offset = {"feed": self.position.feed, "version": self.position.version}
        return found if self.time is None else {**found, "time": self.time.isoformat()}


def offset_of(value: Mapping[str, object]) -> StreamStart | StreamOffset:
    """Return the offset that this JSON stands for; ValueError if it stands for none."""
    try:
        if set(value) == {"start"}:
            return StreamStart(str(value["start"]))
        if {"feed", "version"} <= set(value) <= {"feed", "version", "time"}:
            time = dt.datetime.fromisoformat(str(value["time"])) if "time" in value else None
            return StreamOffset(FeedPosition(value["feed"], value["version"]), time)  # type: ignore[arg-type]
    except ValueError:
        pass
    raise ValueError(
        f"the checkpoint has the offset {value!r}, which is not a structable table's; use a new checkpoint"
    )
