"""`JoinProgress`, and the table `structable_progress`: the positions of each join's result, and its present writer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from structable.spi import DataCorruptionError, FeedPosition, Field, StructuredTable, TableSpecification, Value
from structable.spi.authors import JOB_RETENTION_SECONDS

LEASE_SECONDS = 30.0
"""Seconds for which an intent blocks other workers unless it is renewed. No result depends on the clocks."""

PROGRESS = TableSpecification(
    "structable_progress",
    [Field.string(name) for name in ("consumer", "left_position", "right_position", "definition", "intent")],
    ["consumer"],
)
"""The table of the joins whose results are in a store; `consumer` is the join's name."""


@dataclass(frozen=True, slots=True)
class JoinProgress:
    """The progress of one step, or of several.

    Attributes
    ----------
    affected : int
        The left rows that were joined again; for a rebuild, the rows of the result that differed.
    inserted, updated, deleted : int
        The rows of the result that were written.
    left_position, right_position : FeedPosition or None
        The positions at which the result is the join of the two tables. None before the first step is done.
    rebuilt : bool
        Whether the whole join was compared with the result.
    """

    affected: int
    inserted: int
    updated: int
    deleted: int
    left_position: FeedPosition | None
    right_position: FeedPosition | None
    rebuilt: bool = False

    @property
    def unchanged(self) -> int:
        """The number of affected rows that needed no write."""
        return self.affected - self.inserted - self.updated - self.deleted

    def followed_by(self, later: JoinProgress) -> JoinProgress:
        """Return the progress of this and later steps together."""
        return JoinProgress(
            self.affected + later.affected,
            self.inserted + later.inserted,
            self.updated + later.updated,
            self.deleted + later.deleted,
            later.left_position,
            later.right_position,
            self.rebuilt or later.rebuilt,
        )


@dataclass(frozen=True, slots=True)
class Positions:
    """The states of the left and the right table that a result is the join of."""

    left: FeedPosition
    right: FeedPosition

    def same_feeds(self, other: Positions) -> bool:
        """Return whether both are in the same feeds, so that they can be compared."""
        return (self.left.feed, self.right.feed) == (other.left.feed, other.right.feed)

    def reach(self, other: Positions) -> bool:
        """Return whether both are in the same feeds as the other positions, and neither is before its counterpart."""
        return self.same_feeds(other) and self.left >= other.left and self.right >= other.right


@dataclass(frozen=True, slots=True)
class Intent:
    """A write job that is about to be committed.

    Attributes
    ----------
    job_id : str
        The job.
    positions : Positions
        The positions of the result once the job is committed.
    lease : float
        The time until which other workers wait, in seconds since 1970.
    definition : str, optional
        The definition that the job introduces, if it differs from the recorded one.
    """

    job_id: str
    positions: Positions
    lease: float
    definition: str | None = None

    @property
    def expired(self) -> bool:
        """Whether another worker may end the job."""
        return time.time() >= self.lease

    @property
    def forgotten(self) -> bool:
        """Whether the store may have forgotten the job's outcome: half of the time is reserved for differing clocks."""
        return time.time() >= self.lease + JOB_RETENTION_SECONDS / 2

    def renewed(self) -> Intent:
        """Return the intent with a lease that begins now."""
        return replace(self, lease=time.time() + LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The row of one join in `structable_progress`.

    Attributes
    ----------
    consumer : str
        The join's name.
    positions : Positions, optional
        None before the first step is done.
    definition : str
        See `recording.py`.
    intent : Intent, optional
        While it stands, the result is at `positions` or at the intent's positions.
    """

    consumer: str
    positions: Positions | None
    definition: str
    intent: Intent | None = None

    def at(self, positions: Positions, definition: str | None = None) -> ProgressRecord:
        """Return the record after a step, without an intent."""
        return ProgressRecord(self.consumer, positions, definition or self.definition)


def intent_channel(consumer: str) -> str:
    """Return the channel that is signalled when an intent of a join is cleared."""
    return f"join/{consumer}"


def read_record(table: StructuredTable, consumer: str) -> ProgressRecord | None:
    """Return the record of a join.

    Raises
    ------
    DataCorruptionError
        If the row is not as `write_record` writes it.
    """
    row = table.read((consumer,))
    return None if row is None else _record(row)


def all_records(table: StructuredTable) -> Iterable[ProgressRecord]:
    """Yield the records of all joins whose results are in the store."""
    with table.scan() as rows:
        yield from map(_record, rows)


def write_record(table: StructuredTable, record: ProgressRecord) -> None:
    """Write the record of a join."""
    intent, at = record.intent, record.positions
    document = None
    if intent is not None:
        document = {
            "job": intent.job_id,
            "left": str(intent.positions.left),
            "right": str(intent.positions.right),
            "lease": intent.lease,
            "definition": intent.definition,
        }
    table.replace(
        {
            "consumer": record.consumer,
            "left_position": None if at is None else str(at.left),
            "right_position": None if at is None else str(at.right),
            "definition": record.definition,
            "intent": None if document is None else json.dumps(document, sort_keys=True),
        }
    )


def _record(row: Mapping[str, Value]) -> ProgressRecord:
    consumer = str(row["consumer"])
    try:
        positions = intent = None
        if row["left_position"] is not None:
            positions = _positions(row["left_position"], row["right_position"])
        if row["intent"] is not None:
            document = json.loads(str(row["intent"]))
            at = _positions(document["left"], document["right"])
            intent = Intent(str(document["job"]), at, float(document["lease"]), document["definition"])
        return ProgressRecord(consumer, positions, str(row["definition"]), intent)
    except (ValueError, TypeError, KeyError) as error:
        raise DataCorruptionError(
            f"table {PROGRESS.name!r}, join {consumer!r}: {error}; delete the row, and the join is rebuilt"
        ) from error


def _positions(left: object, right: object) -> Positions:
    return Positions(FeedPosition.parse(str(left)), FeedPosition.parse(str(right)))
